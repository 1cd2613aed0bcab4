"""Quality gates in a LangGraph `StateGraph`: a node, and an edge with three ways out of it.

The node judges and writes the two channels of `GateState`; the edge goes by what it wrote. Counts
and verdicts are plain data, so every checkpointer keeps them, and a visit that a crash cut off is
made again and counted once. Run the graph with `ainvoke` or `astream`, for a gate is asynchronous.
Its events are on the stream mode `custom` as well.

A subgraph that shares the channels with its parent hands its gates' counts and verdicts up, and is
handed the parent's. So gates are named apart over a graph and its subgraphs: `plan.review` for the
gate `review` in the subgraph `plan`.
"""

from __future__ import annotations

import inspect
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from .checks import Check, CheckFunction
from .decision import Verdict
from .errors import ConfigError
from .gate import Gate, GateEvent, GateState, Reset, Sink, merge_by_gate
from .loop import Checks, stages_of

__all__ = ["GateState", "add_quality_gate", "compile_gated", "evaluate_with", "merge_by_gate"]

Graph = TypeVar("Graph", bound=Any)
Evaluator = CheckFunction[Any] | Sequence[CheckFunction[Any] | Sequence[CheckFunction[Any]]]
"""Judges the graph's state: an evaluator as of `Gate`, or checks of the state."""

_GATE: Final = "batchgate.gate"
"""Key of a gate in its node's metadata."""


def add_quality_gate(
    graph: Graph,
    name: str,
    evaluator: Evaluator,
    *,
    on_pass: str,
    on_fail: str,
    on_escalate: str,
    max_attempts: int = 3,
    reset: Reset = "pass",
    on_event: Sink | None = None,
) -> Graph:
    """Add a node that judges the state, and goes one of three ways.

    Args:
        graph: A `StateGraph` whose state derives from `GateState`.
        name: Names the node and its entries in the two channels.
        evaluator: Called with the state, which it only reads; or checks, see `evaluate_with`.
        on_pass: Node, or `END`, after a verdict that passed.
        on_fail: Node that does the work again, while attempts are left.
        on_escalate: Node, or `END`, when they are not: one that asks a person with `interrupt`,
            or parks and reports.
        max_attempts: As of `Gate`, as are the rest.
        reset: See `Gate`.
        on_event: See `Gate`. The events' thread is the graph's.

    Returns:
        The graph.

    Raises:
        ConfigError: The state lacks a channel of `GateState`, or has it with another reducer.
        TypeError: As `Gate`, or a target is no name.
        ValueError: As `Gate`, or LangGraph's own: the name is taken, or it may not be one.
    """
    # Here, since whoever has a graph has LangGraph, and importing it takes a second.
    from langgraph.config import get_config, get_stream_writer

    targets = {"pass": on_pass, "fail": on_fail, "escalate": on_escalate}
    for way, target in targets.items():
        if not isinstance(target, str):
            raise TypeError(f"on_{way} is a {type(target).__name__}, must be a node's name")
    _require_channels(graph)
    many = isinstance(evaluator, (list, tuple))
    judging: dict[str, Any] = {"checks" if many else "evaluator": evaluator}
    gate = Gate(name, **judging, max_attempts=max_attempts, reset=reset, on_event=on_event)
    gate.on_event = _streaming(on_event, get_stream_writer)

    async def visit(state: Any) -> GateState:
        config = get_config()
        # Absent when nobody set one: LangGraph 1.2 then takes 10007.
        if (limit := config.get("recursion_limit")) is not None:
            _require_steps(graph, gate, state, limit)
        thread = config["configurable"].get("thread_id", "")
        return (await gate.visit(state, state, thread=str(thread))).update()

    def route(state: Any) -> str:
        # Read after this node's own writes, and never after another gate's of the same step.
        results = state["gate_results"] if isinstance(state, Mapping) else state.gate_results
        return str(results[name]["route"])

    graph.add_node(name, visit, metadata={_GATE: max_attempts})
    graph.add_conditional_edges(name, route, targets)
    return graph


def evaluate_with(checks: Checks[Any], *, value: str = "artifact") -> list[list[Check[Any]]]:
    """Return checks of the state that judge one value in it, as they judge it elsewhere.

    Args:
        checks: Checks and stages, as for `accept`.
        value: Key of what they judge in the state.

    Raises:
        TypeError: A check cannot be called.
    """
    return [[_over(check, value) for check in stage] for stage in stages_of(checks)]


