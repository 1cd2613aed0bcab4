"""The gate: judges a value, counts the attempt, tells of it, and gives the way to go.

Judging is the loop's own, so a check means here what it means in `accept`. A failing value never
passes for want of attempts: it escalates. A failure of the evaluator propagates as it is, and its
attempt is not counted.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from contextlib import suppress
from typing import Any, Final, get_args

from ..accept_telemetry import CallTrace, Silent, start_call
from ..checks import Check, CheckFunction, as_check
from ..decision import MAX_SHOWN, Attempt, escalation_of
from ..loop import Checks, Stages, rulings_of, stages_of
from ..outcome import Outcome
from ..plain import shown
from .event import GateEvent, Phase, Sink
from .turn import (
    Decision,
    GateState,
    Reset,
    Route,
    Turn,
    next_turn,
    route_of,
)

MAX_NAME: Final = 200
"""Characters of a gate's name; it becomes a label."""
_PHASE_OF: Final[dict[Route, Phase]] = {
    "pass": "passed",
    "fail": "failed",
    "escalate": "escalated",
}
_log: Final = logging.getLogger(__name__)


class Gate:
    """A decision point: a name, what judges the value, and a budget of attempts.

    Make one for each run: the count belongs to it. Turns of one gate follow one another, also when
    several tasks await `decide`.

    Args:
        name: Names the gate in the state, events and telemetry; 1 to 200 characters.
        evaluator: Judges a value: a sync or async function that returns a `Verdict` or a bool, or
            raises `Rejected`. It only reads the value. `None` from it is an error, for an
            evaluator that forgot its answer must not pass; a `Check` here is a check as any.
        checks: Instead of an evaluator: checks and stages as for `accept`, at least one.
        max_attempts: Evaluations until a failing value escalates, at least 1.
        reset: A count always restarts at the first visit after a pass; with `decision` also after
            an escalation. Else each visit after an escalation has one evaluation, and escalates
            again if that fails.
        on_event: Awaited with each event, in order. A slow one slows the gate.
        state: State to go on with, as an earlier gate left it in `state`.
        thread: Names the run in events.

    Attributes:
        state: The count and the last decision of every gate in it, plain JSON.

    Raises:
        TypeError: An argument is of the wrong type, or it has not exactly one of `evaluator` and
            `checks`.
        ValueError: `max_attempts` is below 1, the name's length is out of range, or there is no
            check.
    """

    def __init__(
        self,
        name: str,
        evaluator: CheckFunction[Any] | None = None,
        *,
        checks: Checks[Any] | None = None,
        max_attempts: int = 3,
        reset: Reset = "pass",
        on_event: Sink | None = None,
        state: GateState | None = None,
        thread: str = "",
    ) -> None:
        _require_name(name)
        _require_budget(max_attempts)
        if reset not in get_args(Reset):
            raise ValueError(f"reset is {reset!r}, must be 'pass' or 'decision'")
        if not (on_event is None or callable(on_event)):
            raise TypeError(f"on_event is a {type(on_event).__name__}, must be a function")
        self.name = name
        self.stages = _stages(evaluator, checks)
        self.max_attempts = max_attempts
        self.reset: Reset = reset
        self.on_event = on_event
        self.state: GateState = {} if state is None else state
        self.thread = thread
        self._turns = asyncio.Lock()

    async def decide(self, value: Any) -> Decision:
        """Judge a value, and count it in `state`.

        Returns:
            The decision. `route` is `pass`, `fail` while attempts are left, else `escalate`.

        Raises:
            TypeError: The evaluator or a check answered nothing that is a verdict.
            Exception: Whatever else it raised. The attempt is not counted, and `started` is the
                last event.
        """
        async with self._turns:
            decision = await self.visit(value, self.state, thread=self.thread)
            self.state.setdefault("gate_attempts", {})[self.name] = decision.attempt
            self.state.setdefault("gate_results", {})[self.name] = decision.to_dict()
            return decision

    async def visit(self, value: Any, state: Any, *, thread: str = "") -> Decision:
        """Judge a value by a state that somebody else keeps, and change nothing.

        Args:
            value: What is judged.
            state: A `GateState`, or an object with its attributes.
            thread: Names the run in events.

        Returns:
            The decision; `Decision.update` is what it adds to the state.

        Raises:
            TypeError: As `decide`, or the state's count is no integer of at least 0.
            Exception: As `decide`.
        """
        turn = self.next_turn(state)
        if self.on_event is None:
            return await self._judged(value, turn)
        attempt, visit = turn
        await self._tell(GateEvent(self.name, "started", attempt, visit=visit, thread=thread))
        decision = await self._judged(value, turn)
        await self._tell(_end_of(decision, thread))
        return decision

    def next_turn(self, state: Any) -> Turn:
        """Read from a state which visit of this gate comes next.

        Raises:
            TypeError: The state's count is no integer of at least 0.
        """
        return next_turn(state, self.name, self.max_attempts, self.reset)

    async def _judged(self, value: Any, turn: Turn) -> Decision:
        trace = start_call(self.name, self.max_attempts)
        try:
            with trace.attempt(turn.attempt) as watch:
                rulings = await rulings_of(self.stages, value, watch)
                attempt: Attempt[Any] = Attempt.judged(turn.attempt, value, rulings)
                if not attempt.accepted:
                    watch.rejected(attempt)
        except BaseException as exc:
            trace.failed(exc)
            raise
        route = route_of(attempt.accepted, turn.attempt, self.max_attempts)
        _end(trace, route, attempt)
        return Decision(self.name, route, turn.visit, attempt)

    async def _tell(self, event: GateEvent) -> None:
        assert self.on_event is not None
        try:
            said = self.on_event(event)
            if inspect.isawaitable(said):
                await said
        except Exception as exc:  # noqa: BLE001 - a broken sink never changes a decision
            _log.warning(
                "gate %r: the event %r of visit %d is lost, for its sink raised %s",
                self.name,
                event.phase,
                event.visit,
                shown(exc, MAX_SHOWN),
            )


