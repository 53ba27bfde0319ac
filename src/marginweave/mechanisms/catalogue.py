"""All mechanisms by their names: a new one has its line here."""

from __future__ import annotations

import math

from marginweave.mechanisms.base import CountNoise, DrawMechanism
from marginweave.mechanisms.exponential import Exponential
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.laplace import DiscreteLaplace

MECHANISMS: dict[str, type[DrawMechanism]] = {
    mechanism.name: mechanism for mechanism in (RoundedGaussian, DiscreteLaplace, Exponential)
}


_MANY = 1e6


def count_noise(name: str) -> type[CountNoise]:
    """The noise of this name. Raises KeyError for a mechanism that is no noise on counts."""
    found = MECHANISMS[name]
    if not issubclass(found, CountNoise):
        raise KeyError(name)
    return found


def chosen_noise(setting: str) -> type[CountNoise]:
    """The noise that `aggregate.noise` calls so."""
    return next(m for m in MECHANISMS.values() if issubclass(m, CountNoise) and m.setting == setting)


def noise_reach(name: str, sigma: float, level: float, cells: int = 1) -> int:
    """How far a count, or a sum of so many cells, is from the true one with probability `level`; `count_interval` says why."""
    from scipy.special import ndtri  # a plan does without it

    noise = count_noise(name)
    half = math.floor(0.5 - float(ndtri((1 - level) / 2)) * math.sqrt(cells * sigma**2 + (cells - 1) / 12))
    if noise.is_normal or not sigma:
        return half
    of_a_cell = noise.reach(sigma, level)
    return of_a_cell if cells == 1 else max(half, math.ceil(of_a_cell * math.sqrt(cells)))


def sigmas_reached(name: str, level: float) -> float:
    """How many standard deviations the noise of a cell goes with probability `level`, where these are many records."""
    return count_noise(name).reach(_MANY, level) / _MANY


def least_selected(name: str, sigma: float, count: int, threshold: int, level: float) -> int:
    """The smallest whole m >= 0 that may be behind a noisy `count` that is known only because it reached `threshold`.

    X = m + Z. Given X >= T, P(X >= x | X >= T; m) = P(Z >= x - m) / P(Z >= T - m), which grows with m: m is inside where that
    is at least (1 - level)/2, the lower end of `selected_interval` for noise of any kind (Lee, Sun, Sun, Taylor 2016). The end
    is above m with probability (1 - level)/2 at most, given that the count is known, whatever m is.
    DP: arithmetic on released numbers.
    """
    noise, least = count_noise(name), math.log((1 - level) / 2)
    below, above = -1, max(count, 0)
    while above - below > 1:
        middle = max((below + above) // 2, 0)
        is_inside = noise.log_tail(sigma, count - middle) - noise.log_tail(sigma, threshold - middle) >= least
        below, above = (below, middle) if is_inside else (middle, above)
    return above
