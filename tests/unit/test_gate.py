"""One gate: what it takes for a verdict, which way it goes, what it counts, whom it tells."""

import asyncio
import json
import logging
import math
from unittest.mock import patch

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pydantic import BaseModel

from batchgate import Check, Fail, Rejected, Verdict, check
from batchgate.gate import Decision, Gate, GateEvent, GateState


def at_least_3(value):
    """The value must be at least 3."""
    return value >= 3


class Walls(BaseModel):
    walltime_s: int


def scripted(*verdicts):
    """Make an evaluator that gives these verdicts in turn."""
    left = iter(verdicts)
    return lambda value: next(left)


def divides(number):
    return lambda value: value % number == 0


async def routes(gate, times):
    return [(d.route, d.attempt) for d in [await gate.decide(0) for _ in range(times)]]


async def test_a_verdict_that_passed_leads_on():
    # S3-1, S3-12
    decision = await Gate("review", at_least_3).decide(3)

    assert (decision.route, decision.attempt, decision.visit) == ("pass", 1, 1)
    assert decision.verdict == Verdict(True)
    assert decision.feedback == ()


async def test_each_visit_takes_one_of_three_ways_and_the_budget_counts_evaluations():
    # S3-12, S3-13, S3-14
    gate = Gate("review", at_least_3, max_attempts=3)

    assert await routes(gate, 3) == [("fail", 1), ("fail", 2), ("escalate", 3)]


async def test_with_one_attempt_the_first_failure_escalates():
    # S3-14
    assert await routes(Gate("review", at_least_3, max_attempts=1), 1) == [("escalate", 1)]


async def test_the_evaluator_runs_once_in_a_visit():
    # S3-14
    asked: list[int] = []

    def evaluate(value):
        asked.append(value)
        return True

    await Gate("review", evaluate).decide(7)

    assert asked == [7]


async def test_a_count_is_kept_after_a_pass_and_restarts_at_the_next_visit():
    # S3-18, C-16, I-18
    gate = Gate("review", scripted(False, False, True, False, False, False), max_attempts=3)

    before = await routes(gate, 3)
    kept = gate.state["gate_attempts"]["review"]
    after = await routes(gate, 3)

    assert before == [("fail", 1), ("fail", 2), ("pass", 3)]
    assert kept == 3
    assert after == [("fail", 1), ("fail", 2), ("escalate", 3)]


async def test_after_an_escalation_a_failure_escalates_at_once_and_a_pass_goes_on():
    # C-16, I-18
    gate = Gate("review", scripted(False, False, False, True, False), max_attempts=2)

    assert await routes(gate, 5) == [
        ("fail", 1),
        ("escalate", 2),
        ("escalate", 3),
        ("pass", 4),
        ("fail", 1),
    ]


async def test_a_count_restarts_after_an_escalation_when_told_so():
    # C-16
    gate = Gate("review", at_least_3, max_attempts=2, reset="decision")

    assert await routes(gate, 4) == [("fail", 1), ("escalate", 2), ("fail", 1), ("escalate", 2)]


async def test_a_count_that_the_caller_sets_is_gone_on_from():
    # S3-19
    gate = Gate("review", at_least_3, state={"gate_attempts": {"review": 2}})

    assert await routes(gate, 1) == [("escalate", 3)]


async def test_a_count_that_the_caller_sets_after_a_pass_is_gone_on_from():
    # S3-19
    gate = Gate("review", scripted(True, False), max_attempts=3)
    await gate.decide(0)

    gate.state["gate_attempts"]["review"] = 2

    assert await routes(gate, 1) == [("escalate", 3)]


@pytest.mark.parametrize("count", [-1, 1.5, True, "2"])
async def test_a_count_that_is_none_is_refused(count):
    gate = Gate("review", at_least_3, state={"gate_attempts": {"review": count}})

    with pytest.raises(TypeError, match=r"gate_attempts\['review'\] is .*, must be an int of at"):
        await gate.decide(3)


async def test_any_number_of_gates_share_a_state_and_lose_no_verdict():
    # S3-15, S3-21, C-17, I-17
    state: GateState = {}
    gates = [Gate(f"g{n}", divides(n + 2), state=state) for n in range(20)]

    decisions = await asyncio.gather(*(gate.decide(6) for gate in gates))

    assert {name: r["passed"] for name, r in state["gate_results"].items()} == {
        f"g{n}": 6 % (n + 2) == 0 for n in range(20)
    }
    assert state["gate_attempts"] == dict.fromkeys((f"g{n}" for n in range(20)), 1)
    assert [d.route for d in decisions[:3]] == ["pass", "pass", "fail"]


