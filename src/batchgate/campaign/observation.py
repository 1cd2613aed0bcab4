"""What is known of a candidate once its job has ended: numbers only, no text of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .constraint import finite
from .space import Value

Outcome = Literal["result", "rejected", "failed", "timed_out"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One result. Surrogates learn from it and producers are told of it.

    Attributes:
        candidate: The point that was run, every variable of the space.
        values: Observables by name, the objective among them; finite numbers. Empty when the job
            failed or its result was rejected: then only the place is known.
        feasible: Whether there is a result and every constraint of the campaign holds.
        outcome: What came of the job: a `result`; a result that is none (`rejected`); it broke
            (`failed`); it ran out of its walltime (`timed_out`). A job whose node or runner was
            lost says nothing of its candidate, and is no observation.

    Raises:
        ValueError: A value is not a finite number. The result gate keeps such a result out.
    """

    candidate: Mapping[str, Value]
    values: Mapping[str, float]
    feasible: bool
    outcome: Outcome = "result"

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if not finite(value):
                raise ValueError(f"{name} is {value!r}, must be a finite number")
