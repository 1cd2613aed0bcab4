"""What the results so far say of any point: how good it may be, and whether it may work at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..campaign import Candidate, Constraint
from ..campaign.constraint import finite
from .acquisition import log_expected_improvement, log_probability
from .encoding import Array, Encoding
from .model import Model, even

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

MAX_POINTS = 300
"""Results that a model learns from: its cost grows with their cube."""
MAX_CELLS = 2e7
"""Bound of results squared times columns: what a fit keeps in memory."""
LARGEST = 1e100
"""An observable beyond it is no result: its square would be no float."""


class Belief:
    """Models of the objective, of each constraint, and of whether a run gives a result at all.

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
        features = encoding.features(points)
        most = min(MAX_POINTS, int(np.sqrt(MAX_CELLS / features.shape[1])))

        kept = _subset(values, meets, most)
        self._points, self._values, self._meets = points[kept], values[kept], meets[kept]
        self._objective = Model(features[kept], self._values)
        self._limits = {}
        for name in constraints:
            column = _observed(results, name)[kept]
            if (seen := np.isfinite(column)).any():
                self._limits[name] = Model(features[kept][seen], column[seen])
        self._success = None
        if not (succeeded := np.isfinite(values)).all():
            some = even(len(results), most)
            self._success = Model(features[some], succeeded[some].astype(np.float64))

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
        if self._success is not None:
            # A regression of 0 and 1: crude as a probability, and right about where runs failed.
            score += log_probability(_SUCCEEDS, *self._success.predict(features))
        return score

    def believe(self, candidate: Candidate) -> None:
        """Take a candidate that runs as if it had come out as expected."""
        point = self._encoding.points([candidate])
        features = self._encoding.features(point)[0]
        expected = {name: model.believe(features) for name, model in self._limits.items()}
        self._points = np.vstack([self._points, point])
        self._values = np.append(self._values, self._objective.believe(features))
        self._meets = np.append(self._meets, _all_meet(self._constraints, expected))


_SUCCEEDS = Constraint("GREATER_THAN", (0.5,))


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


def _subset(values: Array, meets: Mask, most: int) -> Indices:
    """Choose the results to learn from: all, or the best third and an even share of the others."""
    order = np.lexsort((values, ~meets))
    order = order[np.isfinite(values[order])]
    if len(order) <= most:
        return np.sort(order)
    best, others = order[: most // 3], np.sort(order[most // 3 :])
    return np.sort(np.concatenate([best, others[even(len(others), most - len(best))]]))
