"""The words of one decision: check, verdict, ruling, attempt, outcome.

Data, and the one place that says what a check's answer means (`Check.judge`). Nothing here does
I/O or reads a clock, and a check cannot pass by answering something odd.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, overload

from pydantic import ValidationError

from .plain import shown

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

MAX_TEXT: Final = 500
"""Characters kept of a text that we put together from foreign ones; a check's reason is kept whole."""
MAX_SHOWN: Final = 200
"""Characters of a value in a `repr`."""
MAX_ERRORS: Final = 20
"""Errors told of one failed validation; the rest is counted."""


ATTEMPTS_ATTRIBUTE: Final = "__accept_attempts__"
"""Where an error keeps its attempts: builtin exceptions cannot be weakly referenced."""


def texts(said: object) -> tuple[str, ...]:
    """Return one or several texts as a flat tuple; blank ones are dropped."""
    if isinstance(said, str):
        return (said,) if said and not said.isspace() else ()
    if isinstance(said, (list, tuple)):
        return tuple([text for item in said for text in texts(item)])
    return texts(str(said))


def cut(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text of at most `limit` characters, and show where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _as_bool(answer: object) -> bool | None:
    if isinstance(answer, bool):
        return answer
    # numpy's own bool, which a comparison of arrays gives: no subclass, and numpy is no dependency.
    kind = type(answer)
    if kind.__module__ == "numpy" and kind.__name__ in {"bool", "bool_"}:
        return bool(answer)
    return None


def _finite(name: str, number: float) -> float | None:
    # Numbers of numpy are no Numbers in Python's sense; texts that float() would read are none.
    if not hasattr(number, "__float__"):
        raise TypeError(f"{name} is {_kind(number)}, must be a number")
    try:
        value = float(number)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _finite_only(measured: Mapping[str, float]) -> dict[str, float]:
    found = {str(name): _finite(str(name), number) for name, number in dict(measured).items()}
    return {name: number for name, number in found.items() if number is not None}


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True, init=False)
class Verdict:  # noqa: PLW1641 - the dataclass makes the hash, of the fields
    """What a check says of a value. False when it did not pass.

    Attributes:
        passed: Whether the value may go on.
        score: How good it is, in the check's own unit; `None` when not given or not finite.
        reasons: Why not, as sentences the producer can act on. Never private: they are recorded
            in telemetry and shown to the model.
        feedback: What to tell the producer instead of the reasons.
        measured: What the check measured, by name with its unit (`energy_ev`). Finite numbers:
            others are left out.
        check: Name of the part of a composite check that decided; `None` for the check itself.
    """

    passed: bool
    score: float | None
    reasons: tuple[str, ...]
    feedback: str | None
    measured: Mapping[str, float] = field(hash=False)
    check: str | None

    def __init__(
        self,
        passed: bool,
        score: float | None = None,
        reasons: str | Iterable[object] = (),
        feedback: str | None = None,
        *,
        measured: Mapping[str, float] | None = None,
        check: str | None = None,
    ) -> None:
        """Make a verdict.

        Args:
            passed: A bool (of numpy, too); nothing else, however true it looks.
            score: A number.
            reasons: One text, or several; nested ones are flattened, blank ones dropped.
            feedback: A text.
            measured: Numbers by name.
            check: A name.

        Raises:
            TypeError: An argument is of another type.
        """
        answer = _as_bool(passed)
        if answer is None:
            raise TypeError(f"passed is {_kind(passed)}, must be a bool")
        if not (feedback is None or isinstance(feedback, str)):
            raise TypeError(f"feedback is {_kind(feedback)}, must be a text")
        if not (check is None or isinstance(check, str)):
            raise TypeError(f"check is {_kind(check)}, must be a name")
        put = object.__setattr__
        put(self, "passed", answer)
        put(self, "score", None if score is None else _finite("score", score))
        put(self, "reasons", texts(reasons))
        put(self, "feedback", feedback)
        put(self, "measured", _finite_only(measured) if measured else {})
        put(self, "check", check)

    def __bool__(self) -> bool:
        return self.passed

    def __eq__(self, other: object) -> bool:
        # By content, so that a Fail equals the same verdict made or read back as a Verdict.
        if not isinstance(other, Verdict):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Verdict.__slots__)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; `from_dict` reads it back."""
        data: dict[str, Any] = {
            "passed": self.passed,
            "score": self.score,
            "reasons": list(self.reasons),
            "feedback": self.feedback,
        }
        if self.measured:
            data["measured"] = dict(self.measured)
        if self.check is not None:
            data["check"] = self.check
        return data

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Verdict:
        """Read what `to_dict` returned.

        Raises:
            TypeError: It is no such data.
        """
        return Verdict(**data)


class Fail(Verdict):
    """A verdict that is False: `return Fail("x is 3, must be below 2")`."""

    __slots__ = ()

    def __init__(
        self,
        *reasons: object,
        score: float | None = None,
        feedback: str | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(False, score, reasons, feedback, measured=measured)


PASSED: Final = Verdict(True)


class Rejected(Exception):
    """Raised by a check or a producer: this value will not do, and why.

    The exception form of `Fail`. Not a failure: the producer is asked again. Raise it `from` the
    error that showed it, where there is one.

    Attributes:
        reasons: Why, as sentences the producer can act on.
        check: Stage that rejects, instead of the name of the check that raised it; a producer's
            own stage is `producer`, and customary ones are `schema`, `refusal`, `truncation`.
        value: What a producer has in place of a value, such as the text that did not parse.
        score: As in `Verdict`.
    """

    # On the class too, so that a subclass that forgets super().__init__() is still a rejection.
    check: str | None = None
    value: Any = None
    score: float | None = None

    def __init__(
        self,
        *reasons: object,
        check: str | None = None,
        value: Any = None,
        score: float | None = None,
    ) -> None:
        super().__init__(*reasons)
        self.check = check
        self.value = value
        self.score = score

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, one sentence each."""
        return texts(self.args)

    @property
    def reason(self) -> str:
        """The reasons in one text."""
        return "; ".join(self.reasons)

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, init=False)
class Ruling:
    """A verdict in the record of an attempt, and who said it.

    Attributes:
        check: Name of the check, of the part of it that decided, or of the producer's stage.
        stage: 1 for the first stage of checks, 0 for the producer's own rejection.
        hard: Whether it gates.
        verdict: What was said; it has a reason when it did not pass.
    """

    check: str
    stage: int
    hard: bool
    verdict: Verdict

    def __init__(self, check: str, stage: int, hard: bool, verdict: Verdict) -> None:
        # Past the frozen __setattr__: there is a ruling for every check that ran, and a generated
        # __init__ would take twice as long (CPython 3.11). `Check` does so too.
        fields = self.__dict__
        fields["check"] = check
        fields["stage"] = stage
        fields["hard"] = hard
        fields["verdict"] = verdict

    @property
    def rejects(self) -> bool:
        """Whether it keeps the value from being accepted."""
        return self.hard and not self.verdict.passed


