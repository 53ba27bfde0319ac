"""Shares, means, sums and quantiles with their intervals, from estimates of counts and their covariance.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from marginweave.answers.codes import ValueRange
from marginweave.answers.intervals import EstimateInterval, Reach, between_bounds, quantile_bins, ratio_interval
from marginweave.answers.least_squares import Estimates
from marginweave.base.arrays import Floats, Integers

Factor = tuple[int, Floats]
"""An attribute, by its place, and the weight of each of its codes."""
Solve = Callable[[Sequence[Iterable[Factor]]], Estimates]
Count = Callable[[Sequence[Factor], Reach], EstimateInterval]

TOO_FEW = "do not use: too few records for their noise"
SAYS_NOTHING = "do not use: it may be anything"


def share_of(solved: Estimates, reach: Reach, *, sampled: bool) -> tuple[EstimateInterval, str]:
    """The share that the first of two counts is of the second."""
    records = max(float(solved.values[1]), 0.0)
    sampling = (0.0, records, -records) if sampled else (0.0, 0.0, 0.0)
    ends = ratio_interval(solved.values, solved.covariance, reach, (0.0, 1.0), sampling)
    if ends is None:
        return EstimateInterval(estimate=None, low=0.0, high=1.0), TOO_FEW
    return EstimateInterval.around(float(solved.values[0] / solved.values[1]), *ends), ""


def share_between(part: EstimateInterval, whole: EstimateInterval) -> tuple[EstimateInterval, str]:
    """The same from intervals of both counts, which hold together."""
    if whole.low <= 0 or not whole.estimate:
        return EstimateInterval(estimate=None, low=0.0, high=1.0), TOO_FEW
    low = min(part.low / whole.high, 1.0)
    high = min(part.high / whole.low, 1.0)
    return EstimateInterval.around((part.estimate or 0.0) / whole.estimate, low, high), ""


def mean_of(
    solve: Solve, records: Sequence[Factor], numbers: ValueRange, reach: Reach, *, sampled: bool
) -> tuple[EstimateInterval, str]:
    """The mean of midpoints, between the means of lower and of upper ends, each with its noise and that of its own sample."""
    known = numbers.known
    low, high = np.where(known, numbers.low, 0.0), np.where(known, numbers.high, 0.0)
    weights = [low, high, np.nan_to_num(numbers.middle), low**2, high**2, known.astype(np.float64)]
    solved = solve([[*records, (numbers.place, vector)] for vector in weights])
    limits = float(np.nanmin(numbers.low)), float(np.nanmax(numbers.high))
    count = float(solved.values[5])
    ends: list[tuple[float, float]] = []
    for place in (0, 1):
        both, total, squares = [place, 5], float(solved.values[place]), float(solved.values[place + 3])
        mean = float(np.clip(total / count, *limits)) if count > 0 else limits[place]
        sampling = sampling_of_mean(mean, squares, count, limits[place]) if sampled else (0.0, 0.0, 0.0)
        found = ratio_interval(solved.values[both], solved.covariance[np.ix_(both, both)], reach, limits, sampling)
        if found is None:
            return EstimateInterval(estimate=None, low=limits[0], high=limits[1]), TOO_FEW
        ends.append(found)
    least, most = np.clip(between_bounds(np.array(ends[0]), np.array(ends[1])), *limits)
    return EstimateInterval.around(float(solved.values[2]) / count, float(least), float(most)), ""


def sampling_of_mean(mean: float, squares: float, count: float, end: float) -> tuple[float, float, float]:
    """s_0, s_1, s_2: the variance s_0 + s_1 R + s_2 R^2 of a sum of values less R times their number, of a sample, for means R.

    Values that are too rare to be in a sample may decide the mean of a population, so the variance of those that are in it is
    too little. At a mean R on the side of an `end` of what values can be, it is that of the values as they are, with the mean m
    and the variance s^2, and as many at the end as make their mean R: n (end - R) (R - m + s^2 / (end - m)). Of two values it
    is that of a share, n R (1 - R) (Wilson 1927).
    """
    apart = end - mean
    if not apart:  # an interval reaches to where its mean is
        return 0.0, 0.0, 0.0
    from_end = mean - max(squares / count - mean**2, 0.0) / apart
    return -count * end * from_end, count * (end + from_end), -count


def sum_of(
    solve: Solve, records: Sequence[Factor], numbers: ValueRange, reach: Reach, most_records: float
) -> tuple[EstimateInterval, str]:
    """The sum of midpoints, from that of lower to that of upper ends, each with its noise; what is no number adds nothing.

    Of values between public ends, of at most so many records as are publicly known, a sum has a range. A noisy sum beyond it
    counts as at its end, and so does an end of the interval: nothing that the truth may be is left out.
    """
    low, high = np.nan_to_num(numbers.low), np.nan_to_num(numbers.high)
    solved = solve([[*records, (numbers.place, vector)] for vector in (low, high, np.nan_to_num(numbers.middle))])
    sds = np.sqrt(np.maximum(np.diagonal(solved.covariance), 0.0)).tolist()
    noise = np.array([reach.of(sd) for sd in sds])
    possible = _possible_sums(numbers, most_records)
    sums = np.clip(solved.values, *possible)
    least, most = np.clip(between_bounds(*np.stack((sums - noise, sums + noise), axis=1)[:2]), *possible)
    found = EstimateInterval.around(float(sums[2]), float(least), float(most), sds[2])
    return found, f"do not use: noise alone reaches {noise[2]:.0f}" if abs(sums[2]) < noise[2] else ""


def _possible_sums(numbers: ValueRange, most_records: float) -> tuple[float, float]:
    """Between which the sum of none of the records to the most of them lies."""
    smallest = float(np.nanmin(numbers.low))
    largest = float(np.nanmax(numbers.high))
    return smallest * most_records if smallest < 0 else 0.0, largest * most_records if largest > 0 else 0.0


def mean_between(
    count: Count, records: Sequence[Factor], numbers: ValueRange, reach: Reach
) -> tuple[EstimateInterval, str]:
    """The mean from intervals of counts, as of records that were measured together with others.

    The largest mean has as many records as may be of values above it, and no more of the others than there are at least, each
    at its upper end.
    """
    order, counts, whole = _value_counts(count, records, numbers, reach)
    lows, highs = numbers.low[order], numbers.high[order]
    if whole.low <= 0:
        return EstimateInterval(estimate=None, low=float(lows[0]), high=float(highs.max())), TOO_FEW
    low, high = -_largest_mean(-lows, counts, whole.low), _largest_mean(highs, counts, whole.low)
    weights = np.array([each.estimate or 0.0 for each in counts])
    middle = float(weights @ numbers.middle[order] / weights.sum()) if weights.any() else (low + high) / 2
    return EstimateInterval.around(middle, low, high), ""


def sum_between(
    count: Count, records: Sequence[Factor], numbers: ValueRange, reach: Reach
) -> tuple[EstimateInterval, str]:
    """The sum from intervals of the counts of each value, each value at either end."""
    order, counts, _ = _value_counts(count, records, numbers, reach)
    lows, highs = numbers.low[order], numbers.high[order]
    fewest, most = _ends(counts)
    low, high = np.minimum(lows * fewest, lows * most).sum(), np.maximum(highs * fewest, highs * most).sum()
    middle = np.array([each.estimate or 0.0 for each in counts]) @ numbers.middle[order]
    return EstimateInterval.around(float(middle), low, high), "do not use: it may be 0" if low <= 0 <= high else ""


def _value_counts(
    count: Count, records: Sequence[Factor], numbers: ValueRange, reach: Reach
) -> tuple[Integers, list[EstimateInterval], EstimateInterval]:
    """The codes that are numbers, in order, and intervals of the counts of each and of all together, which hold together."""
    order, steps = _steps(numbers)
    shared = replace(reach, level=1 - (1 - reach.level) / (len(order) + 1))
    codes = np.arange(len(numbers.low))
    counts = [count([*records, (numbers.place, (codes == code).astype(np.float64))], shared) for code in order]
    return order, counts, count([*records, (numbers.place, steps[-1])], shared)


def _largest_mean(values: Floats, counts: Sequence[EstimateInterval], least: float) -> float:
    """The largest mean of at least so many records, of which so many have each value."""
    fewest, most = _ends(counts)
    total, records = float(fewest @ values), float(fewest.sum())
    for place in np.argsort(-values, kind="stable").tolist():
        added = float(most[place] - fewest[place])
        if records > 0 and values[place] * records <= total:
            added = min(added, max(least - records, 0.0))
        total += float(values[place]) * added
        records += added
    return total / records if records else float(values.max())  # where counts that disagree leave no record


def _ends(counts: Sequence[EstimateInterval]) -> tuple[Floats, Floats]:
    low, high = (np.array([getattr(each, end) for each in counts], np.float64) for end in ("low", "high"))
    return low, high


def quantile_of(
    solve: Solve, records: Sequence[Factor], numbers: ValueRange, reach: Reach, q: float, *, sampled: bool
) -> tuple[EstimateInterval, str]:
    """The values between which the quantile lies, found by the intervals of the shares below; a bin counts with its ends."""
    order, steps = _steps(numbers)
    solved = solve([[*records, (numbers.place, vector)] for vector in steps])
    total = float(solved.values[-1])
    contrast = np.hstack((np.eye(len(order)), np.full((len(order), 1), -q)))
    below = contrast @ solved.values
    variances = np.einsum("ij,jk,ik->i", contrast, solved.covariance, contrast)
    variances += max(total, 0.0) * q * (1 - q) if sampled else 0.0
    below[-1], variances[-1] = max(below[-1], 0.0), max(variances[-1], 0.0)  # all records lie below the last end
    chosen = np.flatnonzero(quantile_bins(below, np.sqrt(np.maximum(variances, 0.0)), reach))
    few = total <= reach.of(math.sqrt(max(float(solved.covariance[-1, -1]), 0.0)))
    return _among(numbers, order, [] if few else chosen, solved.values[:-1], q)


def quantile_between(
    count: Count, records: Sequence[Factor], numbers: ValueRange, reach: Reach, q: float
) -> tuple[EstimateInterval, str]:
    """The same from intervals of counts, as of records that were measured together with others.

    Value j is left out where fewer than q of the records lie up to it even if as many do as may, or more than q below it. Of
    the probability one half is for the number of records, and a quarter for each of these two.
    """
    order, steps = _steps(numbers)
    found = [count([*records, (numbers.place, vector)], reach.each) for vector in steps]
    low, high = _ends(found)
    up_to = high[:-1] >= q * low[-1]
    below = np.concatenate(([True], low[:-2] <= q * high[-1]))
    up_to[-1] = True
    few = low[-1] <= 0
    counts = np.array([one.estimate or 0.0 for one in found[:-1]])
    return _among(numbers, order, [] if few else np.flatnonzero(up_to & below), counts, q)


def _steps(numbers: ValueRange) -> tuple[Integers, list[Floats]]:
    """The codes that are numbers, in order, and weights of all up to each of them; the last ones are of all numbers."""
    known = numbers.known
    order = np.argsort(np.where(known, numbers.low, np.inf), kind="stable")[: int(known.sum())]
    steps = []
    for place in range(len(order)):
        upto = np.zeros(len(known))
        upto[order[: place + 1]] = 1.0
        steps.append(upto)
    return order, [*steps, known.astype(np.float64)]


def _among(
    numbers: ValueRange, order: Integers, chosen: Sequence[int] | Integers, counts: Floats, q: float
) -> tuple[EstimateInterval, str]:
    """The quantile among the chosen values of an order, by counts up to each value."""
    lows, highs = numbers.low[order], numbers.high[order]
    if not len(chosen):
        return EstimateInterval(estimate=None, low=float(lows[0]), high=float(highs[-1])), TOO_FEW
    counts = np.maximum.accumulate(np.clip(counts, 0.0, None))
    place = min(int(np.searchsorted(counts, q * counts[-1])), len(order) - 1)
    before = counts[place - 1] if place else 0.0
    part = (q * counts[-1] - before) / (counts[place] - before) if counts[place] > before else 0.5
    low, high = float(lows[chosen[0]]), float(highs[chosen[-1]])
    if not math.isfinite(highs[place] - lows[place]):
        return EstimateInterval(estimate=None, low=low, high=high), _open_words(low, high)
    estimate = float(lows[place] + part * (highs[place] - lows[place]))
    return EstimateInterval.around(estimate, low, high), _open_words(low, high)


def _open_words(low: float, high: float) -> str:
    """What is known where an interval reaches into a bin that has no end."""
    if math.isinf(high) and math.isinf(low):
        return SAYS_NOTHING
    if math.isinf(high):
        return f"at least {low:g}: it may lie in an open bin, which has no end"
    return f"at most {high:g}: it may lie in an open bin, which has no end" if math.isinf(low) else ""
