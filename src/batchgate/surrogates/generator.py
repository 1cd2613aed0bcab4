"""What our gest-api generators share, and the one without a model: a Sobol sequence.

A candidate is suggested only when the space holds it, the campaign allows it, and it is neither
known nor running. Everything is a function of the arguments, so that a replay after a restart
gives the same candidates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gest_api import Generator
from gest_api.vocs import VOCS
from scipy.stats import qmc

from ..campaign import Candidate, Space, Value
from ..errors import SurrogateError
from .encoding import Array, Encoding
from .vocs import constraints_of, objective_of, space_of

DESIGN_POINTS = 2**14
"""Points of the design that are looked at before it counts as used up."""


class CampaignGenerator(Generator):  # type: ignore[misc] # gest-api is untyped
    """Base of the generators that know a campaign's space and its checks.

    Args:
        vocs: Inputs and results, with one objective.
        seed: Seed of the campaign: the design is the same for each batch, and goes on where
            the known candidates end.
        batch_number: Number of the batch, which seeds all but the design.
        warmup: Known candidates before a model is used.
        space: The space, which knows logarithms and the order of values; from `vocs` if not
            given.
        feasible: Whether a candidate may be suggested: the campaign's checks. Called for the
            most promising candidates until it allows one.
        running: Candidates whose results are not known yet.

    Raises:
        ValueError: `vocs` has not one objective, or asks for more than these generators do.
    """

    def __init__(
        self,
        vocs: VOCS,
        *,
        seed: int = 0,
        batch_number: int = 0,
        warmup: int = 8,
        space: Space | None = None,
        feasible: Callable[[Candidate], bool] | None = None,
        running: Sequence[Candidate] = (),
    ) -> None:
        super().__init__(vocs)
        self._objective, self._minimised = objective_of(vocs)
        self._constraints = constraints_of(vocs)
        self._constants = {name: constant.value for name, constant in vocs.constants.items()}
        self._space = space or space_of(vocs)
        self._encoding = Encoding(self._space)
        self._seed, self._batch_number, self._warmup = seed, batch_number, warmup
        self._feasible = feasible
        self._results: list[Mapping[str, Any]] = []
        self._pending: list[Candidate] = list(running)
        self._taken = {self._space.fingerprint(candidate) for candidate in running}
        self._design: Iterator[dict[str, Value]] | None = None

    def _validate_vocs(self, vocs: VOCS) -> None:
        objective_of(vocs)
        constraints_of(vocs)
        space_of(vocs)

    def ingest(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Learn results: every variable, and the objective and constraints where known.

        A result without a finite objective is a run that failed: only its place is learned.
        """
        done = set(map(self._space.fingerprint, results))
        self._results.extend(results)
        self._pending = [c for c in self._pending if self._space.fingerprint(c) not in done]
        self._taken |= done

    def suggest(self, num_points: int | None = None) -> list[dict[str, Any]]:
        """Return new candidates with the constants, one if no number is given.

        A candidate once suggested counts as running.

        Raises:
            SurrogateError: No further candidate is allowed and new.
        """
        return [{**self._constants, **self._suggest_one()} for _ in range(num_points or 1)]

    def _suggest_one(self) -> dict[str, Value]:
        candidate = self._next()
        if candidate is None:
            raise SurrogateError("no candidate of the space is both new and allowed by the checks")
        self._pending.append(candidate)
        self._taken.add(self._space.fingerprint(candidate))
        return candidate

    @abstractmethod
    def _next(self) -> dict[str, Value] | None:
        """Return the next candidate, or `None` when none can be found."""

    def _from_design(self) -> dict[str, Value] | None:
        if self._design is None:
            points = sobol(len(self._space.variables), DESIGN_POINTS, self._seed)
            self._design = self._allowed(points)
        return next(self._design, None)

    def _allowed(self, points: Array) -> Iterator[dict[str, Value]]:
        """Yield the candidates of points, in their order, that may be suggested."""
        for point in points:
            candidate = self._encoding.candidate(point)
            if self._space.fingerprint(candidate) not in self._taken and (
                self._feasible is None or self._feasible(candidate)
            ):
                yield candidate


class Sobol(CampaignGenerator):
    """Suggests the points of one scrambled Sobol sequence, whatever the results.

    Args:
        vocs: As of every generator here; `warmup` and `batch_number` have no meaning.
    """

    def _next(self) -> dict[str, Value] | None:
        return self._from_design()


def sobol(dimensions: int, count: int, seed: Any) -> Array:
    """Return the first points of a scrambled Sobol sequence.

    Args:
        dimensions: Dimensions of the unit cube.
        count: Points, a power of two.
        seed: Seed, or a numpy generator.
    """
    return np.asarray(qmc.Sobol(dimensions, rng=seed).random(count))