# Not slotted: Python 3.11 cannot call a subscripted generic, Attempt[int](...), that is frozen and
# has slots (its __setattr__ still refers to the class before the slots were added).
@dataclass(frozen=True, repr=False)
class Attempt(Generic[T_co]):
    """One produced value, and what the checks said of it.

    Attributes:
        index: 1 for the first attempt of a call.
        value: What was judged. When the producer itself rejected: what it handed along, or `None`.
        rulings: What was said, in order; checks that were not reached are not in it.
        feedback: What the producer is told; empty when accepted.
    """

    index: int
    value: T_co | Any
    rulings: tuple[Ruling, ...] = ()
    feedback: tuple[str, ...] = ()

    @classmethod
    def judged(cls, index: int, value: T_co | Any, rulings: Sequence[Ruling]) -> Attempt[T_co]:
        """Make an attempt whose feedback is that of its rulings, else their reasons."""
        told: list[str] = []
        for ruling in rulings:
            if ruling.rejects:
                said = ruling.verdict
                told.extend((said.feedback,) if said.feedback else said.reasons)
        return cls(index, value, tuple(rulings), tuple(told))

    @property
    def rejections(self) -> list[Ruling]:
        """The rulings that rejected it, in order."""
        return [ruling for ruling in self.rulings if ruling.rejects]

    @property
    def accepted(self) -> bool:
        """Whether nothing rejected it."""
        return not self.rejections

    @property
    def rejected_by(self) -> str | None:
        """Name of the first check, or of the producer's stage, that rejected it."""
        rejections = self.rejections
        return rejections[0].check if rejections else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it was rejected: the reasons of every ruling that did so."""
        return tuple(reason for ruling in self.rejections for reason in ruling.verdict.reasons)

    @property
    def reason(self) -> str | None:
        """The reasons in one text; `None` when accepted."""
        return None if self.accepted else "; ".join(self.reasons)

    def __repr__(self) -> str:
        end = "accepted" if self.accepted else f"rejected_by={self.rejected_by!r}"
        return f"Attempt({self.index}, {shown(self.value, MAX_SHOWN)}, {end})"


Disposition = Literal["accepted", "fallback", "not_accepted"]


@dataclass(frozen=True, repr=False)
class Outcome(Generic[T_co]):
    """How a decision ended.

    Attributes:
        value: The accepted value, the very object that the producer returned; or the fallback's.
        disposition: `accepted`, `fallback` or, when escalated, `not_accepted`.
        attempts: Every attempt of the call in order, the accepted one last. A fallback is none.
        escalation: What a person is told when it was not accepted.
    """

    value: T_co
    disposition: Disposition
    attempts: tuple[Attempt[T_co], ...]
    escalation: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether the value passed every check. A fallback's was not asked to."""
        return self.disposition == "accepted"

    def __repr__(self) -> str:
        value = shown(self.value, MAX_SHOWN)
        return f"Outcome({value}, {self.disposition!r}, attempts={len(self.attempts)})"


