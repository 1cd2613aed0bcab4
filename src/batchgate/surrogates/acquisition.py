"""How promising a point is, as logarithms, so that hopeless points still have an order."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from ..campaign import Constraint
from .encoding import Array

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def log_expected_improvement(mean: Array, std: Array, best: float) -> Array:
    """Logarithm of the expected improvement over the best value so far, for minimising.

    Args:
        mean: Posterior means, shape (n,), in the objective's unit.
        std: Posterior standard deviations, shape (n,), all above 0.
        best: Lowest value so far.

    Returns:
        Shape (n,), finite.

    Source: Ament et al. (2023), Unexpected improvements to expected improvement, NeurIPS 36.
    """
    return np.asarray(np.log(std) + _log_h(_standardised(best, mean, std)))


def log_probability(constraint: Constraint, mean: Array, std: Array) -> Array:
    """Logarithm of the probability that a normally distributed observable meets a constraint.

    Args:
        constraint: The constraint.
        mean: Posterior means, shape (n,).
        std: Posterior standard deviations, shape (n,), all above 0.

    Returns:
        Shape (n,), at most 0, finite.
    """
    bounds = [_standardised(bound, mean, std) for bound in constraint.bounds]
    match constraint.kind:
        case "LESS_THAN":
            return np.asarray(log_ndtr(bounds[0]))
        case "GREATER_THAN":
            return np.asarray(log_ndtr(-bounds[0]))
        case "BOUNDS":
            # Above the mean the mirrored difference keeps its digits.
            low, high = np.where(bounds[0] > 0, (-bounds[1], -bounds[0]), bounds)
            log_low, log_high = log_ndtr(low), log_ndtr(high)
            share = np.minimum(log_low - log_high, -np.finfo(float).eps)
            return np.asarray(log_high + np.log1p(-np.exp(share)))


def _standardised(bound: float, mean: Array, std: Array) -> Array:
    # Farther than this nothing differs any more, and its square is still a float.
    return np.clip((bound - mean) / std, -1e100, 1e100)


def _log_h(z: Array) -> Array:
    """Return log(pdf(z) + z cdf(z)) of the standard normal distribution without cancellation."""
    up = np.maximum(z, -1)
    direct = np.log(np.exp(-0.5 * up**2 - _LOG_SQRT_2PI) + up * ndtr(up))
    down = np.minimum(z, -1)
    # pdf(z) (1 + z cdf(z)/pdf(z)), where the bracket tends to 1/z**2 far out.
    ratio = np.sqrt(np.pi / 2) * erfcx(-down / math.sqrt(2)) * -down
    bracket = np.where(down < -_FAR, -2 * np.log(-down), np.log1p(-np.minimum(ratio, 1 - 1e-16)))
    return np.asarray(np.where(z > -1, direct, -0.5 * down**2 - _LOG_SQRT_2PI + bracket))


_FAR = 1e5
"""Beyond it 1 - ratio, about 1/z**2, has lost its digits and the limit is exact enough."""
