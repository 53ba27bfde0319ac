"""Shares, means, sums and quantiles with their intervals, from estimates of counts and their covariance.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.answers.answer import Note
from marginweave.answers.codes import ValueRange
from marginweave.answers.intervals import (
    EstimateInterval,
    Reach,
    between_bounds,
    quantile_bins,
    ratio_interval,
)
from marginweave.answers.least_squares import Estimates
from marginweave.base.arrays import Floats, Integers

Factor = tuple[int, Floats]
"""An attribute, by its place, and the weight of each of its codes."""
Solve = Callable[[Sequence[Iterable[Factor]]], Estimates]
Count = Callable[[Sequence[Factor], Reach], EstimateInterval]

TOO_FEW = Note("too few records for their noise", unusable=True)
SAYS_NOTHING = Note("it may be anything", unusable=True)
MAY_BE_ZERO = Note("it may be 0", unusable=True)


def share_of(
    solved: Estimates,
    reach: Reach,
    *,
    sampled: bool,
) -> tuple[EstimateInterval, Note | None]:
    """Return the share that the first of two counts is of the second, and why it should not be used.

    The second value is a note, None where nothing is to be said; so it is for all quantities of this module.
    """
    records = max(float(solved.values[1]), 0.0)
    sampling = (0.0, records, -records) if sampled else (0.0, 0.0, 0.0)
    ends = ratio_interval(solved.values, solved.covariance, reach, (0.0, 1.0), sampling)
    if ends is None:
        return EstimateInterval.without_estimate(0.0, 1.0), TOO_FEW
    share = float(solved.values[0] / solved.values[1])
    return EstimateInterval.around(share, *ends), None


def share_between(
    part: EstimateInterval, total: EstimateInterval
) -> tuple[EstimateInterval, Note | None]:
    """Return a share from intervals of both counts, which cover together."""
    if total.low <= 0 or not total.estimate:
        return EstimateInterval.without_estimate(0.0, 1.0), TOO_FEW
    share = (part.estimate or 0.0) / total.estimate
    low = min(part.low / total.high, 1.0)
    high = min(part.high / total.low, 1.0)
    return EstimateInterval.around(share, low, high), None


def mean_of(
    solve: Solve,
    records: Sequence[Factor],
    numbers: ValueRange,
    reach: Reach,
    *,
    sampled: bool,
) -> tuple[EstimateInterval, Note | None]:
    """Return the mean of midpoints, and its note.

    Its interval is between the mean of lower ends and that of upper ends, each with its noise and that of its own sample.
    """
    is_number = numbers.is_number
    low = np.where(is_number, numbers.low, 0.0)
    high = np.where(is_number, numbers.high, 0.0)
    middle = np.nan_to_num(numbers.middle)
    vectors = [
        low,
        high,
        middle,
        low**2,
        high**2,
        is_number.astype(np.float64),
    ]
    solved = solve(_weighted(records, numbers.place, vectors))
    limits = numbers.limits
    count = float(solved.values[5])
    ends: list[tuple[float, float]] = []
    for place, limit in enumerate(limits):
        total = float(solved.values[place])
        squares = float(solved.values[place + 3])
        mean = float(np.clip(total / count, *limits)) if count > 0 else limit
        sampling = sampling_of_mean(mean, squares, count, limit) if sampled else (0.0, 0.0, 0.0)
        total_and_count = [place, 5]
        covariance = solved.covariance[np.ix_(total_and_count, total_and_count)]
        interval = ratio_interval(
            solved.values[total_and_count], covariance, reach, limits, sampling
        )
        if interval is None:
            return EstimateInterval.without_estimate(*limits), TOO_FEW
        ends.append(interval)
    of_lower_ends, of_upper_ends = np.array(ends)
    bounds = between_bounds(of_lower_ends, of_upper_ends)
    least, most = np.clip(bounds, *limits)
    estimate = float(solved.values[2]) / count
    return EstimateInterval.around(estimate, float(least), float(most)), None


def sampling_of_mean(
    mean: float,
    squares: float,
    count: float,
    end: float,
) -> tuple[float, float, float]:
    """Return s_0, s_1, s_2: the variance s_0 + s_1 R + s_2 R^2 of a sum of values less R times their number, for means R.

    It is the variance of a sample. Values that are too rare to be in a sample may decide the mean of a population, so the
    variance of those that are in it is too little. At a mean R on the side of an `end` of what values can be, it is that of the
    values as they are, with the mean m and the variance s^2, and as many at the end as make their mean R:
    n (end - R) (R - m + s^2 / (end - m)). Of two values it is that of a share, n R (1 - R) (Wilson 1927).
    """
    apart = end - mean
    if not apart:  # an interval reaches to where its mean is
        return 0.0, 0.0, 0.0
    variance = max(squares / count - mean**2, 0.0)
    from_end = mean - variance / apart
    return -count * end * from_end, count * (end + from_end), -count


def sum_of(
    solve: Solve,
    records: Sequence[Factor],
    numbers: ValueRange,
    reach: Reach,
    most_records: float,
) -> tuple[EstimateInterval, Note | None]:
    """Return the sum of midpoints, and its note. A code that is no number adds nothing.

    Its interval is from the sum of lower ends to that of upper ends, each with its noise.
    A sum of values between public ends, of at most `most_records` records, has a range. A noisy sum beyond it
    counts as at its end, and so does an end of the interval: nothing that the truth may be is left out.
    """
    low = np.nan_to_num(numbers.low)
    high = np.nan_to_num(numbers.high)
    middle = np.nan_to_num(numbers.middle)
    solved = solve(_weighted(records, numbers.place, [low, high, middle]))
    variances = np.diagonal(solved.covariance)
    sds = np.sqrt(np.maximum(variances, 0.0)).tolist()
    noise = np.array([reach.of(sd) for sd in sds])
    possible = _possible_sums(numbers, most_records)
    sums = np.clip(solved.values, *possible)
    ends = np.stack((sums - noise, sums + noise), axis=1)
    of_lower_ends, of_upper_ends, _ = ends
    bounds = between_bounds(of_lower_ends, of_upper_ends)
    least, most = np.clip(bounds, *possible)
    interval = EstimateInterval.around(
        float(sums[2]),
        float(least),
        float(most),
        sds[2],
    )
    is_noise = abs(sums[2]) < noise[2]
    if is_noise:
        return interval, Note(f"noise alone reaches {noise[2]:.0f}", unusable=True)
    return interval, MAY_BE_ZERO if least <= 0 <= most else None


def _possible_sums(numbers: ValueRange, most_records: float) -> tuple[float, float]:
    """Return the least and the largest sum of at most `most_records` records."""
    smallest, largest = numbers.limits
    least = smallest * most_records if smallest < 0 else 0.0
    most = largest * most_records if largest > 0 else 0.0
    return least, most


def mean_between(
    count: Count,
    records: Sequence[Factor],
    numbers: ValueRange,
    reach: Reach,
) -> tuple[EstimateInterval, Note | None]:
    """Return the mean, and its note, from intervals of counts of records that were measured together with others.

    The largest mean has as many records as may be of values above it, and no more of the others than there are at least, each
    at its upper end.
    """
    counts = _count_values(count, records, numbers, reach)
    lows = numbers.low[counts.codes]
    highs = numbers.high[counts.codes]
    least_records = counts.total.low
    if least_records <= 0:
        return EstimateInterval.without_estimate(lows[0], highs.max()), TOO_FEW
    low = -_largest_mean(-lows, counts.values, least_records)
    high = _largest_mean(highs, counts.values, least_records)
    weights = _estimates(counts.values)
    middle = (low + high) / 2
    if weights.any():
        middle = float(weights @ numbers.middle[counts.codes] / weights.sum())
    return EstimateInterval.around(middle, low, high), None


def sum_between(
    count: Count,
    records: Sequence[Factor],
    numbers: ValueRange,
    reach: Reach,
) -> tuple[EstimateInterval, Note | None]:
    """Return the sum, and its note, from intervals of the counts of each value, each value at either end."""
    counts = _count_values(count, records, numbers, reach)
    lows = numbers.low[counts.codes]
    highs = numbers.high[counts.codes]
    fewest, most = _ends(counts.values)
    low = np.minimum(lows * fewest, lows * most).sum()
    high = np.maximum(highs * fewest, highs * most).sum()
    middle = _estimates(counts.values) @ numbers.middle[counts.codes]
    note = MAY_BE_ZERO if low <= 0 <= high else None
    return EstimateInterval.around(float(middle), low, high), note


@dataclass(frozen=True, kw_only=True, eq=False)
class _ValueCounts:
    """Intervals of the counts of each code that is a number, in order, and of all of them, which cover together."""

    codes: Integers
    values: list[EstimateInterval]
    total: EstimateInterval


def _count_values(
    count: Count,
    records: Sequence[Factor],
    numbers: ValueRange,
    reach: Reach,
) -> _ValueCounts:
    """Return the counts of each value of the records, and of all of their values."""
    order, steps = _steps(numbers)
    shared_reach = reach.shared_by(len(order) + 1)
    codes = np.arange(len(numbers.low))
    vectors = [(codes == code).astype(np.float64) for code in order]
    queries = _weighted(records, numbers.place, [*vectors, steps[-1]])
    *values, total = [count(query, shared_reach) for query in queries]
    return _ValueCounts(codes=order, values=values, total=total)


def _largest_mean(
    values: Floats,
    counts: Sequence[EstimateInterval],
    least_records: float,
) -> float:
    """Return the largest mean of at least `least_records` records, by intervals of the number of records of each value."""
    fewest, most = _ends(counts)
    total = float(fewest @ values)
    records = float(fewest.sum())
    for place in np.argsort(-values, kind="stable").tolist():
        added = float(most[place] - fewest[place])
        lowers_mean = records > 0 and values[place] * records <= total
        if lowers_mean:
            added = min(added, max(least_records - records, 0.0))
        total += float(values[place]) * added
        records += added
    if not records:  # counts that disagree leave no record
        return float(values.max())
    return total / records


def _ends(counts: Sequence[EstimateInterval]) -> tuple[Floats, Floats]:
    """Return the low and the high ends of intervals."""
    low = np.array([interval.low for interval in counts], np.float64)
    high = np.array([interval.high for interval in counts], np.float64)
    return low, high


def _estimates(counts: Sequence[EstimateInterval]) -> Floats:
    return np.array([interval.estimate or 0.0 for interval in counts])


def quantile_of(
    solve: Solve,
    records: Sequence[Factor],
    numbers: ValueRange,
    reach: Reach,
    q: float,
    *,
    sampled: bool,
) -> tuple[EstimateInterval, Note | None]:
    """Return the values between which the quantile lies, and its note, by the intervals of the shares below.

    A bin counts with its ends.
    """
    order, steps = _steps(numbers)
    solved = solve(_weighted(records, numbers.place, steps))
    total = float(solved.values[-1])
    # (records up to each value) - q (records)
    minus_q = np.full((len(order), 1), -q)
    contrast = np.hstack((np.eye(len(order)), minus_q))
    below = contrast @ solved.values
    variances = np.einsum("ij,jk,ik->i", contrast, solved.covariance, contrast)
    variances += max(total, 0.0) * q * (1 - q) if sampled else 0.0
    below[-1] = max(below[-1], 0.0)  # all records lie below the last end
    variances[-1] = max(variances[-1], 0.0)
    sigmas = np.sqrt(np.maximum(variances, 0.0))
    chosen = np.flatnonzero(quantile_bins(below, sigmas, reach))
    total_variance = max(float(solved.covariance[-1, -1]), 0.0)
    is_too_few = total <= reach.of(math.sqrt(total_variance))
    possible = [] if is_too_few else chosen
    return _quantile_among(numbers, order, possible, solved.values[:-1], q)


def quantile_between(
    count: Count,
    records: Sequence[Factor],
    numbers: ValueRange,
    reach: Reach,
    q: float,
) -> tuple[EstimateInterval, Note | None]:
    """Return the quantile, and its note, from intervals of counts of records that were measured together with others.

    Value j is left out where fewer than q of the records lie up to it even if as many do as may, or more than q below it. Of
    the probability one half is for the number of records, and a quarter for each of these two.
    """
    order, steps = _steps(numbers)
    queries = _weighted(records, numbers.place, steps)
    counts_up_to = [count(query, reach.each) for query in queries]
    low, high = _ends(counts_up_to)
    enough_up_to = high[:-1] >= q * low[-1]
    previous_not_above = low[:-2] <= q * high[-1]
    not_too_many_below = np.concatenate(([True], previous_not_above))
    enough_up_to[-1] = True
    chosen = np.flatnonzero(enough_up_to & not_too_many_below)
    is_too_few = low[-1] <= 0
    counts = _estimates(counts_up_to[:-1])
    return _quantile_among(numbers, order, [] if is_too_few else chosen, counts, q)


def _weighted(
    records: Sequence[Factor],
    place: int,
    vectors: Sequence[Floats],
) -> list[list[Factor]]:
    """Return a query for each vector: the records, weighed by the vector on the axis at `place`."""
    return [[*records, (place, vector)] for vector in vectors]


def _steps(numbers: ValueRange) -> tuple[Integers, list[Floats]]:
    """Return the codes that are numbers, in order, and weights of all up to each of them; the last ones are of all numbers."""
    is_number = numbers.is_number
    sort_keys = np.where(is_number, numbers.low, np.inf)
    order = np.argsort(sort_keys, kind="stable")[: int(is_number.sum())]
    steps = []
    for place in range(len(order)):
        up_to = np.zeros(len(is_number))
        up_to[order[: place + 1]] = 1.0
        steps.append(up_to)
    steps.append(is_number.astype(np.float64))
    return order, steps


def _quantile_among(
    numbers: ValueRange,
    order: Integers,
    chosen: Sequence[int] | Integers,
    counts: Floats,
    q: float,
) -> tuple[EstimateInterval, Note | None]:
    """Return the quantile among the chosen values of an order, and its note, by counts up to each value."""
    lows = numbers.low[order]
    highs = numbers.high[order]
    if not len(chosen):
        return EstimateInterval.without_estimate(lows[0], highs[-1]), TOO_FEW
    counts = np.maximum.accumulate(np.clip(counts, 0.0, None))
    wanted = q * counts[-1]
    place = min(int(np.searchsorted(counts, wanted)), len(order) - 1)
    below = counts[place - 1] if place else 0.0
    part = (wanted - below) / (counts[place] - below) if counts[place] > below else 0.5
    low = float(lows[chosen[0]])
    high = float(highs[chosen[-1]])
    note = _note_on_open_end(low, high)
    width = highs[place] - lows[place]
    if not math.isfinite(width):
        return EstimateInterval.without_estimate(low, high), note
    estimate = float(lows[place] + part * width)
    return EstimateInterval.around(estimate, low, high), note


def _note_on_open_end(low: float, high: float) -> Note | None:
    """Return what can be said where an interval reaches into a bin that has no end; None where it does not."""
    if math.isinf(high) and math.isinf(low):
        return SAYS_NOTHING
    if math.isinf(high):
        return Note(f"at least {low:g}: it may lie in an open bin, which has no end")
    if math.isinf(low):
        return Note(f"at most {high:g}: it may lie in an open bin, which has no end")
    return None