async def test_a_run_goes_on_from_the_stored_state():
    # S3-16, S3-41, C-12
    first = Gate("review", at_least_3, max_attempts=3)
    await first.decide(0)
    await first.decide(0)

    second = Gate("review", at_least_3, max_attempts=3, state=json.loads(json.dumps(first.state)))
    decision = await second.decide(0)

    assert (decision.route, decision.attempt, decision.visit) == ("escalate", 3, 3)


async def test_the_stored_verdict_is_strict_json():
    # S3-3, S3-16, S3-31, I-22
    gate = Gate(
        "review",
        lambda value: Verdict(
            False, math.nan, ["too \ud800 short"], "add", measured={"energy_ev": math.inf, "x": 1}
        ),
    )

    decision = await gate.decide("draft")

    stored = gate.state["gate_results"]["review"]
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert stored == {
        "passed": False,
        "score": None,
        "reasons": ["too \\ud800 short"],
        "feedback": "add",
        "measured": {"x": 1.0},
        "route": "fail",
        "attempt": 1,
        "visit": 1,
    }
    assert decision.verdict.to_dict()["reasons"] == ["too \ud800 short"]


def test_a_verdict_without_more_has_the_four_fields():
    # S3-2, S3-3
    assert Verdict(True, 0.5).to_dict() == {
        "passed": True,
        "score": 0.5,
        "reasons": [],
        "feedback": None,
    }


@pytest.mark.parametrize(
    "wrong", [{"passed": "yes"}, {"passed": True, "score": "hi"}, {"passed": True, "feedback": 7}]
)
def test_a_verdict_of_the_wrong_types_is_refused(wrong):
    # S3-2
    with pytest.raises(TypeError):
        Verdict(**wrong)


async def answers_async(value):
    return Verdict(value > 0)


async def answers_bool(value):
    return value > 0


def raises(value):
    if value <= 0:
        raise Rejected("value is below 1")
    return True


@pytest.mark.parametrize(
    "evaluator", [lambda value: Verdict(value > 0), answers_async, answers_bool, raises]
)
async def test_an_evaluator_may_be_sync_or_async_and_answer_or_raise(evaluator):
    # S3-4, S3-5, C-6
    gate = Gate("review", evaluator)

    assert [(await gate.decide(value)).route for value in (1, 0)] == ["pass", "fail"]


@pytest.mark.parametrize("answer", [None, 1, "pass", [True]])
async def test_an_answer_that_is_no_verdict_is_an_error_and_no_pass(answer):
    # S3-5, I-14
    gate = Gate("review", lambda value: answer)

    with pytest.raises(TypeError, match="returned"):
        await gate.decide(1)
    assert gate.state == {}


async def test_a_check_as_an_evaluator_may_answer_nothing():
    # S3-5
    assert (await Gate("review", check(lambda value: None)).decide(1)).route == "pass"


async def test_the_reason_of_a_bare_false_is_the_first_line_of_the_docstring():
    # C-7
    decision = await Gate("review", at_least_3).decide(0)

    assert decision.verdict.reasons == ("The value must be at least 3.",)


async def test_one_text_is_one_reason():
    # S3-6, C-26
    decision = await Gate("review", lambda value: Verdict(False, reasons="too short")).decide("")

    assert decision.verdict.reasons == ("too short",)


async def test_a_validation_error_is_a_rejection():
    # C-6, C-24
    decision = await Gate("review", lambda text: bool(Walls.model_validate_json(text))).decide("{}")

    assert decision.verdict.reasons == ("walltime_s: Field required",)


async def test_feedback_is_the_verdicts_own_or_else_its_reasons():
    # S3-47, C-9
    gate = Gate(
        "review", scripted(Fail("score 0.3 of 0.8", feedback="add a figure"), Fail("too short"))
    )

    decisions = [await gate.decide("draft"), await gate.decide("draft")]

    assert [d.feedback for d in decisions] == [("add a figure",), ("too short",)]
    assert decisions[0].verdict.reasons == ("score 0.3 of 0.8",)


async def test_checks_judge_as_they_do_in_accept():
    # S3-4, C-3
    gate = Gate(
        "review",
        checks=[
            [lambda v: v["nodes"] <= 8 or Fail("nodes is 9, must be at most 8", score=0.9),
             lambda v: v["hours"] <= 4 or Fail("hours is 5, must be at most 4", feedback="ask for 4")],
            lambda v: pytest.fail("a stage after a rejection"),
        ],
    )  # fmt: skip

    decision = await gate.decide({"nodes": 9, "hours": 5})

    assert decision.verdict.reasons == (
        "nodes is 9, must be at most 8",
        "hours is 5, must be at most 4",
    )
    assert decision.verdict.feedback == "nodes is 9, must be at most 8\nask for 4"
    assert decision.verdict.score == 0.9
    assert [ruling.check for ruling in decision.judged.rejections] == ["lambda", "lambda#2"]


