"""Bayesian optimisation over a pool: a Gaussian process is asked about many points at once.

The pool is a Sobol set and the surroundings of the best results; its most promising members
that the campaign allows are refined by ever smaller steps. No gradient is needed, so checks of
any kind, whole numbers and listed values cost nothing extra, and nothing is suggested that the
gate would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # ships no types

from ..campaign import Value
from .belief import Belief, learnable
from .encoding import Array
from .generator import CampaignGenerator, sobol

POOL = 1024
AROUND_BEST = 256
AROUND_PROMISING = 240
STEPS = (0.1, 0.05, 0.02, 0.01)
"""Standard deviations of the refining steps, in shares of each variable's range."""


class GaussianProcess(CampaignGenerator):
    """Suggests where the expected improvement is highest and failure is unlikely.

    The first candidates come from the design. What runs is believed to come out at its mean,
    so that the candidates of a batch keep apart.

    Args:
        vocs: As of every generator here.
    """

    _belief: Belief | None = None
    _believed = 0

    def ingest(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Learn results, in place of what was believed while they ran."""
        super().ingest(results)
        self._belief = None

    def suggest(self, num_points: int | None = None) -> list[dict[str, Any]]:
        """Return new candidates with the constants, one if no number is given.

        Raises:
            SurrogateError: No further candidate is allowed and new.
        """
        # The matrices are small: with a thread for each core a batch took three times the CPU
        # time (0.47 s against 0.16 s on two cores), which are the jobs' cores. And sums depend
        # on the number of threads, which a replay on another node may not.
        with threadpool_limits(1, user_api="blas"):
            return super().suggest(num_points)

    def _next(self) -> dict[str, Value] | None:
        if len(self._results) < self._warmup:
            return self._from_design() or self._from_model()
        return self._from_model() or self._from_design()

    def _from_model(self) -> dict[str, Value] | None:
        belief = self._current_belief()
        if belief is None:
            return None
        rng = np.random.default_rng([self._seed, self._batch_number, len(self._taken)])
        near = self._around(belief.best(3), AROUND_BEST, STEPS[0], rng)
        pool = np.vstack([sobol(near.shape[1], POOL, rng), near])
        found = self._promising(belief, pool)
        for step in STEPS:
            if not found:
                return None
            centres = self._encoding.points(found)
            near = self._around(centres, AROUND_PROMISING, step, rng)
            found = self._promising(belief, np.vstack([centres, near]))
        return found[0]

    def _current_belief(self) -> Belief | None:
        if self._belief is None:
            if not learnable(self._results, self._objective):
                return None
            self._belief = Belief(
                self._encoding,
                self._results,
                objective=self._objective,
                minimised=self._minimised,
                constraints=self._constraints,
            )
            self._believed = 0
        for candidate in self._pending[self._believed :]:
            self._belief.believe(candidate)
        self._believed = len(self._pending)
        return self._belief

    def _promising(self, belief: Belief, points: Array) -> list[dict[str, Value]]:
        """Return the four most promising candidates that may be suggested, best first."""
        order = np.argsort(-belief.score(points), kind="stable")
        return list(islice(self._allowed(points[order]), 4))

    def _around(self, centres: Array, count: int, step: float, rng: np.random.Generator) -> Array:
        """Return points that differ from a centre in some variables only."""
        base = centres[rng.integers(len(centres), size=count)]
        moved = np.clip(base + rng.normal(scale=step, size=base.shape), 0, 1)
        moved = np.where(self._encoding.listed, rng.random(base.shape), moved)
        chance = np.where(self._encoding.listed, 0.2, max(0.2, min(1.0, 2 / base.shape[1])))
        return np.where(rng.random(base.shape) < chance, moved, base)
