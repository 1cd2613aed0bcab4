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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar, overload

from .accept_telemetry import start_call
from .checks import name_of
from .decision import Attempt, escalation_of
from .loop import (
    AcceptWhen,
    Checks,
    Fallback,
    Feedback,
    Producer,
    Request,
    Rules,
    decide,
    rulings_of,
    stages_of,
)
from .outcome import ATTEMPTS_ATTRIBUTE, NotAccepted, Outcome
from .record import Record, record_of

T = TypeVar("T")


@overload
async def accept(
    producer: Producer[T],
    *,
    checks: Checks[T] = ...,
    attempts: int = ...,
    fallback: Fallback[T] | None = ...,
    name: str | None = ...,
    history: Record | Iterable[Attempt[T]] = ...,
    feedback: Feedback[T] | None = ...,
    accept_when: AcceptWhen[T] | None = ...,
    record: bool = ...,
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
    history: Record | Iterable[Attempt[T]] = ...,
    feedback: Feedback[T] | None = ...,
    accept_when: AcceptWhen[T] | None = ...,
    record: bool = ...,
    escalate: bool,
) -> Outcome[T | None]: ...


async def accept(
    producer: Producer[T],
    *,
    checks: Checks[T] = (),
    attempts: int = 1,
    fallback: Fallback[T] | None = None,
    name: str | None = None,
    history: Record | Iterable[Attempt[T]] = (),
    feedback: Feedback[T] | None = None,
    accept_when: AcceptWhen[T] | None = None,
    record: bool = False,
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
        history: Earlier attempts, or the record that has them, shown to the producer before its
            own. They cost no budget. The values of a record are plain data.
        feedback: Words what the producer is told of a rejected attempt (`Attempt.feedback`);
            the reasons, by default.
        accept_when: Asked of an attempt that no check rejected, for instance to judge the scores of
            its soft checks together. It accepts with `True` and rejects as a check does; it cannot
            accept what a check rejected.
        record: Keep a record of the call, `Outcome.record`. Every value is then written as JSON
            before the checks and compared after each. One with more JSON than
            `batchgate.loop.MAX_VALUE` is rejected at the stage `record`.
        escalate: Return an outcome `not_accepted` with the value `None` instead of raising.

    Returns:
        The outcome, with every attempt of this call.

    Raises:
        NotAccepted: Every attempt was rejected, and there is no fallback.
        TypeError: An argument is of the wrong type, or a check answered nothing that is a verdict.
        ValueError: `attempts` is below 1, or `history` is a record that was changed.
        ConfigError: A check changed the value that is recorded.
        BaseException: Whatever else the producer, a check or the fallback raised.
    """
    history = history if isinstance(history, Record) else tuple(history)
    earlier = _attempts_in(history)
    rules = Rules(stages_of(checks), feedback, accept_when)
    kept: list[Any] | None = [] if record else None
    request = Request(producer, rules, attempts, fallback, earlier, kept)
    label = name_of(producer) if name is None else name
    if not isinstance(label, str):
        raise TypeError(f"name is a {type(label).__name__}, must be a text")
    made: list[Attempt[T]] = []
    trace = start_call(label, attempts)
    try:
        ending = await decide(request, made, trace)
        disposition, value = ending
        told = escalation_of(made) if disposition == "not_accepted" else None
        kept_as = record_of(request, made, ending, name=label, history=history) if record else None
        outcome: Outcome[Any] = Outcome(value, disposition, tuple(made), told, kept_as)
    except BaseException as exc:
        trace.failed(exc)
        _keep_attempts(exc, label, made)
        raise
    trace.ended(outcome)
    if disposition == "not_accepted" and not escalate:
        raise NotAccepted(label, outcome.attempts, outcome.escalation or "", outcome.record)
    return outcome


def accept_sync(
    producer: Producer[T],
    *,
    checks: Checks[T] = (),
    attempts: int = 1,
    fallback: Fallback[T] | None = None,
    name: str | None = None,
    history: Record | Iterable[Attempt[T]] = (),
    feedback: Feedback[T] | None = None,
    accept_when: AcceptWhen[T] | None = None,
    record: bool = False,
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
                accept_when=accept_when,
                record=record,
            )
        )
    raise RuntimeError("an event loop runs in this thread; await accept(...) in it")


async def judge(value: T, checks: Checks[T]) -> Attempt[T]:
    """Judge one value as an attempt of `accept` would, without telemetry.

    Raises:
        TypeError: As `accept`.
        Exception: Whatever else a check raised.
    """
    return Attempt.judged(1, value, await rulings_of(stages_of(checks), value))


def _attempts_in(history: Record | tuple[Attempt[T], ...]) -> tuple[Attempt[T], ...]:
    if not isinstance(history, Record):
        return history
    if not history.verify():
        raise ValueError(f"history is {history!r}, which was changed; do not go on from it")
    return history.attempts


def _keep_attempts(error: BaseException, name: str, made: Sequence[Attempt[Any]]) -> None:
    """Attach the attempts to a failure; `attempts_of` finds them."""
    note = f"accept {name!r}: {len(made)} attempt(s) were rejected before this"
    # An exception class may refuse attributes (a frozen dataclass does); the failure itself counts.
    with suppress(Exception):
        setattr(error, ATTEMPTS_ATTRIBUTE, tuple(made))
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