class NotAccepted(Exception):
    """Every attempt was rejected, and there is no fallback.

    Attributes:
        name: Name of the decision.
        attempts: All of them.
        escalation: What a person is told.
    """

    def __init__(self, name: str, attempts: tuple[Attempt[Any], ...], escalation: str) -> None:
        super().__init__(name, attempts, escalation)
        self.name = name
        self.attempts = attempts
        self.escalation = escalation

    def __str__(self) -> str:
        return f"{self.name}: {self.escalation}"


def attempts_of(error: BaseException) -> tuple[Attempt[Any], ...]:
    """Return the attempts that a call had made when it failed with this error.

    Those of the outermost `accept` that the error passed. A time-out's are found as well, though
    it was the cancellation that caused it that passed. `()` for any other error.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        if isinstance(at, NotAccepted):
            return at.attempts
        if (found := getattr(at, ATTEMPTS_ATTRIBUTE, None)) is not None:
            return tuple(found)
        seen.add(id(at))
        at = at.__cause__
    return ()


def feedback_of(attempts: Iterable[Attempt[Any]]) -> list[str]:
    """Return what a producer is told of these attempts, oldest first, as one list."""
    return [text for attempt in attempts for text in attempt.feedback]


def escalation_of(attempts: Sequence[Attempt[Any]]) -> str:
    """Say why a person gets it: the first three reasons of the last attempt, each cut."""
    last = attempts[-1].reasons[:3] if attempts else ()
    said = "; ".join(cut(reason) for reason in last)
    return f"not accepted after {len(attempts)} attempt(s): {said}"


Answer = Verdict | bool | None
"""What a check may return: `None` and `True` pass, `False` does not, a `Verdict` says more."""
CheckFunction = Callable[[T], Answer | Awaitable[Answer]]
"""A check: a function of the value. It may also raise `Rejected`."""

REJECTIONS: Final[tuple[type[Exception], ...]] = (Rejected, ValidationError)


@dataclass(frozen=True, init=False)
class Check(Generic[T_contra]):
    """A check with its name and its rules. `check` and `as_check` make one of a function.

    To put something around a check, await its `judge` in a function of your own, and give that to
    `dataclasses.replace(check, function=own, thread=False, rejects=())`.

    Attributes:
        name: Name in every record. Few and short: it becomes a label.
        function: Called with the value; sync or async.
        hard: Whether it gates. A soft check is run in its place and only recorded.
        thread: Whether the function runs in a thread, with the caller's context variables. A
            sync function that takes long would hold up the event loop otherwise. A thread cannot
            be stopped: when the call is cancelled, the function still runs to its end.
        rejects: Exceptions that reject the value; any other is a failure. Narrow it to
            `(Rejected,)` for a check that uses pydantic inside, so that a `ValidationError` from
            a bug of its own does not pass for a bad value.
    """

    name: str
    function: CheckFunction[T_contra]
    hard: bool = True
    thread: bool = False
    rejects: tuple[type[Exception], ...] = REJECTIONS

    def __init__(
        self,
        name: str,
        function: CheckFunction[T_contra],
        hard: bool = True,
        thread: bool = False,
        rejects: tuple[type[Exception], ...] = REJECTIONS,
    ) -> None:
        if rejects is not REJECTIONS:
            _require_exceptions(rejects)
        fields = self.__dict__
        fields["name"] = name
        fields["function"] = function
        fields["hard"] = hard
        fields["thread"] = thread
        fields["rejects"] = rejects

    def __call__(self, value: T_contra) -> Answer | Awaitable[Answer]:
        """Call the function as it is."""
        return self.function(value)

    async def judge(self, value: T_contra) -> Verdict:
        """Run the function, and say what its answer means.

        Returns:
            A verdict; one that did not pass has at least one reason.

        Raises:
            TypeError: The function answered something that is no verdict.
            Exception: The check failed, which says nothing of the value. A time-out is a failure,
                and so is an `ExceptionGroup`, whatever it holds: a check with a `TaskGroup`
                inside must unwrap its rejections.
        """
        try:
            if self.thread:
                answer = await asyncio.to_thread(_called_in_thread, self.function, value)
            else:
                answer = self.function(value)
            if answer is None or answer is True:
                return PASSED
            if inspect.isawaitable(answer):
                answer = await answer
        except self.rejects as exc:
            return verdict_of(exc, by=self.name)
        return self._verdict(answer)

    def _verdict(self, answer: object) -> Verdict:
        if isinstance(answer, Verdict):
            if answer.passed or answer.reasons:
                return answer
            return Verdict(
                False,
                answer.score,
                self._default_reason(),
                answer.feedback,
                measured=answer.measured,
                check=answer.check,
            )
        passed = True if answer is None else _as_bool(answer)
        if passed is None:
            raise TypeError(
                f"check {self.name!r} returned {_kind(answer)}; "
                "return None or True to pass, False or Fail(reason) to reject"
            )
        return PASSED if passed else Fail(self._default_reason())

    def _default_reason(self) -> str:
        lines = (_unwrapped(self.function).__doc__ or "").splitlines()
        return next((line.strip() for line in lines if line.strip()), f"{self.name} is false")


@overload
def check(function: CheckFunction[T], /) -> Check[T]: ...


@overload
def check(
    *,
    name: str | None = None,
    hard: bool = True,
    thread: bool = False,
    rejects: tuple[type[Exception], ...] = REJECTIONS,
) -> Callable[[CheckFunction[T]], Check[T]]: ...


def check(
    function: CheckFunction[T] | None = None,
    /,
    *,
    name: str | None = None,
    hard: bool = True,
    thread: bool = False,
    rejects: tuple[type[Exception], ...] = REJECTIONS,
) -> Check[T] | Callable[[CheckFunction[T]], Check[T]]:
    """Make a check of a function and say how it is to be run; a plain function needs none of it.

    Args:
        function: The function, when used without arguments.
        name: Instead of the function's own.
        hard: See `Check`, as for the rest.
        thread: Run it in a thread.
        rejects: Exceptions that reject.

    Raises:
        TypeError: `rejects` is not a tuple of `Exception` classes.
    """

    def made(function: CheckFunction[T]) -> Check[T]:
        return Check(name or name_of(function), function, hard, thread, rejects)

    return made if function is None else made(function)


def as_check(function: CheckFunction[T]) -> Check[T]:
    """Return a check as it is, and a function as a check of its own name.

    Raises:
        TypeError: It cannot be called.
    """
    if isinstance(function, Check):
        return function
    if not callable(function):
        raise TypeError(f"a check is {_kind(function)}, must be a function of the value")
    return Check(name_of(function), function)


def name_of(function: Callable[..., object]) -> str:
    """Return a function's name as a label: without its module, and never `<lambda>`."""
    name = getattr(function, "__name__", None)
    if name is None:
        function = _unwrapped(function)
        name = getattr(function, "__name__", type(function).__name__)
    return str(name).strip("<>")


