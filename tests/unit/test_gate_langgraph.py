"""Quality gates in LangGraph graphs."""

import asyncio
import inspect
import json
import math
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field

from batchgate import Fail, Verdict, accept, check
from batchgate.errors import ConfigError
from batchgate.gate import GateEvent, QualityGateReview, interrupt_type
from batchgate.langgraph import (
    GateState,
    add_quality_gate,
    compile_gated,
    evaluate_with,
    merge_by_gate,
)
from tests.gate_examples import article, ask_a_person, project, thread


class Draft(GateState):
    draft: str
    ended: str


async def extend(state):
    return {"draft": state.get("draft", "") + "x"}


async def give_up(state):
    return {"ended": "given up"}


def at_least(length):
    async def long_enough(state):
        return len(state["draft"]) >= length or Fail(f"below {length}")

    return long_enough


def always(answer):
    return lambda state: answer


def looped(evaluator, schema=Draft, **options):
    """Extend, gate, and round again."""
    graph = StateGraph(schema)
    graph.add_node("extend", extend)
    graph.add_node("give_up", give_up)
    graph.add_edge(START, "extend")
    graph.add_edge("extend", "review")
    graph.add_edge("give_up", END)
    targets = {"on_pass": END, "on_fail": "extend", "on_escalate": "give_up"}
    return add_quality_gate(graph, "review", evaluator, **{**targets, **options})


@pytest.fixture(params=["memory", "sqlite"])
async def saver(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "graph.sqlite")) as made:
        yield made


# The two examples.


async def test_a_draft_is_revised_until_it_passes_and_is_published(saver):
    # S3-46, S3-12
    state = await article(max_attempts=6).compile(saver).ainvoke({"draft": ""}, thread("t"))

    assert state["gate_attempts"] == {"review": 4}
    assert state["ended"] == "published"
    assert state["runs"] == ["draft", "revise", "revise", "revise", "publish"]


async def test_a_draft_that_is_out_of_attempts_is_escalated_and_never_published(saver):
    # S3-46, S3-13, S3-43
    state = await article(max_attempts=2).compile(saver).ainvoke({"draft": ""}, thread("t"))

    assert state["gate_attempts"] == {"review": 2}
    assert state["ended"] == "parked"
    assert state["gate_results"]["review"]["passed"] is False


async def test_two_gates_guard_a_plan_and_a_review(saver):
    # S3-46, S3-15
    state = await project().compile(saver).ainvoke({"notes": ""}, thread("t"))

    assert state["gate_attempts"] == {"plan_gate": 2, "review_gate": 2}
    assert state["runs"] == ["research", "plan", "plan", "implement", "review", "review"]
    assert all(result["passed"] for result in state["gate_results"].values())


async def test_an_escalation_to_a_person_goes_on_with_the_answer(saver):
    # S3-37, S3-38, S3-39, S3-42
    app = article(max_attempts=2, escalate=ask_a_person).compile(saver)
    await app.ainvoke({"draft": ""}, thread("t"))
    waiting = await app.aget_state(thread("t"))
    (asked,) = waiting.interrupts

    again = article(max_attempts=2, escalate=ask_a_person).compile(saver)
    state = await again.ainvoke(Command(resume="approved"), thread("t"))

    assert asked.value == {
        "type": "quality_gate",
        "artifact": "a b more",
        "criteria": ["at least five words"],
        "auto_score": 0.6,
        "reasons": ["3 words, must be at least 5"],
        "gate": "review",
    }
    assert interrupt_type(asked.value) == "quality_gate"
    assert state["ended"] == "approved"
    assert state["gate_attempts"] == {"review": 2}


async def test_the_verdict_of_a_checkpoint_is_plain_json(saver):
    # S3-16, I-22
    said = Verdict(False, math.nan, ["\ud800"], measured={"energy_ev": math.inf})
    app = looped(lambda state: said, max_attempts=1).compile(saver)

    await app.ainvoke({"draft": ""}, thread("t"))

    stored = (await app.aget_state(thread("t"))).values["gate_results"]["review"]
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert (stored["passed"], stored["score"], stored["reasons"]) == (False, None, ["\\ud800"])


