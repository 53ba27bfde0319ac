"""Laplace noise on marginals: how far a unit moves them, the scale that follows, and how wide it is.

The noise itself is drawn in `gaussian.py`, beside the Gaussian one.
"""

from __future__ import annotations

import math
from fractions import Fraction

from marginweave.schemas.budget import Stability
from marginweave.schemas.errors import InputError

# OpenDP makes 20,000 to 80,000 draws a second: more cells than these would take longer than everything else together.
MAX_LAPLACE_CELLS = 1 << 20
_SCALE_STEP = 1024
# A loss as a double, rounded up, must not exceed the exact epsilon.
_ROOM = 1 + Fraction(1, 1 << 40)


def l1_sensitivity(stability: Stability) -> int:
    """How far one unit moves a marginal in L1: theta under add-remove, 2 theta under replace-one.

    A record stands in one cell of a marginal. theta = stability.records records that come or go move it by u >= 0 with
    |u|_1 <= theta; replaced ones by u - v, |u - v|_1 <= |u|_1 + |v|_1 <= 2 theta. Both are reached, by a unit whose records
    are alike. m marginals with epsilon_i each are (sum_i epsilon_i, 0)-DP together (Dwork and Roth 2014, theorem 3.16).
    DP: arithmetic on public numbers.
    """
    return stability.records * (2 if stability.neighbors == "replace-one" else 1)


def laplace_scale(epsilon: Fraction, stability: Stability) -> Fraction:
    """Scale b of the discrete Laplace noise of one marginal: the L1 sensitivity over epsilon, rounded up to 1/1024.

    P(X = x) = (1 - p) / (1 + p) p^|x|, p = e^{-1/b} (Ghosh, Roughgarden and Sundararajan 2012: the geometric mechanism), so
    a marginal that moves by S in L1 has a privacy loss of S/b <= epsilon. A multiple of 1/1024 is a double exactly.
    DP: arithmetic on public numbers. Raises InputError unless epsilon is positive.
    """
    if epsilon <= 0:
        raise InputError(f"epsilon ({float(epsilon):g}) must be positive")
    return Fraction(math.ceil(_SCALE_STEP * l1_sensitivity(stability) / epsilon * _ROOM), _SCALE_STEP)


def laplace_deviation(scale: Fraction) -> float:
    """Standard deviation of discrete Laplace noise: variance 2 p / (1 - p)^2, p = e^{-1/b}, which is 1 / (2 sinh^2(1/(2b))).

    DP: arithmetic on public numbers.
    """
    return 1 / (math.sqrt(2) * math.sinh(1 / (2 * float(scale))))


def laplace_variance(number: int, epsilon: float, stability: Stability) -> float:
    """Variance of a cell of `number` marginals that share epsilon equally: 2 (m S_1 / epsilon)^2 (DPSyn).

    DP: arithmetic on public numbers.
    """
    return 2 * (number * l1_sensitivity(stability) / epsilon) ** 2


def gaussian_variance(number: int, multiplier: float, stability: Stability) -> float:
    """Variance of a cell of `number` marginals that share mu^2 = 1 / multiplier^2 equally: m (S_2 multiplier)^2 (DPSyn).

    S_2^2 is theta^2 or 2 theta^2 (`aggregate.marginals.marginal_deviation`), and mu^2 = 2 rho. DP: arithmetic on public
    numbers.
    """
    return number * stability.records * l1_sensitivity(stability) * multiplier**2
