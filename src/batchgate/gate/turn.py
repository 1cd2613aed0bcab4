"""The words of one visit to a gate: its count, its decision, the state it leaves behind.

Data. The state is plain JSON, so that it can be stored and handed in again after a crash, and any
number of gates share one without losing a verdict, for each writes under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar

from ..decision import Attempt, Verdict

T = TypeVar("T")

Route = Literal["pass", "fail", "escalate"]
"""Where a visit leads: on, back to be done again, or out of attempts."""
Reset = Literal["pass", "decision"]
"""What a count restarts after: a pass only, or an escalation as well."""


def merge_by_gate(before: Mapping[str, T], update: Mapping[str, T]) -> dict[str, T]:
    """Return both, the update's entry where both have one: the reducer of the gates' channels."""
    return {**before, **update}


class GateState(TypedDict, total=False):
    """What gates leave in a state; derive a graph's state from it.

    Attributes:
        gate_attempts: The attempts counted so far, by gate. It is kept after a pass, and restarts
            at the next visit. An input may set it.
        gate_results: The last decision as plain data (`Decision.to_dict`), by gate.
    """

    gate_attempts: Annotated[dict[str, int], merge_by_gate]
    gate_results: Annotated[dict[str, dict[str, Any]], merge_by_gate]


class Turn(NamedTuple):
    """Which visit this is.

    Attributes:
        attempt: 1 for the first evaluation since the count last restarted.
        visit: 1 for the first evaluation ever; it never restarts.
    """

    attempt: int
    visit: int


def next_turn(state: Any, gate: str, max_attempts: int, reset: Reset) -> Turn:
    """Read from a state which visit of a gate comes next.

    Raises:
        TypeError: The count in the state is no integer of at least 0.
    """
    count = _entry(state, "gate_attempts", gate, 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise TypeError(f"gate_attempts[{gate!r}] is {count!r}, must be an int of at least 0")
    last = _entry(state, "gate_results", gate, {})
    # A count that is no longer the last decision's was set by the caller, and is kept.
    decided = count == last.get("attempt") and (
        last.get("passed") or (reset == "decision" and count >= max_attempts)
    )
    return Turn(1 if decided else count + 1, last.get("visit", 0) + 1)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a gate decided at one visit.

    Attributes:
        gate: Name of the gate.
        route: Where to go.
        visit: 1 for the first visit; it never restarts.
        judged: The value with every ruling on it, as `accept` would record it.
    """

    gate: str
    route: Route
    visit: int
    judged: Attempt[Any]

    @property
    def attempt(self) -> int:
        """Evaluations since the count last restarted, this one included."""
        return self.judged.index

    @property
    def feedback(self) -> tuple[str, ...]:
        """What whoever revises the value is told; empty when it passed."""
        return self.judged.feedback

    @property
    def verdict(self) -> Verdict:
        """The evaluator's verdict, or the one that several checks add up to.

        The score is that of the checks that decided, if only one of them has one: the scores of
        different checks are in different units.
        """
        rulings = self.judged.rulings
        if len(rulings) == 1 and rulings[0].hard:
            return rulings[0].verdict
        said = [ruling.verdict for ruling in self.judged.rejections or rulings]
        scores = [verdict.score for verdict in said if verdict.score is not None]
        own_words = any(verdict.feedback for verdict in said) and self.feedback
        return Verdict(
            self.judged.accepted,
            scores[0] if len(scores) == 1 else None,
            self.judged.reasons,
            "\n".join(self.feedback) if own_words else None,
            measured={k: v for ruling in rulings for k, v in ruling.verdict.measured.items()},
            check=self.judged.rejected_by,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the verdict's, and `route`, `attempt`, `visit`.

        Lone surrogates are escaped, since a checkpointer cannot store them.
        """
        place = {"route": self.route, "attempt": self.attempt, "visit": self.visit}
        data: dict[str, Any] = _storable({**self.verdict.to_dict(), **place})
        return data

    def update(self) -> GateState:
        """Return what this visit adds to a state."""
        return {
            "gate_attempts": {self.gate: self.attempt},
            "gate_results": {self.gate: self.to_dict()},
        }


def route_of(passed: bool, attempt: int, max_attempts: int) -> Route:
    """Return the way that a verdict leads at an attempt."""
    if passed:
        return "pass"
    return "fail" if attempt < max_attempts else "escalate"


def _entry(state: Any, channel: str, gate: str, default: Any) -> Any:
    found = state.get(channel) if isinstance(state, Mapping) else getattr(state, channel, None)
    return (found or {}).get(gate, default)


def _storable(data: Any) -> Any:
    if isinstance(data, str):
        return data if data.isascii() else data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        return {_storable(key): _storable(item) for key, item in data.items()}
    return [_storable(item) for item in data] if isinstance(data, list) else data
