"""Noisy counts of which only those that reach a threshold are known (a censored Gaussian: Tobin 1958)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]


def expected_below(mean: Array, deviation: Array | float, cut: Array | float) -> Array:
    """E[Y | Y < cut] for Y ~ N(mean, deviation^2): mean - deviation phi(t) / Phi(t), t = (cut - mean) / deviation.

    Below `cut`, however large `mean` is. Any shape, all the same or scalar. DP: arithmetic on released numbers.
    """
    t = (cut - mean) / deviation
    expected = mean - deviation * np.exp(_log_density(t) - log_ndtr(t))
    capped: Array = np.minimum(expected, cut)
    return capped


def surprise(residuals: Array, means: Array, deviation: float, cut: float) -> float:
    """How far residuals are from what noise alone makes of `means`, in standard deviations; about N(0, 1) if nothing else.

    The sum of (r / deviation)^2, less its mean, over its deviation, for r = Y - m where Y ~ N(m, deviation^2) is at least
    `cut`, and r = E[Y | Y < cut] - m where it is not. With t = (cut - m) / deviation and h = phi(t) / Phi(t) the mean of a
    term is 1 - Phi(t) + t phi(t) + h^2 Phi(t), that of its square 3 (1 - Phi(t)) + (t^3 + 3 t) phi(t) + h^4 Phi(t).
    Shapes (n,); 0 where n is 0. DP: arithmetic on released numbers.
    """
    if not residuals.size:
        return 0.0
    # beyond 30 deviations all is known, or nothing: the limits of the formula
    t = np.clip((cut - means) / deviation, -30.0, 30.0)
    density, below = np.exp(_log_density(t)), ndtr(t)
    ratio = np.exp(_log_density(t) - log_ndtr(t))
    first = 1 - below + t * density + ratio**2 * below
    second = 3 * (1 - below) + (t**3 + 3 * t) * density + ratio**4 * below
    spread = float((second - first**2).sum())
    distance = float(((residuals / deviation) ** 2 - first).sum())
    return distance / math.sqrt(spread) if spread > 0 else 0.0


def _log_density(t: Array) -> Array:
    density: Array = -0.5 * t**2 - 0.5 * math.log(2 * math.pi)
    return density
