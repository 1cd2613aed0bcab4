"""Thresholds that results speak for. They are told, and never set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..campaign import Constraint
from ..campaign.constraint import finite
from .estimate import SUPPORT


@dataclass(frozen=True, slots=True)
class Measured:
    """What a verifier measured of a candidate that it let pass, and what became of it.

    Attributes:
        value: The observable; anything that is no finite number is left out.
        good: Whether the job's result is feasible.
    """

    value: Any
    good: bool


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A tighter bound that would have stopped bad candidates and not one good one.

    Attributes:
        observable: What is bounded.
        now: The bound in force, as `campaign.toml` has it.
        tighter: The suggested one.
        good_kept: Good candidates seen; the tighter bound lets all of them pass.
        bad_stopped: Bad candidates that it would have stopped.
        bad_seen: Bad candidates seen.
    """

    observable: str
    now: tuple[str | float, ...]
    tighter: tuple[str | float, ...]
    good_kept: int
    bad_stopped: int
    bad_seen: int


def suggest(
    observable: str, constraint: Constraint, measured: Sequence[Measured]
) -> Iterator[Suggestion]:
    """Yield a tighter bound, if enough good candidates were seen and it would stop a bad one.

    The bound goes half-way between the outermost good candidate and the next bad one beyond it,
    so that a good candidate as far out as any that was seen still passes.
    """
    good = sorted(m.value for m in measured if m.good and finite(m.value))
    bad = sorted(m.value for m in measured if not m.good and finite(m.value))
    if len(good) < SUPPORT:
        return
    below = [value for value in bad if value < good[0]]
    above = [value for value in bad if value > good[-1]]
    low = (below[-1] + good[0]) / 2 if below else None
    high = (above[0] + good[-1]) / 2 if above else None
    bounds: tuple[float | None, ...]
    match constraint.kind:
        case "LESS_THAN":
            bounds, stopped = (high,), above
        case "GREATER_THAN":
            bounds, stopped = (low,), below
        case "BOUNDS":
            was_low, was_high = constraint.bounds
            bounds = (was_low if low is None else low, was_high if high is None else high)
            stopped = below + above
    if stopped:
        yield Suggestion(
            observable=observable,
            now=tuple(constraint.to_list()),
            tighter=(constraint.kind, *(b for b in bounds if b is not None)),
            good_kept=len(good),
            bad_stopped=len(stopped),
            bad_seen=len(bad),
        )
