"""Ask a producer until a value passes every check: the acceptance primitive.

A rejection is not a failure. A check or the producer rejects with `Rejected`, a pydantic
`ValidationError`, or a check's `False`; the producer is then asked again, with every earlier
attempt and its reasons. Anything else that is raised is a failure: it propagates at once and as it
is, asks for nothing more, and `attempts_of(error)` has the attempts made so far. Out of attempts, a
fallback decides, or `NotAccepted` is raised. Nothing here retries, sleeps or waits: that is the
business of the producer's client and of the execution side.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, overload

from pydantic import ValidationError

from .accept_telemetry import SILENT, AttemptTrace, CallTrace, Silent, start_call
from .decision import (
    ATTEMPTS_ATTRIBUTE,
    Attempt,
    Check,
    CheckFunction,
    NotAccepted,
    Outcome,
    Rejected,
    Ruling,
    as_check,
    escalation_of,
    name_of,
    texts,
    verdict_of,
)

T = TypeVar("T")

Producer = Callable[[tuple[Attempt[T], ...]], T | Awaitable[T]]
"""Gives a value, knowing the attempts before it; sync or async."""
Checks = Iterable[CheckFunction[T] | Sequence[CheckFunction[T]]]
"""Checks in order; a list or tuple of checks in it is one stage."""
Fallback = Callable[[], T | Awaitable[T]]
"""Gives a value that is right by construction; sync or async."""
Feedback = Callable[[Attempt[T]], str | Sequence[str] | None]
"""Gives what the producer is told of a rejected attempt."""


@overload
async def accept(
    producer: Producer[T],
    *,
    checks: Checks[T] = ...,
    attempts: int = ...,
    fallback: Fallback[T] | None = ...,
    name: str | None = ...,
    history: Iterable[Attempt[T]] = ...,
    feedback: Feedback[T] | None = ...,
    escalate: Literal[False] = ...,
) -> Outcome[T]: ...


@overload
async def accept(
    producer: Producer[T],
    *,
    checks: Checks[T] = ...,
    attempts: int = ...,
    fallback: Fallback[T] | None = ...,
    name: str | None = ...,
    history: Iterable[Attempt[T]] = ...,
    feedback: Feedback[T] | None = ...,
    escalate: bool,
) -> Outcome[T | None]: ...


async def accept(
    producer: Producer[T],
    *,
    checks: Checks[T] = (),
    attempts: int = 1,
    fallback: Fallback[T] | None = None,
    name: str | None = None,
    history: Iterable[Attempt[T]] = (),
    feedback: Feedback[T] | None = None,
    escalate: bool = False,
) -> Outcome[T] | Outcome[T | None]:
    """Ask `producer` until a value passes all checks.

    Do not wrap it in a task that retries: the loops would multiply. A producer that returns an
    error as a value instead of raising it has that value judged like any other.

    Args:
        producer: Called with the attempts so far as a tuple, `()` at first.
        checks: Run in order, cheapest first; the first rejection ends the attempt. A nested list
            is a stage: all of its checks run, and all their reasons are told. A sync check runs in
            the event loop's thread, and holds it up while it runs; see `check(thread=True)`.
        attempts: Values to judge at most, at least 1.
        fallback: Called once when every attempt was rejected. Its value is not checked.
        name: Names the decision in telemetry and errors; the producer's own name by default.
        history: Earlier attempts, shown to the producer before its own. They cost no budget.
        feedback: Words what the producer is told of a rejected attempt (`Attempt.feedback`);
            the reasons, by default.
        escalate: Return an outcome `not_accepted` with the value `None` instead of raising.

    Returns:
        The outcome, with every attempt of this call.

    Raises:
        NotAccepted: Every attempt was rejected, and there is no fallback.
        TypeError: An argument is of the wrong type, or a check answered nothing that is a verdict.
        ValueError: `attempts` is below 1.
        BaseException: Whatever else the producer, a check or the fallback raised.
    """
    request = _Request(producer, _stages(checks), attempts, fallback, tuple(history), feedback)
    label = name_of(producer) if name is None else name
    if not isinstance(label, str):
        raise TypeError(f"name is a {type(label).__name__}, must be a text")
    made: list[Attempt[T]] = []
    trace = start_call(label, attempts)
    try:
        outcome = await _decide(request, made, trace)
    except BaseException as exc:
        trace.failed(exc)
        _keep_attempts(exc, label, made)
        raise
    trace.ended(outcome)
    if outcome.disposition == "not_accepted" and not escalate:
        raise NotAccepted(label, outcome.attempts, outcome.escalation or "")
    return outcome


def accept_sync(
    producer: Producer[T],
    *,
    checks: Checks[T] = (),
    attempts: int = 1,
    fallback: Fallback[T] | None = None,
    name: str | None = None,
    history: Iterable[Attempt[T]] = (),
    feedback: Feedback[T] | None = None,
) -> Outcome[T]:
    """Run `accept` in an event loop of its own, for scripts, without `escalate`.

    Raises:
        RuntimeError: A loop runs already in this thread: `await accept(...)` there.
        BaseException: As `accept`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(
            accept(
                producer,
                checks=checks,
                attempts=attempts,
                fallback=fallback,
                name=name,
                history=history,
                feedback=feedback,
            )
        )
    raise RuntimeError("an event loop runs in this thread; await accept(...) in it")


