"""Thresholds of published noisy counts: the integer threshold of private domains, and the optional one of each length."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction

from marginweave.base.errors import InputError
from marginweave.configuration.k_tuples import AggregateSettings, FixedThresholds
from marginweave.mechanisms.noise_table import noise_table
from marginweave.mechanisms.normal import ndtri

# Powers of probabilities are rounded down at 2^-256, far below any delta.
_POWER_BITS = 256


def private_threshold(
    sigma: Fraction,
    contributions: int,
    records: int,
    delta_threshold: float,
) -> int:
    """Return the smallest T >= 1 such that values only one unit has are published with probability at most delta_threshold.

    A unit of theta rows, of which each holds at most D values that nobody else has, gives such values the counts
    1 <= c_i <= theta with sum theta D at most. A value is published iff its noisy integer count is at least T, so
    P(none is) = exp(-sum g(c_i)), g(c) = -ln P(X <= T - 1 - c), X from the noise table itself. The sum is
    sum c_i g(c_i)/c_i <= theta D max g(c)/c, and the maximum over 1 … theta is at one of its ends: X is a rounded Gaussian,
    so its distribution function is log-concave and g is convex; where g is convex, {c : g(c) <= t c} is an interval for
    every t, so g(c)/c first falls and then rises. Both ends are reached, by theta D values of count 1 and by D values of
    count theta; T is the smallest with 1 - P(X <= T - 2)^(theta D) and 1 - P(X <= T - 1 - theta)^D at most delta_threshold.
    With theta = 1 that is Gopi et al. 2020, unweighted. (The printed real threshold 1 + sd PhiInv((1 - d)^{1/D}) with
    `noisy > threshold` lets pass P(X >= threshold - 1) on integers, up to 15 times too much at small sigmas.)
    DP: (0, delta_threshold) on top of the noise, under both neighboring relations.

    Args:
        sigma: standard deviation of the noise at length 1, in counts.
        contributions: D = min(Delta_1, how many values of private columns one row can hold), at least 1.
        records: theta, the most rows of one unit, at least 1.
        delta_threshold: the part of delta that the configuration reserves for it, in (0, 1).

    Raises:
        InputError: an argument out of range.
    """
    if contributions < 1:
        raise InputError(f"contributions ({contributions}) must be at least 1")
    if records < 1:
        raise InputError(f"records ({records}) must be at least 1")
    if not 0 < delta_threshold < 1:
        raise InputError(f"delta_threshold ({delta_threshold}) must lie strictly between 0 and 1")
    table = noise_table(sigma)

    def exposed(
        threshold: int,
        count: int,
        values: int,
    ) -> Fraction:
        return 1 - _power(1 - table.upper_tail(threshold - count), values)

    def is_enough(threshold: int) -> bool:
        of_single_rows = exposed(threshold, 1, records * contributions)
        of_full_counts = exposed(threshold, records, contributions)
        return max(of_single_rows, of_full_counts) <= Fraction(delta_threshold)

    # a threshold above J + theta is enough, for nothing larger than J is ever drawn
    return 1 + bisect_left(range(1, table.largest + 1 + records), True, key=is_enough)


def level_threshold(
    settings: AggregateSettings,
    length: int,
    sigma: Fraction,
    survivors_before: int,
    candidates: int,
) -> int:
    """Return the smallest integer a noisy count of `length` must reach: it exceeds the threshold of `settings`, and 0.

    `fixed`: t_k. `adaptive`, rule sds: sd PhiInv(1 - min(eta_k/2, 1/2)), so that an empty cell is published with
    probability eta_k/2; rule paper: sd PhiInv(1 - eta_k min(1, |S_{k-1}|/|V_k|)), at least 0, so that about
    eta_k |S_{k-1}| empty cells are. sd has sqrt(Delta_k) inside. A length that is not named has eta 1 or t 0, as all have
    by default. Only `fixed` applies to length 1; where domains are private the larger
    of it and `private_threshold` holds.
    DP: post-processing, provided that every candidate got its noise, empty cells included.

    Args:
        settings: the aggregation's settings.
        length: k, from 1.
        sigma: standard deviation of the noise at this length, in counts.
        survivors_before: |S_{k-1}|, combinations released at length k - 1.
        candidates: |V_k|, combinations considered at this length.
    """
    choice = settings.thresholds
    if isinstance(choice, FixedThresholds):
        return _above(choice.fixed.get(length, 0.0))
    if length == 1 or choice is None:
        return 1
    eta = choice.adaptive.get(length, 1.0)
    share = 0.5
    if choice.rule == "paper":
        share = min(1.0, survivors_before / candidates) if candidates else 1.0
    return _above(_quantile(sigma, eta * share))


def _quantile(sigma: Fraction, probability: float) -> float:
    """Return the count that noise exceeds with `probability`, at least 0; with probability 0 (no survivors) infinity."""
    return max(0.0, -float(sigma) * ndtri(probability))


def _above(threshold: float) -> int:
    """Return the smallest integer greater than `threshold` and 0."""
    return max(1, math.floor(threshold) + 1)


def _power(probability: Fraction, exponent: int) -> Fraction:
    """Return `probability` to the `exponent`, rounded down at 2^-256: the exact power of a 129-bit number would be long."""
    base = (probability.numerator << _POWER_BITS) // probability.denominator
    result = 1 << _POWER_BITS
    for bit in f"{exponent:b}":
        result = (result * result) >> _POWER_BITS
        if bit == "1":
            result = (result * base) >> _POWER_BITS
    return Fraction(result, 1 << _POWER_BITS)