async def test_a_soft_check_is_recorded_and_never_gates():
    # C-11
    soft: Check[int] = check(name="novelty", hard=False)(lambda v: Fail("seen before", score=0.2))

    decision = await Gate("review", checks=[soft]).decide(1)

    assert decision.route == "pass"
    assert decision.verdict == Verdict(True, 0.2)
    assert [(r.check, r.verdict.passed) for r in decision.judged.rulings] == [("novelty", False)]


async def test_scores_of_several_checks_are_not_mixed():
    checks = [lambda v: Verdict(True, 0.5), lambda v: Verdict(True, -3)]

    assert (await Gate("review", checks=checks).decide(1)).verdict.score is None


async def test_a_failed_evaluator_propagates_as_it_is_and_is_not_counted():
    # S3-24, S3-41, C-1
    error = RuntimeError("no disk")
    seen: list[GateEvent] = []
    deeds = iter([False, error, False])

    def evaluate(value):
        deed = next(deeds)
        if isinstance(deed, Exception):
            raise deed
        return deed

    gate = Gate("review", evaluate, on_event=seen.append)
    await gate.decide(0)
    with pytest.raises(RuntimeError) as raised:
        await gate.decide(0)

    assert raised.value is error
    assert gate.state["gate_attempts"] == {"review": 1}
    assert [(e.phase, e.attempt) for e in seen] == [("started", 1), ("failed", 1), ("started", 2)]
    assert await routes(gate, 1) == [("fail", 2)]


async def test_a_cancelled_evaluator_is_not_counted_and_ends_nothing():
    # S3-36
    seen: list[GateEvent] = []
    begun = asyncio.Event()

    async def evaluate(value):
        begun.set()
        await asyncio.Event().wait()

    gate = Gate("review", evaluate, on_event=seen.append)
    turn = asyncio.create_task(gate.decide(0))
    await begun.wait()
    turn.cancel()

    with pytest.raises(asyncio.CancelledError):
        await turn
    assert [e.phase for e in seen] == ["started"]
    assert gate.state == {}


async def test_turns_of_one_gate_follow_one_another():
    inside = 0

    async def evaluate(value):
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0)
        inside -= 1
        return False

    gate = Gate("review", evaluate, max_attempts=3)
    decisions = await asyncio.gather(*(gate.decide(n) for n in range(3)))

    assert sorted(d.attempt for d in decisions) == [1, 2, 3]
    assert gate.state["gate_attempts"] == {"review": 3}


async def test_fifty_runs_at_once_are_independent():
    # S3-23, S0-90
    async def evaluate(value):
        await asyncio.sleep(0)
        return value == 2

    async def run():
        gate = Gate("review", evaluate, max_attempts=5)
        return [(await gate.decide(n)).route for n in range(3)]

    assert await asyncio.gather(*(run() for _ in range(50))) == [["fail", "fail", "pass"]] * 50


async def test_events_are_told_in_order_and_awaited():
    # S3-26, S3-27, S3-32, C-18, I-21
    seen: list[GateEvent] = []

    async def slow(event):
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append(event)

    gate = Gate(
        "review",
        scripted(Fail("short", score=0.5), Verdict(True, 0.9), Fail("long", "dull")),
        max_attempts=1,
        on_event=slow,
        thread="t1",
    )
    for _ in range(3):
        await gate.decide(0)

    assert seen == [
        GateEvent("review", "started", 1, visit=1, thread="t1"),
        GateEvent("review", "escalated", 1, 0.5, ("short",), visit=1, thread="t1"),
        GateEvent("review", "started", 2, visit=2, thread="t1"),
        GateEvent("review", "passed", 2, 0.9, visit=2, thread="t1"),
        GateEvent("review", "started", 1, visit=3, thread="t1"),
        GateEvent("review", "escalated", 1, None, ("long", "dull"), visit=3, thread="t1"),
    ]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_sink_that_raises_is_logged_and_changes_nothing(caplog, is_async):
    # S3-33, C-18
    async def fails_later(event):
        raise OSError("disk full")

    def fails(event):
        raise OSError("disk full")

    gate = Gate("review", at_least_3, on_event=fails_later if is_async else fails)
    with caplog.at_level(logging.WARNING, logger="batchgate.gate"):
        decision = await gate.decide(3)

    assert decision.route == "pass"
    assert [record.getMessage() for record in caplog.records] == [
        f"gate 'review': the event {phase!r} of visit 1 is lost, for its sink raised "
        "OSError('disk full')"
        for phase in ("started", "passed")
    ]


async def test_a_cancelled_sink_is_no_lost_event():
    started = asyncio.Event()

    async def stuck(event):
        started.set()
        await asyncio.Event().wait()

    turn = asyncio.create_task(Gate("review", at_least_3, on_event=stuck).decide(3))
    await started.wait()
    turn.cancel()

    with pytest.raises(asyncio.CancelledError):
        await turn


