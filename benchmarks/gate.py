"""What a visit to a gate costs: `python -m benchmarks.gate`.

Every contender judges a value by one trivial check, and it passes.

- `bare turn` is what one would write by hand: call the function, count in a dict, choose a way.
- `accept` is a call with one attempt, `gate` one `Gate.decide`, both without an OpenTelemetry SDK;
  `gate, file` writes its two events to a file of JSON lines as well.
- `graph by hand` is a run of a LangGraph graph whose only node judges and counts by hand, with a
  conditional edge after it; in `graph, gate` the node is a quality gate.

Costs are the process's CPU time. The contenders run in one process, in turn; each repetition gives
a cost of each and the ratios. Ratios are medians. The one bound in microseconds is held against the
fastest repetition, for the median of a shared machine tells of the neighbours as much as of the
code.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from langgraph.graph import END, START, StateGraph

from batchgate import accept
from batchgate.gate import Gate, GateState, JsonLines
from batchgate.langgraph import add_quality_gate

from .accept import TURN_S, Decide
from .accept import turn as timed
from .promises import Promise, ratio, repetitions, report

GATE, FILE, GRAPH = "gate", "gate, file", "graph, gate"


class Value(GateState):
    value: int


def positive(value: int) -> bool:
    return value > 0


def positive_value(state: Value) -> bool:
    return state["value"] > 0


def bare_turn() -> Decide:
    attempts: dict[str, int] = {}
    passed: dict[str, bool] = {}

    async def decide() -> str:
        number = 1 if passed.get("g") else attempts.get("g", 0) + 1
        attempts["g"], passed["g"] = number, positive(1)
        return "pass" if passed["g"] else "fail" if number < 3 else "escalate"

    return decide


def with_accept() -> Decide:
    async def decide() -> str:
        return (await accept(lambda previous: 1, checks=[positive], name="g")).disposition

    return decide


def with_gate(gate: Gate) -> Decide:
    async def decide() -> str:
        return (await gate.decide(1)).route

    return decide


def graph_by_hand() -> Decide:
    graph = StateGraph(Value)

    async def judge(state: Value) -> GateState:
        count = state.get("gate_attempts", {}).get("g", 0) + 1
        verdict = {"passed": positive_value(state)}
        return {"gate_attempts": {"g": count}, "gate_results": {"g": verdict}}

    def way(state: Value) -> str:
        if state["gate_results"]["g"]["passed"]:
            return "pass"
        return "fail" if state["gate_attempts"]["g"] < 3 else "escalate"

    graph.add_node("g", judge)
    graph.add_edge(START, "g")
    graph.add_conditional_edges("g", way, {"pass": END, "fail": END, "escalate": END})
    return run_of(graph)


def graph_with_gate() -> Decide:
    graph = StateGraph(Value)
    add_quality_gate(graph, "g", positive_value, on_pass=END, on_fail=END, on_escalate=END)
    graph.add_edge(START, "g")
    return run_of(graph)


def run_of(graph: Any) -> Decide:
    app = graph.compile()

    async def run() -> Any:
        return await app.ainvoke({"value": 1})

    return run


async def measure(repetitions: int, folder: Path) -> dict[str, list[float]]:
    """Return each contender's microseconds per turn, one number for each repetition."""
    contenders: dict[str, Decide] = {
        "bare turn": bare_turn(),
        "accept": with_accept(),
        GATE: with_gate(Gate("g", positive)),
        FILE: with_gate(Gate("g", positive, on_event=JsonLines(folder / "gates.jsonl"))),
        "graph by hand": graph_by_hand(),
        GRAPH: graph_with_gate(),
    }
    # `timed` gives the cost of one of two attempts.
    times = {
        name: max(2, int(TURN_S / (2 * await timed(decide, 10)) * 1e6))
        for name, decide in contenders.items()
    }
    costs: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, decide in contenders.items():
            costs[name].append(2 * await timed(decide, times[name]))
    return costs


def judged(costs: dict[str, list[float]]) -> int:
    promises = (
        Promise("gate, us per turn, fastest", min(costs[GATE]), 150),
        Promise("gate / accept", ratio(costs, GATE, "accept"), 3),
        Promise("gate, file / accept", ratio(costs, FILE, "accept"), 20),
        Promise("graph, gate / graph by hand", ratio(costs, GRAPH, "graph by hand"), 1.5),
    )
    return report(costs, "us per turn", promises)


def main() -> int:
    times = repetitions("benchmarks.gate", __doc__)
    with tempfile.TemporaryDirectory() as folder:
        return judged(asyncio.run(measure(times, Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