# Adding one.


def test_the_signature_is_the_documented_one():
    # S3-1, S3-7, S3-11
    parameters = inspect.signature(add_quality_gate).parameters

    assert list(parameters)[:7] == [
        "graph",
        "name",
        "evaluator",
        "on_pass",
        "on_fail",
        "on_escalate",
        "max_attempts",
    ]
    assert parameters["max_attempts"].default == 3


def test_the_graph_is_returned():
    # S3-7
    graph = StateGraph(Draft)
    made = add_quality_gate(graph, "g", at_least(1), on_pass=END, on_fail=END, on_escalate=END)

    assert made is graph


@pytest.mark.parametrize("missing", ["on_pass", "on_fail", "on_escalate"])
def test_each_way_needs_a_target(missing):
    # S3-8
    targets: dict[str, Any] = {"on_pass": END, "on_fail": END, "on_escalate": END}
    del targets[missing]

    with pytest.raises(TypeError, match=missing):
        add_quality_gate(StateGraph(Draft), "g", at_least(1), **targets)


@pytest.mark.parametrize("target", [None, 3, extend])
def test_a_target_is_a_name(target):
    # S3-8
    with pytest.raises(TypeError, match=r"on_fail is a .*, must be a node's name"):
        looped(at_least(1), on_fail=target)


def test_a_name_that_is_taken_is_refused():
    # S3-9
    with pytest.raises(ValueError, match="`review` already present"):
        add_quality_gate(
            looped(at_least(1)), "review", at_least(1), on_pass=END, on_fail=END, on_escalate=END
        )


