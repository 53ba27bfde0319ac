"""Lists all mechanisms by their names, and answers questions about the noise of each."""

from __future__ import annotations

import math

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


def least_selected(name: str, sigma: float, count: int, threshold: int, level: float) -> int:
    """Return the smallest whole m >= 0 that may be behind a noisy `count` that is known only because it reached `threshold`.

    X = m + Z. Given X >= T, P(X >= x | X >= T; m) = P(Z >= x - m) / P(Z >= T - m), which grows with m: m is inside where that
    is at least (1 - level)/2, the lower end of `selected_interval` for noise of any kind (Lee, Sun, Sun, Taylor 2016). The end
    is above m with probability (1 - level)/2 at most, given that the count is known, whatever m is.
    DP: arithmetic on released numbers.
    """
    noise = count_noise(name)
    least = math.log((1 - level) / 2)
    below = -1
    above = max(count, 0)
    while above - below > 1:
        middle = max((below + above) // 2, 0)
        # log P(Z >= x - m) - log P(Z >= T - m)
        log_tail = noise.log_tail(sigma, count - middle) - noise.log_tail(sigma, threshold - middle)
        if log_tail >= least:
            above = middle
        else:
            below = middle
    return above