def compile_gated(graph: Any, *, recursion_limit: int, **options: Any) -> Any:
    """Compile a graph with a limit of steps in which each of its gates can come to its escalation.

    What `graph.compile(**options).with_config(recursion_limit=...)` gives, after a look at every
    gate: LangGraph ends a run at its limit with an error, however many attempts a gate has left.
    A gate looks once more when it is visited, since a call may bring a limit of its own.

    Args:
        graph: A `StateGraph`.
        recursion_limit: Steps of a run, at least 1; the run must end one step before.
        **options: As of `StateGraph.compile`.

    Returns:
        The compiled graph.

    Raises:
        ConfigError: The limit is too small for a gate; the message has the one it needs.
        ValueError: LangGraph's own: the graph is not whole, such as a target that is no node.
    """
    from langgraph.constants import START

    compiled = graph.compile(**options)
    for name, spec in graph.nodes.items():
        if (attempts := (spec.metadata or {}).get(_GATE)) is not None:
            before = _distance(_edges(graph), START, name) or 1
            needed = before - 1 + _steps_from(graph, name, attempts)
            _require_limit(name, attempts, needed, recursion_limit)
    return compiled.with_config(recursion_limit=recursion_limit)


def _over(check: Check[Any], key: str) -> Check[Any]:
    async def judged(state: Any) -> Verdict:
        return await check.judge(state[key] if isinstance(state, Mapping) else getattr(state, key))

    return replace(check, function=judged, thread=False, rejects=())


def _streaming(sink: Sink | None, writer_of_run: Callable[[], Callable[[Any], None]]) -> Sink:
    async def tell(event: GateEvent) -> None:
        writer_of_run()(event.to_dict())
        if sink is not None:
            said = sink(event)
            if inspect.isawaitable(said):
                await said

    return tell


def _require_channels(graph: Any) -> None:
    for name in GateState.__annotations__:
        channel = graph.channels.get(name)
        if getattr(channel, "operator", None) is not merge_by_gate:
            fault = "lacks" if channel is None else "has another reducer for"
            raise ConfigError(
                f"the state {graph.state_schema.__name__} {fault} the channel {name!r}; "
                "derive it from batchgate.langgraph.GateState"
            )


def _require_steps(graph: Any, gate: Gate, state: Any, limit: int) -> None:
    """Refuse a run whose limit cannot be enough, at its first visit: no attempt is lost then."""
    left = max(gate.max_attempts - gate.next_turn(state).attempt, 0) + 1
    _require_limit(gate.name, left, _steps_from(graph, gate.name, left), limit)


def _require_limit(name: str, attempts: int, needed: int, limit: int) -> None:
    if limit < needed:
        raise ConfigError(
            f"recursion_limit is {limit}, must be at least {needed} for the gate {name!r} "
            f"to come to its escalation in {attempts} attempt(s)"
        )


def _steps_from(graph: Any, name: str, attempts: int) -> int:
    """Return the least limit for a run that begins at a gate and ends after its escalation.

    By the shortest ways. What cannot be seen, such as the target of a `Command`, counts nothing.
    """
    from langgraph.constants import END

    edges = _edges(graph)
    ends = graph.branches[name]["route"].ends  # LangGraph names a branch by its function.
    back = 0 if ends["fail"] == name else _distance(edges, ends["fail"], name)
    loop = 0 if back is None else back + 1
    after = 0 if ends["escalate"] == END else _distance(edges, ends["escalate"], END) or 1
    # LangGraph 1.2 raises when a run has made as many steps as its limit, also if it is at its end.
    return 1 + (attempts - 1) * loop + after + 1


def _edges(graph: Any) -> Mapping[str, set[str]]:
    from langgraph.constants import END

    edges: dict[str, set[str]] = defaultdict(set)
    joined = {(start, end) for starts, end in graph.waiting_edges for start in starts}
    for start, end in graph.edges | joined:
        edges[start].add(end)
    for start, branches in graph.branches.items():
        for branch in branches.values():
            edges[start].update(branch.ends.values() if branch.ends else (*graph.nodes, END))
    for name, spec in graph.nodes.items():
        edges[name].update(spec.ends or ())
    return edges


def _distance(edges: Mapping[str, set[str]], start: str, goal: str) -> int | None:
    """Return the number of edges on the shortest way, or `None` if there is none."""
    seen, left = {start}, deque([(start, 0)])
    while left:
        node, steps = left.popleft()
        if node == goal:
            return steps
        for after in edges.get(node, set()) - seen:
            seen.add(after)
            left.append((after, steps + 1))
    return None
