"""Lists all mechanisms by their names, and answers questions about the noise of each."""

from __future__ import annotations

import math

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.mechanisms.base import CountNoise, DrawMechanism
from marginweave.mechanisms.exponential import Exponential
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.laplace import DiscreteLaplace

MECHANISMS: dict[str, type[DrawMechanism]] = {
    mechanism.name: mechanism for mechanism in (RoundedGaussian, DiscreteLaplace, Exponential)
}


_MANY = 1e6  # standard deviation at which rounding to whole records no longer matters


def count_noise(name: str) -> type[CountNoise]:
    """Return the noise of this name. Raises KeyError for a mechanism that is no noise on counts."""
    mechanism = MECHANISMS[name]
    if not issubclass(mechanism, CountNoise):
        raise KeyError(name)
    return mechanism


def chosen_noise(setting: str) -> type[CountNoise]:
    """Return the noise with this value of `aggregate.noise`. Raises KeyError where there is none."""
    for mechanism in MECHANISMS.values():
        if issubclass(mechanism, CountNoise) and mechanism.setting == setting:
            return mechanism
    raise KeyError(setting)


def noise_reach(name: str, sigma: float, level: float, cells: int = 1) -> int:
    """Return how far a count, or a sum of `cells` cells, is from the true one with probability `level`.

    `count_interval` has the reasons.
    """
    from scipy.special import ndtri  # a plan does without it

    noise = count_noise(name)
    # floor(1/2 + z sqrt(cells sigma^2 + (cells - 1)/12)), z the normal quantile of (1 + level)/2
    quantile = float(ndtri((1 - level) / 2))
    variance = cells * sigma**2 + (cells - 1) / 12
    normal_reach = math.floor(0.5 - quantile * math.sqrt(variance))
    if noise.is_normal or not sigma:
        return normal_reach
    cell_reach = noise.reach(sigma, level)
    if cells == 1:
        return cell_reach
    return max(normal_reach, math.ceil(cell_reach * math.sqrt(cells)))


def sigmas_reached(name: str, level: float) -> float:
    """Return within how many standard deviations the noise of a cell is with probability `level`, if these are many records."""
    return count_noise(name).reach(_MANY, level) / _MANY


def least_selected(
    name: str, sigma: float, counts: Integers, threshold: int, level: float
) -> Integers:
    """Return the smallest whole m >= 0 that may be behind each noisy count that is known only because it reached `threshold`.

    X = m + Z. Given X >= T, P(X >= x | X >= T; m) = P(Z >= x - m) / P(Z >= T - m), which grows with m: m is inside where that
    is at least (1 - level)/2 (Lee, Sun, Sun, Taylor 2016, for noise of any kind). The end is above m with probability
    (1 - level)/2 at most, given that the count is known, whatever m is. Found by bisection, in logarithms, so that far tails
    keep their digits. DP: arithmetic on released numbers.

    Args:
        name: name of the noise.
        sigma: its standard deviation, in records, above 0.
        counts: noisy counts at least `threshold`, as drawn; any shape.
        threshold: T.
        level: of confidence, in (0, 1).
    """
    noise = count_noise(name)
    least = math.log((1 - level) / 2)
    below = np.full(counts.shape, -1)  # below every possible m
    above = np.maximum(counts, 0)  # large enough
    while (above - below > 1).any():
        middle = np.maximum((below + above) // 2, 0)
        log_count = noise.log_tail(sigma, counts - middle)  # log P(Z >= x - m)
        log_known = noise.log_tail(sigma, threshold - middle)  # log P(Z >= T - m)
        is_enough = log_count - log_known >= least
        below = np.where(is_enough, below, middle)
        above = np.where(is_enough, middle, above)
    return above
