"""What the results so far say of any point: how good it may be, and whether it may work at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..campaign import Candidate, Constraint
from ..campaign.constraint import finite
from .acquisition import log_expected_improvement, log_probability, log_success
from .encoding import Array, Encoding
from .model import Model

Mask = NDArray[np.bool_]

MAX_POINTS = 300
"""Results that a model is fitted to: its cost grows with their cube."""
MAX_CELLS = 2e7
"""Bound of results squared times columns: what the fit keeps in memory."""
LARGEST = 1e100
"""An observable beyond it is no result: its square would be no float."""


class Belief:
    """Models of the objective and of each constraint, and a memory of failures.

    Args:
        encoding: Encodes the space.
        results: Candidates with their observables, `learnable`.
        objective: Name of the objective.
        minimised: Whether it is minimised.
        constraints: Constraints on observables.
    """

    def __init__(
        self,
        encoding: Encoding,
        results: Sequence[Mapping[str, Any]],
        *,
        objective: str,
        minimised: bool,
        constraints: Mapping[str, Constraint],
    ) -> None:
        self._encoding, self._constraints = encoding, constraints
        values = _observed(results, objective) * (1 if minimised else -1)
        meets = np.array([_all_meet(constraints, result) for result in results])
        points = encoding.points(results)
        self._tried = encoding.features(points)
        self._succeeded = np.isfinite(values)

        kept = _subset(values, meets, columns=self._tried.shape[1])
        self._points, self._values, self._meets = points[kept], values[kept], meets[kept]
        features = self._tried[kept]
        self._objective = Model(features, self._values)
        self._limits = {}
        for name in constraints:
            column = _observed([results[i] for i in kept], name)
            if (seen := np.isfinite(column)).any():
                self._limits[name] = Model(features[seen], column[seen])

    def best(self, count: int) -> Array:
        """Return the points of the best results, those that meet the constraints first."""
        return self._points[np.lexsort((self._values, ~self._meets))[:count]]

    def score(self, points: Array) -> Array:
        """Return how promising points are, shape (points,): a logarithm, higher is better."""
        features = self._encoding.features(points)
        score = np.zeros(len(features))
        if self._meets.any():
            best = float(self._values[self._meets].min())
            score += log_expected_improvement(*self._objective.predict(features), best)
        for name, model in self._limits.items():
            score += log_probability(self._constraints[name], *model.predict(features))
        if not self._succeeded.all():
            score += log_success(self._nearness(features), self._succeeded)
        return score

    def believe(self, candidate: Candidate) -> None:
        """Take a candidate that runs as if it had come out as expected."""
        point = self._encoding.points([candidate])
        features = self._encoding.features(point)[0]
        expected = {name: model.believe(features) for name, model in self._limits.items()}
        self._points = np.vstack([self._points, point])
        self._values = np.append(self._values, self._objective.believe(features))
        self._meets = np.append(self._meets, _all_meet(self._constraints, expected))

    def _nearness(self, features: Array) -> Array:
        scale = 0.1 * np.sqrt(features.shape[1])
        return np.asarray(np.exp(-0.5 * (cdist(features, self._tried) / scale) ** 2))


def learnable(results: Sequence[Mapping[str, Any]], objective: str) -> bool:
    """Whether results tell enough of the objective for a model: two values."""
    return int(np.isfinite(_observed(results, objective)).sum()) > 1


def _observed(results: Sequence[Mapping[str, Any]], name: str) -> Array:
    """Return an observable of each result, NaN where there is none to learn from."""
    return np.array([_number(result.get(name)) for result in results], dtype=np.float64)


def _number(value: Any) -> float:
    return float(value) if finite(value) and abs(value) < LARGEST else math.nan


def _all_meet(constraints: Mapping[str, Constraint], result: Mapping[str, Any]) -> bool:
    return all(c.problem(name, result.get(name)) is None for name, c in constraints.items())


def _subset(values: Array, meets: Mask, *, columns: int) -> NDArray[np.intp]:
    """Choose the results to fit: all, or the best third and an even share of the others."""
    order = np.lexsort((values, ~meets))
    order = order[np.isfinite(values[order])]
    most = min(MAX_POINTS, int(np.sqrt(MAX_CELLS / columns)))
    if len(order) <= most:
        return np.sort(order)
    best, others = order[: most // 3], np.sort(order[most // 3 :])
    even = np.linspace(0, len(others) - 1, most - len(best)).astype(int)
    return np.sort(np.concatenate([best, others[even]]))