def _end_of(decision: Decision, thread: str) -> GateEvent:
    verdict = decision.verdict
    return GateEvent(
        decision.gate,
        _PHASE_OF[decision.route],
        decision.attempt,
        verdict.score,
        verdict.reasons,
        visit=decision.visit,
        thread=thread,
    )


def _end(trace: CallTrace | Silent, route: Route, attempt: Attempt[Any]) -> None:
    """End the turn's span as `accept` would: it has no disposition while attempts are left."""
    if not isinstance(trace, CallTrace):
        return
    if route == "pass":
        trace.ended(Outcome(attempt.value, "accepted", (attempt,)))
    elif route == "escalate":
        # Told as `accept` tells it, after so many attempts of which this is the last.
        escalation = escalation_of((attempt,) * attempt.index)
        trace.ended(Outcome(None, "not_accepted", (attempt,), escalation))
    else:
        with suppress(Exception):  # telemetry never changes a decision
            trace.span.end()


def _stages(evaluator: CheckFunction[Any] | None, checks: Checks[Any] | None) -> Stages[Any]:
    if (evaluator is None) == (checks is None):
        raise TypeError("a gate has an evaluator or checks: give exactly one of them")
    if evaluator is not None:
        return [[evaluator if isinstance(evaluator, Check) else _answering(evaluator)]]
    stages = stages_of(checks or ())
    if not any(stages):
        raise ValueError("a gate without checks would pass anything: give at least one")
    return stages


def _answering(evaluator: CheckFunction[Any]) -> Check[Any]:
    """Make a check that takes `None` for no answer."""
    asked = as_check(evaluator)

    @functools.wraps(evaluator)
    async def answered(value: Any) -> Any:
        answer = evaluator(value)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            raise TypeError(f"evaluator {asked.name!r} returned None, must be a Verdict or a bool")
        return answer

    return Check(asked.name, answered)


def _require_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name is a {type(name).__name__}, must be a text")
    if not 1 <= len(name) <= MAX_NAME:
        raise ValueError(f"name has {len(name)} characters, must have 1 to {MAX_NAME}")


def _require_budget(max_attempts: object) -> None:
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int):
        raise TypeError(f"max_attempts is a {type(max_attempts).__name__}, must be an int")
    if max_attempts < 1:
        raise ValueError(f"max_attempts is {max_attempts}, must be at least 1")
