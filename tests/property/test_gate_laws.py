"""Laws of gates, for any sequence of values and verdicts."""

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.graph import END, START, StateGraph

from batchgate import Fail, Verdict, accept
from batchgate.gate import Gate, GateState
from batchgate.langgraph import add_quality_gate, evaluate_with

values = st.lists(st.integers(0, 9), min_size=1, max_size=8)
budgets = st.integers(1, 8)
bounds = st.lists(st.integers(0, 9), min_size=1, max_size=3)
verdicts = st.builds(
    Verdict,
    st.booleans(),
    st.none() | st.floats(),
    st.lists(st.text(st.characters()), max_size=3),
    st.none() | st.text(),
)


def checks_of(bounds):
    """Make one check for each bound."""

    def made(bound):
        return lambda v: v >= bound or Fail(f"{v} is below {bound}", feedback=f"use {bound}")

    return [made(bound) for bound in bounds]


async def by_gate(values, checks, budget):
    gate = Gate("g", checks=checks, max_attempts=budget)
    made = []
    for value in values:
        made.append(await gate.decide(value))
        if made[-1].route != "fail":
            break
    return made


class Drawn(GateState):
    value: int
    told: list[str]


async def by_graph(values, checks, budget):
    left, told = iter(values), []

    async def propose(state):
        return {"value": next(left)}

    graph = StateGraph(Drawn)
    graph.add_node("propose", propose)
    graph.add_edge(START, "propose")
    graph.add_edge("propose", "g")
    add_quality_gate(
        graph,
        "g",
        evaluate_with(checks, value="value"),
        on_pass=END,
        on_fail="propose",
        on_escalate=END,
        max_attempts=budget,
        on_event=lambda event: told.append(event.reasons) if event.phase != "started" else None,
    )
    return await graph.compile().ainvoke({"told": []}), told


@given(values, bounds, budgets)
def test_a_gate_decides_as_accept_does(values, bounds, budget):
    # The fifth law of the contract.
    values = (values * budget)[:budget]
    left, checks = iter(values), checks_of(bounds)

    outcome = asyncio.run(
        accept(lambda previous: next(left), checks=checks, attempts=budget, escalate=True)
    )
    made = asyncio.run(by_gate(values, checks, budget))

    assert [d.judged for d in made] == list(outcome.attempts)
    assert [d.route for d in made[:-1]] == ["fail"] * (len(made) - 1)
    assert made[-1].route == ("pass" if outcome.accepted else "escalate")


@settings(max_examples=25)
@given(values, bounds, budgets)
def test_a_graphs_gate_decides_as_accept_does(values, bounds, budget):
    # The fifth law of the contract.
    values = (values * budget)[:budget]
    left, checks = iter(values), checks_of(bounds)

    outcome = asyncio.run(
        accept(lambda previous: next(left), checks=checks, attempts=budget, escalate=True)
    )
    state, told = asyncio.run(by_graph(values, checks, budget))

    assert told == [attempt.reasons for attempt in outcome.attempts]
    assert state["gate_attempts"]["g"] == len(outcome.attempts)
    assert state["gate_results"]["g"]["passed"] is outcome.accepted


@given(st.lists(verdicts, min_size=1, max_size=12), budgets, st.sampled_from(["pass", "decision"]))
def test_a_gate_goes_on_from_its_stored_state_as_if_nothing_had_been(verdicts, budget, reset):
    # S3-16, S3-41
    async def run(*, restarted):
        left, ways = iter(verdicts), []
        gate = Gate("g", lambda _: next(left), max_attempts=budget, reset=reset)
        for _ in verdicts:
            if restarted:
                gate.state = json.loads(json.dumps(gate.state, allow_nan=False))
            decision = await gate.decide(0)
            ways.append((decision.route, decision.attempt, decision.visit))
        return ways

    assert asyncio.run(run(restarted=True)) == asyncio.run(run(restarted=False))


@given(st.lists(st.booleans(), min_size=1, max_size=30), budgets)
def test_a_failing_value_never_passes_and_a_budget_is_never_exceeded_in_silence(passes, budget):
    # S3-12, S3-13, S3-18
    async def run():
        left = iter(passes)
        gate = Gate("g", lambda _: next(left), max_attempts=budget)
        return [await gate.decide(0) for _ in passes]

    decisions = asyncio.run(run())

    since_pass = 0
    for passed, decision in zip(passes, decisions, strict=True):
        since_pass += 1
        assert decision.attempt == since_pass
        assert decision.route == (
            "pass" if passed else "fail" if since_pass < budget else "escalate"
        )
        since_pass = 0 if passed else since_pass