async def judge(value: T, checks: Checks[T]) -> Attempt[T]:
    """Judge one value as an attempt of `accept` would, without telemetry.

    Raises:
        TypeError: As `accept`.
        Exception: Whatever else a check raised.
    """
    return Attempt.judged(1, value, await _rulings(value, _stages(checks), SILENT))


Stages = list[list[Check[T]]]


@dataclass(slots=True)
class _Request(Generic[T]):
    """What `accept` was asked, checked and read once."""

    producer: Producer[T]
    stages: Stages[T]
    attempts: int
    fallback: Fallback[T] | None
    history: tuple[Attempt[T], ...]
    feedback: Feedback[T] | None

    def __post_init__(self) -> None:
        _require_budget(self.attempts)
        _require_function("producer", self.producer)
        if self.fallback is not None:
            _require_function("fallback", self.fallback)
        if self.feedback is not None:
            _require_function("feedback", self.feedback)
        for attempt in self.history:
            if not isinstance(attempt, Attempt):
                raise TypeError(f"history has a {type(attempt).__name__}, must be attempts")


async def _decide(
    request: _Request[T], made: list[Attempt[T]], trace: CallTrace | Silent
) -> Outcome[Any]:
    for index in range(1, request.attempts + 1):
        with trace.attempt(index) as watch:
            attempt = await _attempt(request, made, index, watch)
            made.append(attempt)
            if attempt.accepted:
                return Outcome(attempt.value, "accepted", tuple(made))
            if request.feedback is not None:
                made[-1] = attempt = replace(attempt, feedback=_worded(request.feedback, attempt))
            watch.rejected(attempt)
    if request.fallback is None:
        return Outcome(None, "not_accepted", tuple(made), escalation_of(made))
    with trace.fallback():
        return Outcome(await _from_fallback(request.fallback), "fallback", tuple(made))


async def _attempt(
    request: _Request[T], made: Sequence[Attempt[T]], index: int, watch: AttemptTrace | Silent
) -> Attempt[T]:
    try:
        value: Any = request.producer((*request.history, *made))
        if inspect.isawaitable(value):
            value = await value
    except (Rejected, ValidationError) as exc:
        # A producer's own rejection: nothing is left for the checks to see.
        stage, value = ("producer", exc.value) if isinstance(exc, Rejected) else ("schema", None)
        verdict = verdict_of(exc, by=stage)
        ruling = Ruling(verdict.check or stage, 0, True, verdict)
        watch.ruled(ruling, value)
        return Attempt.judged(index, value, (ruling,))
    return Attempt.judged(index, value, await _rulings(value, request.stages, watch))


async def _rulings(value: T, stages: Stages[T], watch: AttemptTrace | Silent) -> list[Ruling]:
    rulings: list[Ruling] = []
    rejected = False
    for number, checks in enumerate(stages, start=1):
        for check in checks:
            try:
                verdict = await check.judge(value)
            except Exception as exc:
                watch.check_failed(check.name, exc)
                raise
            ruling = Ruling(verdict.check or check.name, number, check.hard, verdict)
            rulings.append(ruling)
            watch.ruled(ruling, value)
            rejected = rejected or ruling.rejects
        if rejected:
            break
    return rulings


async def _from_fallback(fallback: Fallback[T]) -> T:
    # A coroutine of its own, as the attempt is, so that a StopIteration leaves it as an error.
    value = fallback()
    return await value if inspect.isawaitable(value) else value


def _stages(checks: Checks[T]) -> Stages[T]:
    stages: Stages[T] = []
    names: set[str] = set()
    count = 0
    for item in checks:
        if isinstance(item, (list, tuple)):
            stages.append([as_check(check) for check in item])
        else:
            # A sequence of another type is refused there, as it cannot be called.
            stages.append([as_check(item)])  # type: ignore[arg-type]
        for check in stages[-1]:
            names.add(check.name)
            count += 1
    return stages if len(names) == count else _told_apart(stages)


def _told_apart(stages: Stages[T]) -> Stages[T]:
    """Rename the second and later checks of one name, for the records: `name#2`."""
    names: set[str] = set()

    def renamed(check: Check[T]) -> Check[T]:
        name, number = check.name, 1
        while name in names:
            number += 1
            name = f"{check.name}#{number}"
        names.add(name)
        return replace(check, name=name)

    return [[renamed(check) for check in stage] for stage in stages]


def _worded(feedback: Feedback[T], attempt: Attempt[T]) -> tuple[str, ...]:
    said = feedback(attempt)
    if said is None:
        return ()
    if isinstance(said, str) or (
        isinstance(said, (list, tuple)) and all(isinstance(text, str) for text in said)
    ):
        return texts(said)
    raise TypeError(f"feedback gave a {type(said).__name__}, must be a text, several, or None")


def _keep_attempts(error: BaseException, name: str, made: Sequence[Attempt[Any]]) -> None:
    """Attach the attempts to a failure; `attempts_of` finds them."""
    note = f"accept {name!r}: {len(made)} attempt(s) were rejected before this"
    # An exception class may refuse attributes (a frozen dataclass does); the failure itself counts.
    with suppress(Exception):
        setattr(error, ATTEMPTS_ATTRIBUTE, tuple(made))
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _require_budget(attempts: object) -> None:
    if isinstance(attempts, bool) or not isinstance(attempts, int):
        raise TypeError(f"attempts is a {type(attempts).__name__}, must be an int")
    if attempts < 1:
        raise ValueError(f"attempts is {attempts}, must be at least 1")


def _require_function(role: str, function: object) -> None:
    if not callable(function):
        raise TypeError(f"{role} is a {type(function).__name__}, must be a function")
