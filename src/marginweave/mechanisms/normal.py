"""Computes the standard normal distribution at single numbers.

scipy has it for arrays, but its import takes about a quarter of a second of CPU, for which every `plan` and every finished run
would wait.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_FAR = -37.0  # beyond, erfc leaves the range of a double
_STANDARD = NormalDist()


def ndtr(x: float) -> float:
    """Return the distribution function at x; its lower tail keeps its digits."""
    return math.erfc(-x / math.sqrt(2)) / 2


def log_ndtr(x: float) -> float:
    """Return the logarithm of the distribution function at x.

    Far out it is computed by its asymptotic series: log phi(x) - log |x| + log(1 - 1/x² + 3/x⁴ - 15/x⁶ + …) (Abramowitz and
    Stegun 1964, 26.2.12), whose first term left out is below 1e-16 there.
    """
    if x > 0:
        return math.log1p(-ndtr(-x))
    if x > _FAR:
        return math.log(ndtr(x))
    term = series = 1.0
    for k in range(1, 7):
        term *= -(2 * k - 1) / x**2
        series += term
    scale = -x * math.sqrt(2 * math.pi)
    return -(x**2) / 2 - math.log(scale) + math.log(series)


def ndtri(probability: float) -> float:
    """Return the quantile: the number below which a standard normal variable is with `probability`, from 0 to 1."""
    if probability in (0, 1):
        return math.inf if probability else -math.inf
    return _STANDARD.inv_cdf(probability)
