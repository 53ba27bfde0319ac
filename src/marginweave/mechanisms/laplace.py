"""Laplace noise on marginals: its scale, how wide it is, and its draws, by OpenDP on zeros, before the charge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.budget import BasicAmount, Cost, Stability
from marginweave.base.errors import InputError, StageError
from marginweave.mechanisms.base import CountNoise, check_room, l1_sensitivity

_SCALE_STEP = 1024
# A loss as a double, rounded up, must not exceed the exact epsilon.
_ROOM = 1 + Fraction(1, 1 << 40)


def laplace_scale(epsilon: Fraction, stability: Stability) -> Fraction:
    """Scale b of the discrete Laplace noise of one marginal: the L1 sensitivity over epsilon, rounded up to 1/1024.

    P(X = x) = (1 - p) / (1 + p) p^|x|, p = e^{-1/b} (Ghosh, Roughgarden and Sundararajan 2012: the geometric mechanism), so
    a marginal that moves by S in L1 has a privacy loss of S/b <= epsilon, and m marginals with epsilon_i each are
    (sum_i epsilon_i, 0)-DP together (Dwork and Roth 2014, theorem 3.16). A multiple of 1/1024 is a double exactly.
    DP: arithmetic on public numbers. Raises InputError unless epsilon is positive.
    """
    if epsilon <= 0:
        raise InputError(f"epsilon ({float(epsilon):g}) must be positive")
    return Fraction(math.ceil(_SCALE_STEP * l1_sensitivity(stability) / epsilon * _ROOM), _SCALE_STEP)


def laplace_sigma(scale: Fraction) -> float:
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

    S_2^2 is theta^2 or 2 theta^2 (`gaussian.marginal_sigma`), and mu^2 = 2 rho. DP: arithmetic on public
    numbers.
    """
    return number * stability.records * l1_sensitivity(stability) * multiplier**2


def draw_laplace_noise(cells: int, epsilon: Fraction, stability: Stability) -> Integers:
    """The noise of one marginal for `add_drawn_noise`, shape (cells,), int64: OpenDP's exact sampler, on zeros.

    OpenDP uses its own generator, which takes no seed: so the noise is drawn before the charge, and sealed as a seed is.
    Discrete Laplace noise of scale `laplace_scale`. DP: nothing of the rows.

    Raises:
        InputError: an epsilon that is not positive.
        StageError: OpenDP measures a larger loss than the planned one.
    """
    mechanism = _discrete_laplace(float(laplace_scale(epsilon, stability)))
    if Fraction(mechanism.map(l1_sensitivity(stability))) > epsilon:
        raise StageError("marginal: the measured privacy loss is above the planned one")
    return np.array(mechanism(np.zeros(cells, np.int64)), np.int64)


def add_drawn_noise(counts: Integers, noise: Integers) -> Integers:
    """One marginal plus noise of `draw_laplace_noise` that was made for it, and for nothing else.

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
        raise StageError("noise must be int64, one for each cell of the marginal; it was drawn for another one")
    check_room(counts, max(int(noise.max(initial=0)), -int(noise.min(initial=0))))
    return counts + noise.reshape(counts.shape)


def _discrete_laplace(scale: float) -> Any:
    from opendp import domains, metrics
    from opendp.measurements import then_laplace
    from opendp.mod import enable_features

    # OpenDP and its shared library wait until something is drawn: plan and refusals never load them. Its prelude would import
    # scikit-learn as well, a second of every run.
    enable_features("contrib")
    return (domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")) >> then_laplace(scale)


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
        """(epsilon, 0) in plain, the decimal as it prints, which is also what is drawn."""
        return Cost(plain=BasicAmount(epsilon=Decimal(repr(parameter))))

    def parts(self, parameter: float, shares: Sequence[float]) -> tuple[Fraction, ...]:
        """Epsilons that add up exactly to the decimal that the joint one prints as, by which the draw is charged."""
        exact = [Fraction(share) for share in shares]
        return tuple(Fraction(repr(parameter)) * share / sum(exact) for share in exact)

    def sigma(self, part: Fraction) -> float:
        """As `laplace_sigma`."""
        return laplace_sigma(laplace_scale(part, self.stability))

    def cell_error(self, parameter: float) -> float:
        """S / epsilon, S the L1 sensitivity."""
        return l1_sensitivity(self.stability) / parameter

    def presample(self, cells: Sequence[int], parts: Sequence[Fraction]) -> list[Integers]:
        """As `draw_laplace_noise`: made before the charge, for nothing else."""
        return [
            draw_laplace_noise(number, epsilon, self.stability) for number, epsilon in zip(cells, parts, strict=True)
        ]

    @staticmethod
    def log_tail(sigma: float, least: float) -> float:
        """P(X >= h) = p^h / (1 + p) for h >= 1, and 1 - p^(1 - h) / (1 + p) below, p as in `reach`."""
        log_p = -2 * math.asinh(1 / (math.sqrt(2) * sigma))
        log_whole = math.log1p(math.exp(log_p))
        if least >= 1:
            return least * log_p - log_whole
        return math.log1p(-math.exp((1 - least) * log_p - log_whole))

    @staticmethod
    def reach(sigma: float, level: float) -> int:
        """The least h with 2 p^(h + 1) / (1 + p) <= 1 - level, p = e^{-1/b}, sigma = 1 / (sqrt(2) sinh(1/(2b)))."""
        log_p = -2 * math.asinh(1 / (math.sqrt(2) * sigma))
        return max(0, math.ceil(math.log((1 - level) * (1 + math.exp(log_p)) / 2) / log_p - 1))
