"""The noise that Synthetic Data Showcase prints for a budget: its split, by the conversion of Bun and Steinke."""

from __future__ import annotations

import math
from dataclasses import dataclass


def sds_rho(epsilon: float, delta: float) -> float:
    """Rho that SDS spends for (epsilon, delta), half of delta on the noise: (sqrt(epsilon + L) - sqrt(L))^2, L = ln(2/delta).

    Bun and Steinke 2016, proposition 1.3: rho + 2 sqrt(rho ln(1/d)) = epsilon. The square is missing in the older
    printed formulas (docs/sources/synthetic-data-showcase.md), which spend sqrt(rho) for rho: 7.7 times too much at
    epsilon 1 and delta 1e-6.
    """
    log = math.log(2 / delta)
    # epsilon / (sum of roots) is their difference without cancellation
    return (epsilon / (math.sqrt(epsilon + log) + math.sqrt(log))) ** 2


@dataclass(frozen=True, kw_only=True)
class PrintedNoise:
    """What SDS prints: the noise multiplier of its record count, epsilon of each percentile, and that of each length."""

    count: float
    percentile: float
    levels: tuple[float, ...]


def printed_noise(
    epsilon: float,
    delta: float,
    percentile_share: float,
    count_share: float,
    proportions: tuple[float, ...],
) -> PrintedNoise:
    """Return the printed split: epsilon_Q = sqrt(2 rho Qp / R), undivided for every k, rho from (1 - Np) epsilon.

    The count has the variance 2/(Np epsilon)^2 of its Laplace noise. sigma_k is equation 4 of the noise section, with the sum
    to R as its derivation has it; the printed last line stops at k.
    """
    count_epsilon = count_share * epsilon
    rho = sds_rho(epsilon - count_epsilon, delta)
    left = 2 * rho * (1 - percentile_share)
    scale = math.sqrt(sum(p**-2 for p in proportions) / left)
    return PrintedNoise(
        count=math.sqrt(2) / count_epsilon,
        percentile=math.sqrt(2 * rho * percentile_share / len(proportions)),
        levels=tuple(p * scale for p in proportions),
    )
