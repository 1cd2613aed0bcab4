"""A Gaussian process of one observable: Matérn 5/2, one length scale a feature, MAP fitted.

The hyper-parameters are at the maximum of likelihood times priors: maximum likelihood alone
over-fits the few points that a campaign starts with. The length scales' prior is Hvarfner et al.
(2024), Vanilla Bayesian Optimization Performs Great in High Dimensions, ICML: log-normal, with a
mean that grows with the number of features.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from .encoding import Array

MAX_FITTED = 100
"""Observations that hyper-parameters are fitted to; the prediction uses all."""
_SMALLEST = 1e-100
_MIN_NOISE = 1e-6
"""Noise variance of standardised values that keeps the kernel matrix invertible."""
_MIN_VARIANCE = 1e-12
"""Variance of standardised values that keeps a standard deviation above 0."""


class Model:
    """Fits one observable; predicts it elsewhere.

    Args:
        features: Where it was observed, shape (n, columns), n at least 1.
        values: What was observed, shape (n,), finite and below 1e100.
    """

    def __init__(self, features: Array, values: Array) -> None:
        self._mean = float(np.mean(values))
        std = float(np.std(values))
        # A constant observable keeps its own unit.
        self._std = std if std > _SMALLEST else 1.0
        self._features = features
        self._values = (values - self._mean) / self._std
        some = even(len(values), MAX_FITTED)
        self._kernel = _fitted_kernel(self._features[some], self._values[some])
        self._condition()

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return means and standard deviations (without the noise), each of shape (n,)."""
        mean, std = self._process.predict(features, return_std=True)
        noise = self._kernel.k2.noise_level
        variance = np.maximum(std**2 - noise, _MIN_VARIANCE)
        return mean * self._std + self._mean, np.sqrt(variance) * self._std

    def believe(self, features: Array) -> float:
        """Take one more point, shape (columns,), as observed at its mean; return that mean.

        The "kriging believer" of Ginsbourger, Le Riche, Carraro (2010): the points of a batch
        then keep apart. Hyper-parameters stay as they are.
        """
        mean = self._process.predict(features[None])
        self._features = np.vstack([self._features, features])
        self._values = np.append(self._values, mean)
        self._condition()
        return float(mean[0]) * self._std + self._mean

    def _condition(self) -> None:
        # Without an optimizer scikit-learn fits and predicts without any warning: the noise
        # keeps variances above 0, and bounds are looked at only after its own optimizer.
        process = GaussianProcessRegressor(self._kernel, optimizer=None)
        self._process: Any = process.fit(self._features, self._values)


def even(count: int, most: int) -> NDArray[np.intp]:
    """Return at most `most` of the places 0...count-1, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))


def _fitted_kernel(features: Array, values: Array) -> Any:
    columns = features.shape[1]
    # theta is the logarithm of amplitude, length scales and noise, in this order.
    centre = np.array(
        [0.0, *[math.sqrt(2) + 0.5 * math.log(columns)] * columns, math.log(1e-5)],
    )
    spread = np.array([3.0, *[math.sqrt(3)] * columns, 3.0])
    bounds = np.log([(0.05, 20), *[(0.05, 1e3)] * columns, (_MIN_NOISE, 1.0)])
    start = np.log([1.0, *[0.5 * math.sqrt(columns)] * columns, 1e-3])

    kernel = ConstantKernel() * Matern(np.ones(columns), nu=2.5) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, optimizer=None).fit(features, values)

    def loss(theta: Array) -> tuple[float, Array]:
        likelihood, slope = process.log_marginal_likelihood(
            theta, eval_gradient=True, clone_kernel=False
        )
        away = (theta - centre) / spread
        return 0.5 * away @ away - likelihood, away / spread - slope

    found = minimize(loss, start, jac=True, bounds=bounds, options={"maxiter": 100})
    return kernel.clone_with_theta(found.x)
