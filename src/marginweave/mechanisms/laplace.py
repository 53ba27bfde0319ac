"""Adds Laplace noise to marginals: its scale, its variance, and its draws, by OpenDP on zeros, before the charge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import BasicAmount, Cost, Stability
from marginweave.base.errors import InputError, StageError
from marginweave.mechanisms.base import CountNoise, check_room, l1_sensitivity

_SCALE_STEP = 1024
# A loss as a double, rounded up, must not exceed the exact epsilon.
_ROOM = 1 + Fraction(1, 1 << 40)


def laplace_scale(epsilon: Fraction, stability: Stability) -> Fraction:
    """Return the scale b of the discrete Laplace noise of one marginal: the L1 sensitivity over epsilon, rounded up to 1/1024.

    P(X = x) = (1 - p) / (1 + p) p^|x|, p = e^{-1/b} (Ghosh, Roughgarden and Sundararajan 2012: the geometric mechanism), so
    a marginal that moves by S in L1 has a privacy loss of S/b <= epsilon, and m marginals with epsilon_i each are
    (sum_i epsilon_i, 0)-DP together (Dwork and Roth 2014, theorem 3.16). A multiple of 1/1024 is a double exactly.
    DP: arithmetic on public numbers. Raises InputError unless epsilon is positive.
    """
    if epsilon <= 0:
        raise InputError(f"epsilon ({float(epsilon):g}) must be positive")
    steps = _SCALE_STEP * l1_sensitivity(stability) / epsilon * _ROOM
    return Fraction(math.ceil(steps), _SCALE_STEP)


def laplace_sigma(scale: Fraction) -> float:
    """Return the standard deviation of discrete Laplace noise.

    Its variance is 2 p / (1 - p)^2, p = e^{-1/b}, which is 1 / (2 sinh^2(1/(2b))).

    DP: arithmetic on public numbers.
    """
    half_rate = 1 / (2 * float(scale))
    return 1 / (math.sqrt(2) * math.sinh(half_rate))


def laplace_variance(number: int, epsilon: float, stability: Stability) -> float:
    """Return the variance of a cell of `number` marginals that share epsilon equally: 2 (m S_1 / epsilon)^2 (DPSyn).

    DP: arithmetic on public numbers.
    """
    return 2 * (number * l1_sensitivity(stability) / epsilon) ** 2


def gaussian_variance(number: int, multiplier: float, stability: Stability) -> float:
    """Return the variance of a cell of `number` marginals that share mu^2 = 1 / multiplier^2 equally.

    It is m (S_2 multiplier)^2 (DPSyn). S_2^2 is theta^2 or 2 theta^2 (`gaussian.marginal_sigma`), and mu^2 = 2 rho.
    DP: arithmetic on public numbers.
    """
    return number * stability.records * l1_sensitivity(stability) * multiplier**2


def draw_laplace_noise(cells: int, epsilon: Fraction, stability: Stability) -> Integers:
    """Draw the noise of one marginal for `add_drawn_noise`, shape (cells,), int64: OpenDP's exact sampler, on zeros.

    It is discrete Laplace noise of scale `laplace_scale`. OpenDP uses its own generator, which takes no seed: so the noise is
    drawn before the charge, and sealed as a seed is. DP: nothing of the rows.

    Raises:
        InputError: an epsilon that is not positive.
        StageError: OpenDP measures a larger loss than the planned one.
    """
    scale = float(laplace_scale(epsilon, stability))
    mechanism = _discrete_laplace(scale)
    if Fraction(mechanism.map(l1_sensitivity(stability))) > epsilon:
        raise StageError("marginal: the measured privacy loss is above the planned one")
    return np.array(mechanism(np.zeros(cells, np.int64)), np.int64)


def add_drawn_noise(counts: Integers, noise: Integers) -> Integers:
    """Return one marginal plus noise of `draw_laplace_noise` that was made for it, and for nothing else.

    Theorem: noise of scale b on an f of L1 sensitivity S is (S/b, 0)-DP (Dwork, McSherry, Nissim and Smith 2006), on integers
    with the discrete Laplace distribution as well (Ghosh, Roughgarden and Sundararajan 2012). Every cell of the marginal
    must be in `counts`, zeros included.
    DP: (epsilon, 0)-DP under the `stability` of the noise, by `l1_sensitivity`.

    Args:
        counts: any shape, int64.
        noise: of the flattened counts, shape (cells,), int64.

    Returns:
        the shape of `counts`, int64.

    Raises:
        InputError: counts of another type.
        StageError: noise of another type or for another number of cells, or sums that could leave 64 bits.
    """
    if counts.dtype != np.int64:
        raise InputError(f"counts ({counts.dtype}) must be int64")
    if noise.dtype != np.int64 or noise.shape != (counts.size,):
        raise StageError(
            "noise must be int64, one for each cell of the marginal; it was drawn for another one"
        )
    largest = max(int(noise.max(initial=0)), -int(noise.min(initial=0)))
    check_room(counts, largest)
    return counts + noise.reshape(counts.shape)


def _discrete_laplace(scale: float) -> Any:
    from opendp import domains, metrics
    from opendp.measurements import then_laplace
    from opendp.mod import enable_features

    # OpenDP and its shared library wait until something is drawn: plan and refusals never load them. Its prelude would import
    # scikit-learn as well, a second of every run.
    enable_features("contrib")
    vectors = domains.vector_domain(domains.atom_domain(T="i64"))
    return (vectors, metrics.l1_distance(T="i64")) >> then_laplace(scale)


class DiscreteLaplace(CountNoise):
    """Discrete Laplace noise, from OpenDP; the part of a marginal is its epsilon, all of which add to that of the draw."""

    name = "discrete-laplace"
    parameter = "epsilon"
    words = "discrete Laplace noise on the counts of marginals, epsilon {parameter:.6g} for all of them together"
    setting = "laplace"
    title = "Laplace"
    is_pure = True
    takes_no_key = True
    share_power = 1 / 2
    mean_error = math.sqrt(1 / 2)
    kurtosis = 6.0
    # OpenDP makes 20,000 to 80,000 draws a second: more cells than these would take longer than everything else together.
    most_cells = 1 << 20

    @staticmethod
    def price(parameter: float) -> Cost:
        """Return (epsilon, 0) in plain, the decimal as it prints, which is also the one of the noise."""
        return Cost(plain=BasicAmount(epsilon=Decimal(repr(parameter))))

    def parts(self, parameter: float, shares: Sequence[float]) -> tuple[Fraction, ...]:
        """Return epsilons that add up exactly to the decimal that `parameter` prints as, by which the draw is charged."""
        epsilon = Fraction(repr(parameter))
        exact = [Fraction(share) for share in shares]
        return tuple(epsilon * share / sum(exact) for share in exact)

    def sigma(self, part: Fraction) -> float:
        """Return the standard deviation, as `laplace_sigma`."""
        return laplace_sigma(laplace_scale(part, self.stability))

    def cell_error(self, parameter: float) -> float:
        """Return S / epsilon, S the L1 sensitivity."""
        return l1_sensitivity(self.stability) / parameter

    def presample(self, cells: Sequence[int], parts: Sequence[Fraction]) -> list[Integers]:
        """Draw the noise of all marginals by `draw_laplace_noise`, before the charge."""
        noises = []
        for number, epsilon in zip(cells, parts, strict=True):
            noises.append(draw_laplace_noise(number, epsilon, self.stability))
        return noises

    @staticmethod
    def log_tail(sigma: float, least: Integers) -> Floats:
        """Return log P(X >= h), h the `least`.

        P(X >= h) = p^h / (1 + p) for h >= 1, and 1 - p^(1 - h) / (1 + p) below, p as in `reach`.
        """
        log_p = -2 * math.asinh(1 / (math.sqrt(2) * sigma))
        log_sum = math.log1p(math.exp(log_p))  # log(1 + p)
        far = least * log_p - log_sum
        near = np.log1p(-np.exp((1 - np.minimum(least, 0)) * log_p - log_sum))
        return np.where(least >= 1, far, near)

    @staticmethod
    def reach(sigma: float, level: float) -> int:
        """Return the least h with 2 p^(h + 1) / (1 + p) <= 1 - level, p = e^{-1/b}, sigma = 1 / (sqrt(2) sinh(1/(2b)))."""
        log_p = -2 * math.asinh(1 / (math.sqrt(2) * sigma))
        log_outside = math.log((1 - level) * (1 + math.exp(log_p)) / 2)
        return max(0, math.ceil(log_outside / log_p - 1))
