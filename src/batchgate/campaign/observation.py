"""What is known of a candidate once its job has ended: numbers only, no text of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .constraint import finite
from .space import Value


@dataclass(frozen=True, slots=True)
class Observation:
    """One result. Surrogates learn from it and producers are told of it.

    Attributes:
        candidate: The point that was run, every variable of the space.
        values: Observables by name, the objective among them; finite numbers. Empty when the job
            failed or its result was rejected: then only the place is known.
        feasible: Whether there is a result and every constraint of the campaign holds.

    Raises:
        ValueError: A value is not a finite number. The result gate keeps such a result out.
    """

    candidate: Mapping[str, Value]
    values: Mapping[str, float]
    feasible: bool

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if not finite(value):
                raise ValueError(f"{name} is {value!r}, must be a finite number")
