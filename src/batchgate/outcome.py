"""How a decision ended: an outcome, an error, and the attempts that either holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from .decision import MAX_SHOWN, Attempt, Disposition
from .plain import shown
from .record import Record

T_co = TypeVar("T_co", covariant=True)

ATTEMPTS_ATTRIBUTE: Final = "__accept_attempts__"
"""Where an error keeps its attempts: builtin exceptions cannot be weakly referenced."""


@dataclass(frozen=True, repr=False)
class Outcome(Generic[T_co]):
    """How a decision ended.

    Attributes:
        value: The accepted value, the very object that the producer returned; or the fallback's.
        disposition: `accepted`, `fallback` or, when escalated, `not_accepted`.
        attempts: Every attempt of the call in order, the accepted one last. A fallback is none.
        escalation: What a person is told when it was not accepted.
        record: What `accept(record=True)` has kept of it; else `None`.
    """

    value: T_co
    disposition: Disposition
    attempts: tuple[Attempt[T_co], ...]
    escalation: str | None = None
    record: Record | None = None

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
        record: As in `Outcome`.
    """

    def __init__(
        self,
        name: str,
        attempts: tuple[Attempt[Any], ...],
        escalation: str,
        record: Record | None = None,
    ) -> None:
        super().__init__(name, attempts, escalation, record)
        self.name = name
        self.attempts = attempts
        self.escalation = escalation
        self.record = record

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