@pytest.mark.parametrize("max_attempts", [1.5, True, math.inf, math.nan, "3", None])
def test_a_budget_that_is_no_integer_is_refused(max_attempts):
    # S3-9
    with pytest.raises(TypeError, match=r"max_attempts is a .*, must be an int"):
        Gate("review", at_least_3, max_attempts=max_attempts)


@pytest.mark.parametrize("max_attempts", [0, -1])
def test_a_budget_below_1_is_refused(max_attempts):
    # S3-9
    with pytest.raises(ValueError, match=f"max_attempts is {max_attempts}, must be at least 1"):
        Gate("review", at_least_3, max_attempts=max_attempts)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "give exactly one"),
        ({"evaluator": at_least_3, "checks": [at_least_3]}, "give exactly one"),
        ({"evaluator": 3}, "must be a function"),
        ({"checks": ["x"]}, "must be a function"),
        ({"evaluator": at_least_3, "name": 3}, "name is a int, must be a text"),
        ({"evaluator": at_least_3, "on_event": "log"}, "on_event is a str, must be a function"),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        Gate(**{"name": "review", **wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"checks": []}, "give at least one"),
        ({"checks": [[]]}, "give at least one"),
        ({"evaluator": at_least_3, "name": ""}, "name has 0 characters, must have 1 to 200"),
        ({"evaluator": at_least_3, "name": "x" * 201}, "name has 201 characters"),
        ({"evaluator": at_least_3, "reset": "never"}, "reset is 'never', must be 'pass' or"),
    ],
)
def test_an_argument_out_of_range_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Gate(**{"name": "review", **wrong})


@pytest.fixture
def telemetry():
    """Return the spans and the events that an SDK sees."""
    spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
    with (
        patch("opentelemetry.trace._TRACER_PROVIDER", tracers),
        patch("opentelemetry._logs._internal._LOGGER_PROVIDER", loggers),
    ):
        yield spans, events


async def test_a_gate_emits_the_evaluation_events_of_accept(telemetry):
    # S3-34, S0-77, S0-78
    spans, events = telemetry
    gate = Gate("review", checks=[lambda v: Verdict(True, 0.5), at_least_3], max_attempts=2)

    await gate.decide(0)

    (attempt,) = [s for s in spans.get_finished_spans() if s.name == "accept.attempt review"]
    records = [entry.log_record for entry in events.get_finished_logs()]
    assert [(r.event_name, dict(r.attributes)) for r in records] == [
        (
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": "lambda",
                "gen_ai.evaluation.score.label": "pass",
                "gen_ai.evaluation.score.value": 0.5,
            },
        ),
        (
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": "at_least_3",
                "gen_ai.evaluation.score.label": "fail",
                "gen_ai.evaluation.explanation": "The value must be at least 3.",
            },
        ),
    ]
    assert {r.span_id for r in records} == {attempt.context.span_id}


async def test_the_spans_of_a_turn_say_the_attempt_and_only_an_escalation_is_an_error(telemetry):
    # S3-34, C-15, S0-68
    spans, _ = telemetry
    gate = Gate("review", scripted(False, False, True), max_attempts=2)

    for _ in range(3):
        await gate.decide(0)

    found = spans.get_finished_spans()
    calls = [s for s in found if s.name == "accept review"]
    turns = [s for s in found if s.name == "accept.attempt review"]
    assert [s.attributes["flowgentic.accept.attempt"] for s in turns] == [1, 2, 3]
    assert [s.parent.span_id for s in turns] == [s.context.span_id for s in calls]
    assert [s.attributes.get("flowgentic.accept.disposition") for s in calls] == [
        None,
        "not_accepted",
        "accepted",
    ]
    unset, error = StatusCode.UNSET, StatusCode.ERROR
    assert [s.status.status_code for s in calls] == [unset, error, unset]
    assert {s.status.status_code for s in turns} == {unset}
    assert calls[1].status.description == "not accepted after 2 attempt(s): lambda is false"


async def test_a_failed_evaluator_is_told_in_telemetry(telemetry):
    # S0-70, S0-87
    spans, events = telemetry

    with pytest.raises(ZeroDivisionError):
        await Gate("review", lambda value: 1 / value > 0).decide(0)

    assert [s.status.status_code for s in spans.get_finished_spans()] == [StatusCode.ERROR] * 2
    (record,) = [entry.log_record for entry in events.get_finished_logs()]
    assert dict(record.attributes) == {
        "gen_ai.evaluation.name": "lambda",
        "error.type": "ZeroDivisionError",
    }


async def test_a_decision_is_shown_short():
    decision = await Gate("review", at_least_3).decide(10**1000)

    assert isinstance(decision, Decision)
    assert len(repr(decision)) < 400