def verdict_of(error: Exception, *, by: str) -> Verdict:
    """Return the verdict that an exception stands for which counts as a rejection.

    Args:
        error: `Rejected`, a `ValidationError`, or one that a check's `rejects` names.
        by: Name of the check, or the producer's stage.
    """
    score, stage = None, None
    match error:
        case Rejected():
            score, stage = error.score, error.check
            own_words = type(error).__str__ is not Rejected.__str__
            reasons = texts(str(error)) if own_words else error.reasons
        case ValidationError():
            reasons = validation_reasons(error)
        case _:
            reasons = (cut(f"{by}: {type(error).__name__}: {error}"),)
    return Verdict(False, score, reasons or f"rejected by {stage or by}", check=stage)


def validation_reasons(error: ValidationError) -> tuple[str, ...]:
    """Return `place: message` for each error of a validation, without the input.

    Not `str(error)`: that repeats the start of the input, which may be private, and a link.
    """
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    lines = []
    for item in errors[:MAX_ERRORS]:
        place = ".".join(map(str, item["loc"]))
        lines.append(cut(f"{place}: {item['msg']}" if place else item["msg"]))
    if len(errors) > MAX_ERRORS:
        lines.append(f"and {len(errors) - MAX_ERRORS} more errors")
    return tuple(lines)


def _require_exceptions(rejects: object) -> None:
    if not isinstance(rejects, tuple):
        raise TypeError(f"rejects is {_kind(rejects)}, must be a tuple of exception classes")
    for kind in rejects:
        # A cancellation or a Ctrl-C is never a rejection, and those are no Exceptions.
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"rejects has {kind!r}, must be a class derived from Exception")


def _unwrapped(function: Callable[..., object]) -> Callable[..., object]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _called_in_thread(function: Callable[[T], object], value: T) -> object:
    try:
        return function(value)
    except StopIteration as exc:
        # A future cannot hold it: asyncio would wait for ever (Python 3.11).
        raise RuntimeError("check raised StopIteration") from exc
