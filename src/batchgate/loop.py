"""The loop of `accept`: what it is asked, its attempts one by one, and how it ends.

An attempt is judged here and nowhere else: `accept` asks for one after the other, `judge` for one,
and a record's replay for the values it holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from .accept_telemetry import SILENT, AttemptTrace, CallTrace, Silent
from .checks import Check, CheckFunction, as_check, verdict_of
from .decision import Attempt, Disposition, Rejected, Ruling, Verdict, texts
from .errors import ConfigError
from .plain import Opaque, plain, shown

T = TypeVar("T")

Producer = Callable[[tuple[Attempt[T], ...]], T | Awaitable[T]]
"""Gives a value, knowing the attempts before it; sync or async."""
Checks = Iterable[CheckFunction[T] | Sequence[CheckFunction[T]]]
"""Checks in order; a list or tuple of checks in it is one stage."""
Fallback = Callable[[], T | Awaitable[T]]
"""Gives a value that is right by construction; sync or async."""
Feedback = Callable[[Attempt[T]], str | Sequence[str] | None]
"""Gives what the producer is told of a rejected attempt."""
AcceptWhen = Callable[[Attempt[T]], bool | Verdict | Awaitable[bool | Verdict]]
"""Says whether an attempt that no check rejected is accepted; sync or async."""
Stages = list[list[Check[T]]]
"""Checks by stage, with names that tell them apart."""

MAX_VALUE: Final = 1024 * 1024
"""Bytes of a recorded value's JSON. A larger value is rejected: it is asked for anew."""


class Snapshot(NamedTuple):
    """What a value was at one moment.

    Attributes:
        data: The value as plain data (`batchgate.plain`), which shares nothing with it.
        json: The data as JSON, to compare.
    """

    data: Any
    json: bytes

    @classmethod
    def of(cls, value: object) -> Snapshot:
        """Take it."""
        data = plain(value)
        return cls(data, to_json(data))

    def is_of(self, value: object) -> bool:
        """Say whether the value is still what it was."""
        return to_json(plain(value)) == self.json


@dataclass(slots=True)
class Rules(Generic[T]):
    """What an attempt is judged by, and worded."""

    stages: Stages[T]
    feedback: Feedback[T] | None = None
    accept_when: AcceptWhen[T] | None = None

    def __post_init__(self) -> None:
        _require_function("feedback", self.feedback, optional=True)
        _require_function("accept_when", self.accept_when, optional=True)


@dataclass(slots=True)
class Request(Generic[T]):
    """What `accept` was asked, checked and read once.

    Attributes:
        kept: Where each attempt's value is put as plain data, before a check sees it. `None` when
            the call keeps no record: then values are never copied.
    """

    producer: Producer[T]
    rules: Rules[T]
    attempts: int
    fallback: Fallback[T] | None
    history: tuple[Attempt[T], ...]
    kept: list[Any] | None

    def __post_init__(self) -> None:
        _require_budget(self.attempts)
        _require_function("producer", self.producer)
        _require_function("fallback", self.fallback, optional=True)
        for attempt in self.history:
            if not isinstance(attempt, Attempt):
                raise TypeError(f"history has a {type(attempt).__name__}, must be attempts")


class Ending(NamedTuple):
    """How a call ended, and with which value; `None` when nothing was accepted."""

    disposition: Disposition
    value: Any


async def decide(request: Request[T], made: list[Attempt[T]], trace: CallTrace | Silent) -> Ending:
    """Ask for attempts until one is accepted, or there are no more.

    Args:
        request: What is asked.
        made: Where the attempts are put as they are made, so that a failure does not lose them.
        trace: The span of the call.
    """
    for index in range(1, request.attempts + 1):
        with trace.attempt(index) as watch:
            attempt = await _attempt(request, made, index, watch)
            made.append(attempt)
            if attempt.accepted:
                return Ending("accepted", attempt.value)
            made[-1] = attempt = worded(request.rules, attempt)
            watch.rejected(attempt)
    if request.fallback is None:
        return Ending("not_accepted", None)
    with trace.fallback():
        return Ending("fallback", await _from_fallback(request.fallback))


async def _attempt(
    request: Request[T], made: Sequence[Attempt[T]], index: int, watch: AttemptTrace | Silent
) -> Attempt[T]:
    snapshot = None
    try:
        value: Any = request.producer((*request.history, *made))
        if inspect.isawaitable(value):
            value = await value
        if request.kept is not None:
            snapshot = _small_snapshot(value)
            request.kept.append(snapshot.data)
    except (Rejected, ValidationError) as exc:
        # A producer's own rejection: nothing is left for the checks to see.
        stage, value = ("producer", exc.value) if isinstance(exc, Rejected) else ("schema", None)
        verdict = verdict_of(exc, by=stage)
        ruling = Ruling(verdict.check or stage, 0, True, verdict)
        watch.ruled(ruling, value)
        if request.kept is not None:
            request.kept.append(data_of(value))
        return Attempt.judged(index, value, (ruling,))
    return await judged(request.rules, index, value, watch=watch, snapshot=snapshot)


