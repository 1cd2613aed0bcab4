"""The words of one decision: verdict, rejection, ruling, attempt.

Data alone: nothing here does I/O, reads a clock or calls foreign code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar

from .breach import Breach, Side, breaches_of, said
from .plain import shown

T_co = TypeVar("T_co", covariant=True)

MAX_TEXT: Final = 500
"""Characters kept of a text that we put together from foreign ones; a check's reason is kept whole."""
MAX_SHOWN: Final = 200
"""Characters of a value in a `repr`."""


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


def as_bool(answer: object) -> bool | None:
    """Return a bool, of numpy too, as a bool; `None` for anything else."""
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
        raise TypeError(f"{name} is {kind_of(number)}, must be a number")
    try:
        value = float(number)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _finite_only(measured: Mapping[str, float]) -> dict[str, float]:
    found = {str(name): _finite(str(name), number) for name, number in dict(measured).items()}
    return {name: number for name, number in found.items() if number is not None}


def kind_of(value: object) -> str:
    """Name a value's type, for a message."""
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
        breaches: The bounds that the value does not keep, where the check tells them as numbers.
    """

    passed: bool
    score: float | None
    reasons: tuple[str, ...]
    feedback: str | None
    measured: Mapping[str, float] = field(hash=False)
    check: str | None
    breaches: tuple[Breach, ...]

    def __init__(
        self,
        passed: bool,
        score: float | None = None,
        reasons: str | Iterable[object] = (),
        feedback: str | None = None,
        *,
        measured: Mapping[str, float] | None = None,
        check: str | None = None,
        breaches: Iterable[Breach | Mapping[str, Any]] = (),
    ) -> None:
        """Make a verdict.

        Args:
            passed: A bool (of numpy, too); nothing else, however true it looks.
            score: A number.
            reasons: One text, or several; nested ones are flattened, blank ones dropped.
            feedback: A text.
            measured: Numbers by name.
            check: A name.
            breaches: Broken bounds, or what their `to_dict` returned.

        Raises:
            TypeError: An argument is of another type.
        """
        answer = as_bool(passed)
        if answer is None:
            raise TypeError(f"passed is {kind_of(passed)}, must be a bool")
        if not (feedback is None or isinstance(feedback, str)):
            raise TypeError(f"feedback is {kind_of(feedback)}, must be a text")
        if not (check is None or isinstance(check, str)):
            raise TypeError(f"check is {kind_of(check)}, must be a name")
        put = object.__setattr__
        put(self, "passed", answer)
        put(self, "score", None if score is None else _finite("score", score))
        put(self, "reasons", texts(reasons))
        put(self, "feedback", feedback)
        put(self, "measured", _finite_only(measured) if measured else {})
        put(self, "check", check)
        put(self, "breaches", breaches_of(breaches) if breaches else ())

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
        if self.breaches:
            data["breaches"] = [breach.to_dict() for breach in self.breaches]
        return data

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Verdict:
        """Read what `to_dict` returned.

        Raises:
            TypeError: It is no such data.
        """
        return Verdict(**data)


class Fail(Verdict):
    """A verdict that is False: `return Fail("x is 3, must be below 2")`.

    With `measured`, `bound` and `field` it tells the broken bound as numbers as well:
    `Fail("x is 3, must be below 2", measured=3.0, bound=2.0, field="x")`. `kind` says on which
    side the value lies where the numbers do not (`Breach`). `measured` alone may be a mapping, as
    in `Verdict`.
    """

    __slots__ = ()

    def __init__(
        self,
        *reasons: object,
        score: float | None = None,
        feedback: str | None = None,
        measured: float | Mapping[str, float] | None = None,
        bound: float | None = None,
        field: str | None = None,
        kind: Side | None = None,
    ) -> None:
        breaches = said(measured, bound, field, kind)
        by_name = measured if isinstance(measured, Mapping) else None
        super().__init__(False, score, reasons, feedback, measured=by_name, breaches=breaches)


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
        breaches: As in `Verdict`; told with `measured`, `bound` and `field`, as in `Fail`.
    """

    # On the class too, so that a subclass that forgets super().__init__() is still a rejection.
    check: str | None = None
    value: Any = None
    score: float | None = None
    breaches: tuple[Breach, ...] = ()

    def __init__(
        self,
        *reasons: object,
        check: str | None = None,
        value: Any = None,
        score: float | None = None,
        measured: float | None = None,
        bound: float | None = None,
        field: str | None = None,
        kind: Side | None = None,
    ) -> None:
        super().__init__(*reasons)
        self.check = check
        self.value = value
        self.score = score
        self.breaches = said(measured, bound, field, kind)

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
"""How a decision ended."""


def feedback_of(attempts: Iterable[Attempt[Any]]) -> list[str]:
    """Return what a producer is told of these attempts, oldest first, as one list."""
    return [text for attempt in attempts for text in attempt.feedback]


def escalation_of(attempts: Sequence[Attempt[Any]]) -> str:
    """Say why a person gets it: the first three reasons of the last attempt, each cut."""
    last = attempts[-1].reasons[:3] if attempts else ()
    said = "; ".join(cut(reason) for reason in last)
    return f"not accepted after {len(attempts)} attempt(s): {said}"
