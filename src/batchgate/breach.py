"""A broken bound as data: which quantity, what was measured, and the bound it misses.

What a reason says in a sentence, this says in numbers, so that many rejections can be counted and
summarised without reading a word of them. Numbers are finite; nothing else is ever kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Side = Literal["below", "above"]
"""Where the measured value lies: below a lower bound, or above an upper one."""

MAX_FIELD: Final = 64
"""Longest name of a quantity, in characters; the rest is cut."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One bound that a value does not keep. `Breach.of` makes it.

    Attributes:
        field: Name of the quantity, with its unit (`energy_ev`): a variable's own name when it is
            the variable itself that is too small or too large.
        measured: What it is.
        bound: What it had to keep to, in the same unit.
        kind: `below` when `bound` is a lower one, `above` when it is an upper one.
    """

    field: str
    measured: float
    bound: float
    kind: Side

    @classmethod
    def of(
        cls, field: str, measured: float, bound: float, kind: Side | None = None
    ) -> Breach | None:
        """Make a breach; `None` when its numbers say nothing.

        Args:
            field: Name of the quantity.
            measured: What it is; a number of numpy will do.
            bound: What it had to keep to.
            kind: On which side it lies; by default what the numbers say.

        Returns:
            `None` when a number is not finite, or when both are equal and no side is given.

        Raises:
            TypeError: `field` is no text, or a number is none.
            ValueError: `kind` is another word.
        """
        if not isinstance(field, str):
            raise TypeError(f"field is a {type(field).__name__}, must be a name")
        if kind not in {None, "below", "above"}:
            raise ValueError(f"kind is {kind!r}, must be 'below' or 'above'")
        value, limit = _number("measured", measured), _number("bound", bound)
        if not (math.isfinite(value) and math.isfinite(limit)) or (kind is None and value == limit):
            return None
        return cls(field[:MAX_FIELD], value, limit, kind or ("below" if value < limit else "above"))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; `Breach(**data)` reads it back."""
        return {
            "field": self.field,
            "measured": self.measured,
            "bound": self.bound,
            "kind": self.kind,
        }


@dataclass(frozen=True, slots=True)
class Region:
    """Where in the space something happens: a part of one variable's range, or one listed value.

    Attributes:
        variable: The variable.
        low: Lower end, or the value.
        high: Upper end; equal to `low` for a listed value.
    """

    variable: str
    low: float | int | str | bool
    high: float | int | str | bool


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a run's breaches of one bound have in common.

    Attributes:
        check: Who judged.
        field: The quantity, as in `Breach`.
        kind: The side, as in `Breach`.
        count: Breaches.
        measured: Smallest and largest value measured.
        bound: Smallest and largest bound told.
        own: Whether the quantity is a variable, and what was measured always its own value.
        refuted: Whether a candidate beyond the bound has passed, so that the bound is not one of
            the variable alone.
        region: Where most of them happened, when that is a small part of what was proposed.
    """

    check: str
    field: str
    kind: Side
    count: int
    measured: tuple[float, float]
    bound: tuple[float, float]
    own: bool = False
    refuted: bool = False
    region: Region | None = None

    @property
    def fixed(self) -> bool:
        """Whether it is one and the same bound of a variable, as far as the run knows."""
        return self.own and not self.refuted and self.bound[0] == self.bound[1]


def said(measured: object, bound: object, field: object, kind: Side | None) -> tuple[Breach, ...]:
    """Return the breach that the keywords of a rejection tell, if they tell one.

    Raises:
        TypeError: They tell half of one, or something of the wrong type.
        ValueError: `kind` is no such word.
    """
    alone = bound is None and field is None and kind is None
    if alone and (measured is None or isinstance(measured, Mapping)):
        return ()
    if measured is None or bound is None or field is None:
        raise TypeError("measured, bound and field go together: which quantity, and both numbers")
    found = Breach.of(field, measured, bound, kind)  # type: ignore[arg-type] # it judges the types
    return () if found is None else (found,)


def breaches_of(given: Iterable[Breach | Mapping[str, Any]]) -> tuple[Breach, ...]:
    """Return breaches as a tuple; those in plain data are read.

    Raises:
        TypeError: One is neither a breach nor the data of one.
    """
    read = [one if isinstance(one, Breach) else _read(one) for one in given]
    return tuple(one for one in read if one is not None)


def _read(data: object) -> Breach | None:
    if not isinstance(data, Mapping):
        raise TypeError(f"breaches has a {type(data).__name__}, must be breaches")
    return Breach.of(**data)


def _number(name: str, number: object) -> float:
    # Numbers of numpy are no Numbers in Python's sense; texts that float() would read are none.
    if not hasattr(number, "__float__"):
        raise TypeError(f"{name} is a {type(number).__name__}, must be a number")
    try:
        return float(number)
    except OverflowError:
        return math.inf
