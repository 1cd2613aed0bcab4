"""Between candidates, points of the unit cube, and the features that a model sees.

A *point* has one share of 0...1 for each variable, as `Space.at_unit` reads it: what samplers
draw. *Features* are what distances are measured in: a range is one column of shares (on the
whole numbers that it really has), a list of values one column of 0 and 1 for each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..campaign import Candidate, Space, Value

Array = NDArray[np.float64]


class Encoding:
    """Encodes the candidates of one space.

    Args:
        space: The space.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.listed: NDArray[np.bool_] = np.array(
            [variable.values is not None for variable in space.variables.values()]
        )

    def candidate(self, point: Sequence[float] | Array) -> dict[str, Value]:
        """Return the candidate at a point; it lies in the space exactly."""
        return {
            name: self.space.at_unit(name, float(share))
            for name, share in zip(self.space.variables, point, strict=True)
        }

    def points(self, candidates: Iterable[Candidate]) -> Array:
        """Return the points of candidates, shape (candidates, variables)."""
        rows = [[self._share(n, c[n]) for n in self.space.variables] for c in candidates]
        return np.array(rows, dtype=float).reshape(len(rows), len(self.space.variables))

    def features(self, points: Array) -> Array:
        """Return the features of points, shape (points, columns)."""
        columns = [self._columns(name, points[:, i]) for i, name in enumerate(self.space.variables)]
        return np.column_stack(columns)

    def _share(self, name: str, value: Value) -> float:
        variable = self.space.variables[name]
        if variable.values is None:
            return self.space.unit(name, float(value))
        # By identity: 0 and False are equal, and may both be listed.
        listed = variable.canonical(value)
        place = next(i for i, v in enumerate(variable.values) if v is listed)
        return (place + 0.5) / len(variable.values)

    def _columns(self, name: str, shares: Array) -> Array:
        variable = self.space.variables[name]
        if variable.values is not None:
            count = len(variable.values)
            places = np.minimum((shares * count).astype(int), count - 1)
            return np.asarray(np.eye(count)[places])
        if variable.integer:
            at_unit, unit = self.space.at_unit, self.space.unit
            return np.array([unit(name, float(at_unit(name, share))) for share in shares])
        return shares