async def judged(
    rules: Rules[T],
    index: int,
    value: T,
    *,
    watch: AttemptTrace | Silent = SILENT,
    snapshot: Snapshot | None = None,
) -> Attempt[T]:
    """Judge a value by the checks, and then by `accept_when`.

    Args:
        rules: Name both.
        index: Number of the attempt.
        value: What is judged.
        watch: The span of the attempt.
        snapshot: That of the value. Where it is given, a check may not change the value.

    Raises:
        ConfigError: A check changed the value.
        Exception: Whatever else a check raised.
    """
    rulings = await rulings_of(rules.stages, value, watch, snapshot)
    attempt: Attempt[T] = Attempt.judged(index, value, rulings)
    if rules.accept_when is None or not attempt.accepted:
        return attempt
    last: Stages[T] = [[_final(rules.accept_when, attempt)]]
    rulings += await rulings_of(last, value, watch, snapshot, first=len(rules.stages) + 1)
    return Attempt.judged(index, value, rulings)


async def rulings_of(
    stages: Stages[T],
    value: T,
    watch: AttemptTrace | Silent = SILENT,
    snapshot: Snapshot | None = None,
    *,
    first: int = 1,
) -> list[Ruling]:
    """Run stage after stage until one rejects; return what each check said.

    Args:
        stages: What is run.
        value: What is judged.
        watch: See `judged`, as for the rest.
        snapshot: That of the value.
        first: Number of the first stage.
    """
    rulings: list[Ruling] = []
    rejected = False
    for number, checks in enumerate(stages, start=first):
        for check in checks:
            try:
                verdict = await check.judge(value)
                if snapshot is not None and not snapshot.is_of(value):
                    raise ConfigError(
                        f"check {check.name!r} changed the value it judges, which nobody proposed "
                        "then; let it work on a copy"
                    )
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


def worded(rules: Rules[T], attempt: Attempt[T]) -> Attempt[T]:
    """Return a rejected attempt with what the rules' `feedback` tells the producer of it.

    Raises:
        TypeError: It gave something else than a text, a list or tuple of texts, or `None`.
    """
    if rules.feedback is None or attempt.accepted:
        return attempt
    said = rules.feedback(attempt)
    if said is None:
        return replace(attempt, feedback=())
    if isinstance(said, str) or (
        isinstance(said, (list, tuple)) and all(isinstance(text, str) for text in said)
    ):
        return replace(attempt, feedback=texts(said))
    raise TypeError(f"feedback gave a {type(said).__name__}, must be a text, several, or None")


def stages_of(checks: Checks[T]) -> Stages[T]:
    """Read the checks, once.

    Raises:
        TypeError: One of them is no function.
    """
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


def data_of(value: object) -> Any:
    """Return a value as a record has it; one larger than `MAX_VALUE` as its short `repr`."""
    data, json = Snapshot.of(value)
    return data if len(json) <= MAX_VALUE else plain(Opaque(shown(value)))


def _small_snapshot(value: object) -> Snapshot:
    # A rejection, no failure: a model that raves must not end an unattended campaign.
    snapshot = Snapshot.of(value)
    if (size := len(snapshot.json)) > MAX_VALUE:
        reason = f"the value has {size} bytes as JSON, must have at most {MAX_VALUE}"
        raise Rejected(reason, check="record", value=value)
    return snapshot


def _final(accept_when: AcceptWhen[T], attempt: Attempt[T]) -> Check[T]:
    """Make a check of `accept_when`, which looks at the attempt instead of the value."""

    async def said(_: T) -> bool | Verdict:
        answer = accept_when(attempt)
        answer = await answer if inspect.isawaitable(answer) else answer
        if answer is None:
            # A check that returns nothing passes; a predicate that does so has been forgotten.
            raise TypeError("accept_when returned None, must return True or False")
        return answer

    return Check("accept_when", said)


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


async def _from_fallback(fallback: Fallback[T]) -> T:
    # A coroutine of its own, as the attempt is, so that a StopIteration leaves it as an error.
    value = fallback()
    return await value if inspect.isawaitable(value) else value


def _require_budget(attempts: object) -> None:
    if isinstance(attempts, bool) or not isinstance(attempts, int):
        raise TypeError(f"attempts is a {type(attempts).__name__}, must be an int")
    if attempts < 1:
        raise ValueError(f"attempts is {attempts}, must be at least 1")


def _require_function(role: str, function: object, *, optional: bool = False) -> None:
    if not (callable(function) or (optional and function is None)):
        raise TypeError(f"{role} is a {type(function).__name__}, must be a function")
