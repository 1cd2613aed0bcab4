"""Constraints on what a level returns, in the grammar of gest-api's VOCS.

`["LESS_THAN", x]`, `["GREATER_THAN", x]` (both strict, as VOCS has them) or
`["BOUNDS", low, high]` (both allowed). Data, never an expression to evaluate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PlainSerializer

from ..breach import Breach


@dataclass(frozen=True, slots=True)
class Constraint:
    """One bound on an observable.

    Attributes:
        kind: `LESS_THAN`, `GREATER_THAN` or `BOUNDS`.
        bounds: One number, or two for `BOUNDS`.
    """

    kind: Literal["LESS_THAN", "GREATER_THAN", "BOUNDS"]
    bounds: tuple[float, ...]

    @classmethod
    def parse(cls, raw: Any) -> Self:
        """Read `[kind, number, ...]`.

        Raises:
            ValueError: It is no constraint; the message shows the grammar.
        """
        if isinstance(raw, cls):
            return raw
        grammar = '["LESS_THAN", x], ["GREATER_THAN", x] or ["BOUNDS", low, high]'
        if not isinstance(raw, (list, tuple)) or not raw or not isinstance(raw[0], str):
            raise ValueError(f"a constraint is {grammar}")
        kind, numbers = raw[0].upper(), tuple(raw[1:])
        wanted = {"LESS_THAN": 1, "GREATER_THAN": 1, "BOUNDS": 2}.get(kind)
        if wanted is None or len(numbers) != wanted:
            raise ValueError(f"{list(raw)!r} is no constraint: {grammar}")
        if not all(finite(n) for n in numbers):
            raise ValueError(f"{list(raw)!r} needs finite numbers")
        if kind == "BOUNDS" and not numbers[0] < numbers[1]:
            raise ValueError(f"{list(raw)!r}: the bounds must be increasing")
        return cls(kind, tuple(float(n) for n in numbers))  # type: ignore[arg-type]

    def problem(self, name: str, value: object) -> str | None:
        """Say why a value does not hold, or `None`. NaN and non-numbers never hold."""
        if not finite(value):
            return f"{name} is {_shown(value)}, must be a finite number"
        assert isinstance(value, (int, float))
        match self.kind:
            case "LESS_THAN":
                holds, wanted = value < self.bounds[0], f"below {self.bounds[0]:g}"
            case "GREATER_THAN":
                holds, wanted = value > self.bounds[0], f"above {self.bounds[0]:g}"
            case "BOUNDS":
                low, high = self.bounds
                holds, wanted = low <= value <= high, f"between {low:g} and {high:g}"
        return None if holds else f"{name} is {value:.6g}, must be {wanted}"

    def breach(self, name: str, value: object) -> Breach | None:
        """Return the broken bound as data; `None` when it holds, or for what is no number."""
        if not finite(value) or self.problem(name, value) is None:
            return None
        assert isinstance(value, (int, float))
        lower = self.kind == "GREATER_THAN" or (self.kind == "BOUNDS" and value < self.bounds[0])
        return Breach.of(
            name, value, self.bounds[0 if lower else -1], "below" if lower else "above"
        )

    def to_list(self) -> list[str | float]:
        """Return the form that `parse` reads."""
        return [self.kind, *self.bounds]


ConstraintField = Annotated[
    Constraint, BeforeValidator(Constraint.parse), PlainSerializer(Constraint.to_list)
]


def unmet(
    constraints: Mapping[str, Constraint], observables: Mapping[str, object]
) -> Iterator[str]:
    """Yield a sentence for each constraint that a level's observables do not meet."""
    for name, constraint in constraints.items():
        if name not in observables:
            yield f"{name} is missing from the result"
        elif problem := constraint.problem(name, observables[name]):
            yield problem


def breaches(
    constraints: Mapping[str, Constraint], observables: Mapping[str, object]
) -> Iterator[Breach]:
    """Yield what `unmet` says in numbers, where it is numbers."""
    for name, constraint in constraints.items():
        if found := constraint.breach(name, observables.get(name)):
            yield found


def finite(value: object) -> bool:
    """Whether a value is a finite number, no larger than a float can be; a `bool` is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # Not math.isfinite(), which raises for 10**400.
    return abs(value) <= sys.float_info.max


def _shown(value: object) -> str:
    return f"{value}" if isinstance(value, float) else f"a {type(value).__name__}"