@pytest.mark.parametrize(
    ("max_attempts", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_wrong_budget_is_refused_when_the_gate_is_added(max_attempts, error):
    # S3-9
    with pytest.raises(error, match="max_attempts is"):
        looped(at_least(1), max_attempts=max_attempts)


def test_a_sink_that_is_no_function_is_refused_when_the_gate_is_added():
    with pytest.raises(TypeError, match="on_event is a str, must be a function"):
        looped(at_least(1), on_event="log")


def test_an_unknown_target_is_found_at_compile():
    # S3-10
    with pytest.raises(ValueError, match="unknown target 'nope'"):
        looped(at_least(1), on_fail="nope").compile()


def test_a_state_without_the_channels_is_refused_when_the_gate_is_added():
    # S3-17
    class Bare(TypedDict):
        draft: str

    with pytest.raises(ConfigError, match="Bare lacks the channel 'gate_attempts'; derive it from"):
        looped(at_least(1), schema=Bare)


def test_a_channel_without_the_merging_reducer_is_refused():
    # S3-17, S3-21
    class Last(TypedDict):
        draft: str
        gate_attempts: dict[str, int]
        gate_results: dict[str, Any]

    with pytest.raises(ConfigError, match="Last has another reducer for the channel"):
        looped(at_least(1), schema=Last)


class Model(BaseModel):
    draft: str = ""
    ended: str = ""
    gate_attempts: Annotated[dict[str, int], merge_by_gate] = Field(default_factory=dict)
    gate_results: Annotated[dict[str, Any], merge_by_gate] = Field(default_factory=dict)


@dataclass
class Data:
    draft: str = ""
    ended: str = ""
    gate_attempts: Annotated[dict[str, int], merge_by_gate] = field(default_factory=dict)
    gate_results: Annotated[dict[str, Any], merge_by_gate] = field(default_factory=dict)


@pytest.mark.parametrize("schema", [Model, Data])
async def test_a_state_may_be_a_model_or_a_dataclass(schema):
    # S3-15
    graph = StateGraph(schema)
    graph.add_node("extend", lambda state: {"draft": state.draft + "x"})
    graph.add_edge(START, "extend")
    graph.add_edge("extend", "review")
    add_quality_gate(
        graph,
        "review",
        evaluate_with([lambda draft: len(draft) >= 2], value="draft"),
        on_pass=END,
        on_fail="extend",
        on_escalate=END,
    )

    state = await graph.compile().ainvoke({"draft": ""})

    assert state["gate_attempts"] == {"review": 2}
    assert state["gate_results"]["review"]["route"] == "pass"


# Running one.


async def test_a_draft_goes_round_until_it_passes():
    # S3-12, S3-14
    state = await looped(at_least(3)).compile().ainvoke({"draft": ""})

    assert (state["draft"], state["gate_attempts"]) == ("xxx", {"review": 3})
    assert "ended" not in state


async def test_the_work_is_done_at_most_once_less_than_the_budget_again():
    # S3-14, S3-13
    state = await looped(at_least(9), max_attempts=3).compile().ainvoke({"draft": ""})

    assert (state["draft"], state["ended"]) == ("xxx", "given up")


async def test_a_count_in_the_input_is_gone_on_from():
    # S3-19
    app = looped(at_least(9)).compile()

    state = await app.ainvoke({"draft": "", "gate_attempts": {"review": 2}})

    assert (state["draft"], state["gate_attempts"]) == ("x", {"review": 3})


async def test_a_second_call_on_a_thread_starts_a_new_count_after_a_pass():
    # S3-18, S3-20, C-16
    app = looped(at_least(2)).compile(InMemorySaver())

    states = [await app.ainvoke({"draft": ""}, thread("t")) for _ in range(2)]

    assert [state["gate_attempts"] for state in states] == [{"review": 2}, {"review": 2}]
    assert [state["gate_results"]["review"]["visit"] for state in states] == [2, 4]


async def test_a_second_call_on_a_thread_starts_a_new_count_after_an_escalation_when_told_so():
    # S3-20, C-16
    app = looped(at_least(9), max_attempts=2, reset="decision").compile(InMemorySaver())

    states = [await app.ainvoke({"draft": ""}, thread("t")) for _ in range(2)]

    assert [state["gate_attempts"] for state in states] == [{"review": 2}, {"review": 2}]


async def test_fifty_runs_of_one_graph_are_independent():
    # S3-23
    app = looped(at_least(3)).compile(InMemorySaver())

    states = await asyncio.gather(
        *(app.ainvoke({"draft": "x" * (n % 3)}, thread(str(n))) for n in range(50))
    )

    assert [state["gate_attempts"]["review"] for state in states] == [3 - n % 3 for n in range(50)]


class Parallel(GateState):
    went: Annotated[list[str], operator.add]


async def test_gates_of_one_step_keep_their_verdicts_and_their_ways():
    # S3-21, C-17, I-17
    graph = StateGraph(Parallel)
    for number in range(6):
        for end in ("passed", "failed"):
            name = f"{number}-{end}"
            graph.add_node(name, lambda state, name=name: {"went": [name]})
        graph.add_edge(START, f"g{number}")
        add_quality_gate(
            graph,
            f"g{number}",
            always(number % 2 == 0),
            on_pass=f"{number}-passed",
            on_fail=f"{number}-failed",
            on_escalate=END,
        )

    state = await graph.compile().ainvoke({"went": []})

    assert sorted(state["went"]) == [
        "0-passed", "1-failed", "2-passed", "3-failed", "4-passed", "5-failed",
    ]  # fmt: skip
    assert [state["gate_results"][f"g{n}"]["passed"] for n in range(6)] == [True, False] * 3


async def test_an_evaluator_that_writes_the_state_changes_nothing_in_the_run():
    # S3-4
    def evaluate(state):
        state["draft"] = "mine"
        return True

    assert (await looped(evaluate).compile().ainvoke({"draft": ""}))["draft"] == "x"


async def test_a_failed_evaluator_ends_the_run_and_counts_nothing():
    # S3-24
    seen: list[Any] = []
    app = looped(lambda state: 1 / 0 > 1, on_event=seen.append).compile(InMemorySaver())

    with pytest.raises(ZeroDivisionError):
        await app.ainvoke({"draft": ""}, thread("t"))

    assert [event.phase for event in seen] == ["started"]
    assert not (await app.aget_state(thread("t"))).values.get("gate_attempts")


async def test_checks_of_a_campaign_judge_one_value_of_the_state():
    # S3-4
    def short(draft):
        """The draft must have at least two letters."""
        return len(draft) >= 2

    @check(name="novel", thread=True)
    def novel(draft):
        return None

    events: list[GateEvent] = []
    graph = looped(evaluate_with([[short, novel]], value="draft"), on_event=events.append)
    state = await graph.compile().ainvoke({"draft": ""})
    left = iter(["x", "xx"])
    alone = await accept(lambda previous: next(left), checks=[[short, novel]], attempts=2)

    assert state["gate_attempts"]["review"] == len(alone.attempts) == 2
    assert events[1].reasons == alone.attempts[0].reasons


# Events.


async def test_events_are_told_before_the_step_ends_and_name_the_thread():
    # S3-26, S3-28, S3-32
    seen: list[Any] = []

    async def slow(event):
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append(event)

    app = looped(at_least(2), on_event=slow).compile(InMemorySaver())
    async for update in app.astream({"draft": ""}, thread("t"), stream_mode="updates"):
        seen.extend(update)

    assert seen == [
        "extend",
        GateEvent("review", "started", 1, visit=1, thread="t"),
        GateEvent("review", "failed", 1, None, ("below 2",), visit=1, thread="t"),
        "review",
        "extend",
        GateEvent("review", "started", 2, visit=2, thread="t"),
        GateEvent("review", "passed", 2, visit=2, thread="t"),
        "review",
    ]


async def test_the_custom_stream_has_the_events_in_order():
    # S3-35
    app = looped(at_least(1)).compile()

    seen = [event async for event in app.astream({"draft": ""}, stream_mode="custom")]

    assert [(event["gate"], event["phase"], event["attempt"]) for event in seen] == [
        ("review", "started", 1),
        ("review", "passed", 1),
    ]


async def test_a_sink_that_raises_breaks_no_run(caplog):
    # S3-33
    def fails(event):
        raise OSError("disk full")

    state = await looped(at_least(1), on_event=fails).compile().ainvoke({"draft": ""})

    assert state["gate_results"]["review"]["passed"]
    assert len(caplog.records) == 2


async def test_an_interrupt_within_an_evaluator_is_visited_again_and_counted_once():
    # S3-40, S3-42
    seen: list[Any] = []

    async def ask(state):
        return interrupt({"type": "permission"}) == "yes"

    app = looped(ask, on_event=seen.append).compile(InMemorySaver())
    await app.ainvoke({"draft": ""}, thread("t"))
    counted = (await app.aget_state(thread("t"))).values.get("gate_attempts")

    state = await app.ainvoke(Command(resume="yes"), thread("t"))

    assert not counted
    assert state["gate_attempts"] == {"review": 1}
    assert [(e.phase, e.attempt) for e in seen] == [("started", 1), ("started", 1), ("passed", 1)]
    assert seen[0].key == seen[1].key


# Steps.


async def test_the_limit_that_compile_asks_for_is_the_least_that_works():
    # S3-22, C-23
    with pytest.raises(ConfigError, match="recursion_limit is 2, must be at least 102 for the"):
        compile_gated(looped(at_least(99), max_attempts=50), recursion_limit=2)

    app = compile_gated(looped(at_least(99), max_attempts=50), recursion_limit=102)
    assert (await app.ainvoke({"draft": ""}))["ended"] == "given up"
    with pytest.raises(GraphRecursionError):
        await (
            looped(at_least(99), max_attempts=50)
            .compile()
            .with_config(recursion_limit=101)
            .ainvoke({"draft": ""})
        )


async def test_a_limit_of_a_call_that_a_gate_cannot_fit_is_refused_at_its_first_visit():
    # S3-22, C-23
    asked: list[int] = []
    app = looped(lambda state: asked.append(1), max_attempts=50).compile()

    with pytest.raises(ConfigError, match=r"recursion_limit is 100, must be at least 101 .* in 50"):
        await app.ainvoke({"draft": ""}, {"recursion_limit": 100})

    assert asked == []


async def test_attempts_that_are_used_up_need_no_steps():
    # S3-19, S3-22
    app = looped(at_least(9), max_attempts=50).compile()

    state = await app.ainvoke(
        {"draft": "", "gate_attempts": {"review": 48}}, {"recursion_limit": 8}
    )

    assert state["ended"] == "given up"


@pytest.mark.parametrize(("on_fail", "needed"), [(END, 3), ("review", 5), ("extend", 7)])
def test_the_steps_are_counted_by_the_shortest_way_back(on_fail, needed):
    # C-23
    def made():
        return looped(at_least(9), on_fail=on_fail, on_escalate=END)

    compile_gated(made(), recursion_limit=needed)
    with pytest.raises(ConfigError, match=f"at least {needed} "):
        compile_gated(made(), recursion_limit=needed - 1)


async def test_ways_that_nobody_can_see_refuse_nothing():
    # C-23
    async def away(state):
        return Command(goto="extend")

    graph = looped(at_least(2), on_fail="away")
    graph.add_node("away", away)

    state = await compile_gated(graph, recursion_limit=6).ainvoke({"draft": ""})

    assert state["draft"] == "xx"


def test_joins_branches_and_commands_are_ways(tmp_path):
    # C-23
    async def fork(state) -> Command[Any]:
        return Command(goto="left")

    graph = looped(at_least(2), on_fail="fork")
    graph.add_conditional_edges("review", lambda state: END, [END])
    graph.add_node("fork", fork, destinations=("left", "right"))
    graph.add_node("left", extend)
    graph.add_node("right", extend)
    graph.add_node("join", extend)
    graph.add_edge(["left", "right"], "join")
    graph.add_conditional_edges("join", lambda state: "extend")

    # Back to the gate: fork, left, join, and from there to any node.
    with pytest.raises(ConfigError, match="at least 12 "):
        compile_gated(graph, recursion_limit=11)


# Subgraphs.


async def test_gates_of_a_subgraph_that_are_named_apart_keep_their_counts():
    # S3-25
    inner = StateGraph(Draft)
    inner.add_node("extend", extend)
    inner.add_edge(START, "extend")
    inner.add_edge("extend", "inner.review")
    add_quality_gate(
        inner, "inner.review", at_least(2), on_pass=END, on_fail="extend", on_escalate=END
    )
    graph = StateGraph(Draft)
    graph.add_node("inner", inner.compile())
    graph.add_edge(START, "inner")
    graph.add_edge("inner", "review")
    add_quality_gate(graph, "review", at_least(3), on_pass=END, on_fail="inner", on_escalate=END)

    state = await graph.compile().ainvoke({"draft": ""})

    assert state["gate_attempts"] == {"inner.review": 1, "review": 2}
    assert state["gate_results"]["inner.review"]["visit"] == 3
    assert state["draft"] == "xxx"


# Payloads.


def test_a_review_is_strict_json():
    # S3-37, S3-38
    payload = QualityGateReview(artifact={1: math.nan}, gate="g").to_payload()

    assert payload == {
        "type": "quality_gate",
        "artifact": {"$m": [[1, {"$f": "nan"}]]},
        "criteria": [],
        "auto_score": None,
        "reasons": [],
        "gate": "g",
    }


@dataclass
class Ask:
    type: str


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"type": "clarification"}, "clarification"),
        (Ask("permission"), "permission"),
        ({"type": "other"}, None),
        ({"type": ["quality_gate"]}, None),
        ({}, None),
        ("quality_gate", None),
        (None, None),
    ],
)
def test_the_type_of_an_interrupt_is_told_by_its_payload(payload, kind):
    # S3-38
    assert interrupt_type(payload) == kind
