"""Intervals of counts, ratios and quantiles from estimates with a known covariance.

DP: post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Flags, Floats
from marginweave.base.budget import NoiseName
from marginweave.base.errors import InputError
from marginweave.mechanisms.catalogue import count_noise, sigmas_reached
from marginweave.mechanisms.normal import ndtri


def check_level(level: float) -> None:
    """Raise InputError unless `level` is a probability between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"level ({level:g}) must be between 0 and 1, such as .95")


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The distance in records that noise reaches with a probability of `level`, for its standard deviation.

    Normal noise reaches z sd. A sum of noise of other kinds, the names in `tails`, has a tail between the normal one and that
    of a single cell, so the larger of both is taken.
    """

    level: float
    tails: frozenset[NoiseName] = frozenset()

    def of(self, sigma: float) -> float:
        """Return the half width of an interval, in the unit of `sigma`."""
        half_width = -ndtri((1 - self.level) / 2) * sigma
        if sigma:
            for name in self.tails:
                reach = count_noise(name).reach(sigma, self.level)
                half_width = max(half_width, float(reach))
        return half_width

    @property
    def sigmas(self) -> float:
        """Half width in standard deviations, where these are so large that steps of whole numbers do not count."""
        if not self.tails:
            return self.of(1.0)
        return max(sigmas_reached(name, self.level) for name in self.tails)

    def shared_by(self, intervals: int) -> Reach:
        """Return the reach of each of several intervals that all cover with probability `level`."""
        return replace(self, level=1 - (1 - self.level) / intervals)

    @property
    def each(self) -> Reach:
        """Reach of each of two intervals that both cover with probability `level`."""
        return replace(self, level=(1 + self.level) / 2)


@dataclass(frozen=True, kw_only=True)
class EstimateInterval:
    """An estimate, None where there is none, and both ends of its interval; `sd` is the sigma of the noise of a count.

    Every interval of an answer is one of these: `low` is not above `high`, and the estimate is not outside of them.
    """

    estimate: float | None
    low: float
    high: float
    sd: float | None = None

    def __post_init__(self) -> None:
        """Refuse contradictory ends. They are a defect of the program, as no noise may lead to them."""
        assert self.low <= self.high, "an interval whose low end lies above its high end"
        assert self.estimate is None or self.low <= self.estimate <= self.high, (
            "an estimate outside of its interval"
        )

    @classmethod
    def around(
        cls,
        estimate: float,
        low: float,
        high: float,
        sd: float | None = None,
    ) -> EstimateInterval:
        """Return an interval with its estimate, or with the end closest to the estimate if that is outside."""
        clipped = _clipped(estimate, low, high)
        return cls(
            estimate=float(clipped),
            low=float(low),
            high=float(high),
            sd=sd,
        )

    def lowered_by(self, amount: float) -> EstimateInterval:
        """Return this interval with a low end that is lower by so much, and at least 0."""
        return replace(self, low=max(self.low - amount, 0.0)) if amount else self

    @classmethod
    def without_estimate(cls, low: float, high: float) -> EstimateInterval:
        """Return an interval that has no estimate."""
        return cls(estimate=None, low=float(low), high=float(high))


def _clipped(value: float, low: float, high: float) -> float:
    """Return the number between the ends that is closest to the value."""
    return min(max(value, low), high)


def between_bounds(smaller: Floats, larger: Floats) -> tuple[Floats, Floats]:
    """Return the ends of a number t, from the ends of x <= t and of y >= t; of any shape after the first axis.

    They are the low end of x and the high end of y. Where these contradict each other, noise went farther than it reaches in
    one or in both, and nothing says in which. Then both intervals are inside, and as much more on each side as noise reaches:
    from the low end of y less the half width of x to the high end of x and the half width of y.

    With noise of the deviations s and r, and x as measured above y by D, which is more than z (s + r), the likely noise of x
    is D s^2 / (s^2 + r^2), give or take less than the smaller of s and r; so where x = y, t is likely between the two as
    measured. Where they differ by less than one reaches farther than the other, the noisier one is to blame, and what is added
    holds t wherever between them it is.
    """
    contradict = smaller[0] > larger[1]
    half_smaller = np.abs(smaller[1] - smaller[0]) / 2
    half_larger = np.abs(larger[1] - larger[0]) / 2
    low = np.where(contradict, larger[0] - half_smaller, smaller[0])
    high = np.where(contradict, smaller[1] + half_larger, larger[1])
    return low, high


def count_ends(estimates: Floats, variances: Floats, reach: Reach) -> tuple[Floats, Floats, Floats]:
    """Return counts as they are shown, not negative, like the truth, and both ends of their intervals; of any shape.

    x = m + noise, so m lies within h of x. Noise is whole where it comes from one table, so the ends move out by 1/2 and are
    the whole numbers inside: of a single cell this is `evaluate.intervals.count_interval`. A count below 0 has the interval
    of 0, which covers m >= 0 whenever the other one does. A count without noise that is not whole has the whole number that is
    shown inside.
    """
    deviations = np.sqrt(np.maximum(variances, 0.0))
    sigmas, places = np.unique(deviations, return_inverse=True)
    half_widths = [reach.of(sigma) + (0.5 if sigma else 0.0) for sigma in sigmas.tolist()]
    half = np.array(half_widths)[places].reshape(np.shape(estimates))
    center = np.maximum(estimates, 0.0)
    shown = np.rint(center)
    low = np.ceil(center - half - 1e-9)
    high = np.floor(center + half + 1e-9)
    low = np.clip(low, 0.0, shown)
    high = np.maximum(high, shown)
    return shown, low, high


def count_interval_of(estimate: float, variance: float, reach: Reach) -> EstimateInterval:
    """Return a count as it is shown, with its `count_ends`, all whole."""
    ends = count_ends(np.array([estimate]), np.array([variance]), reach)
    shown, low, high = (int(end[0]) for end in ends)
    sd = math.sqrt(max(variance, 0.0))
    return EstimateInterval(
        estimate=shown,
        low=low,
        high=high,
        sd=sd,
    )


def ratio_interval(
    values: Floats,
    covariance: Floats,
    reach: Reach,
    limits: tuple[float, float],
    sampling: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> tuple[float, float] | None:
    """Return the ends of the ratios R for which N - R D is not further from 0 than noise goes; None if they have no bounds.

    N - R D is normal with the variance V_NN - 2 R V_ND + R^2 V_DD, so the set {R: (N - R D)^2 <= z^2 variance} covers the true
    ratio as often as it says, however noisy D is (Fieller 1954). It is an interval where D is further than z sd from 0.

    Args:
        values: N and D.
        covariance: covariance of N and D, shape (2, 2).
        reach: how far noise goes.
        limits: between which a ratio lies. An N beyond them counts as at the limit, which is closer to every ratio between:
            the interval only grows, and is never empty.
        sampling: s_0, s_1, s_2: variance s_0 + s_1 R + s_2 R^2 of the table as a sample, in addition to that of the noise.
    """
    d = float(values[1])
    n = _clipped(float(values[0]), limits[0] * d, limits[1] * d)
    v_0 = covariance[0, 0] + sampling[0]
    v_1 = 2 * covariance[0, 1] - sampling[1]
    v_2 = covariance[1, 1] + sampling[2]
    # (N - R D)^2 = z^2 (v_0 - v_1 R + v_2 R^2), which is a R^2 + b R + c = 0
    z_squared = reach.sigmas**2
    c = n * n - z_squared * v_0
    b = -2 * n * d + z_squared * v_1
    a = d * d - z_squared * v_2
    may_be_zero = d <= 0 or d * d <= z_squared * covariance[1, 1]
    if may_be_zero or a <= 0:
        return None
    discriminant = max(b * b - 4 * a * c, 0.0)
    root = math.sqrt(discriminant)
    low = (-b - root) / (2 * a)
    high = (root - b) / (2 * a)
    return _clipped(low, *limits), _clipped(high, *limits)


def quantile_bins(below: Floats, sigmas: Floats, reach: Reach) -> Flags:
    """Return which values, in order, may be the quantile.

    A value is one if no more than the share q lies below it, and no less up to it. `below` are estimates of (records with at
    most value j) - q (records), `sigmas` their standard deviations. Value j is left out where one of both is clearly broken:
    each with probability (1 - level)/2, so the true one stays in with `level`.
    """
    half_widths = [reach.of(sigma) for sigma in sigmas.tolist()]
    half = np.array(half_widths)
    enough_up_to = below + half >= 0
    previous_not_above = (below - half <= 0)[:-1]
    not_too_many_below = np.concatenate(([True], previous_not_above))
    may_be_quantile: Flags = np.logical_and(enough_up_to, not_too_many_below)
    return may_be_quantile
