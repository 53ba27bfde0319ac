"""Counts of values that were measured together with others: bounds from the blocks inside of them and around them.

Of a question with 0/1 weights w_a of the codes of its columns, let l_a and u_a weigh a block of values measured together by
the least and by the largest w_a in it. Records that u counts and w does not have in some column a value of u_a - w_a. So with
n(.) the number of records, the truth t has

    max(n(l), n(u) - sum_a n(u_a - w_a))  <=  t  <=  min(n(u), n(l) + sum_a n(w_a - l_a)).

n(l) and n(u) are measured, and so is every value of a column by itself. The estimate takes values of one block to be alike in
all other columns; the interval takes nothing to be so. Where noise makes the bounds contradict each other, both are inside.
DP: post-processing of released counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marginweave.answers.intervals import EstimateInterval, Reach, between_bounds, count_ends
from marginweave.answers.least_squares import LeastSquares, Weights
from marginweave.answers.tables import FEWEST, Part
from marginweave.base.arrays import Floats, Integers

if TYPE_CHECKING:
    from marginweave.answers.model import ModelAnswers  # numba


def count_between(
    squares: LeastSquares | ModelAnswers,
    weights: Weights,
    reach: Reach,
) -> EstimateInterval:
    """Return the count of one query, weights of shape (1, codes), where `squares` do not tell all values apart.

    Each of the four bounds is off on its side with half the probability that is allowed there.

    Raises:
        NotMeasuredError: the axes were not measured together.
    """
    around = dict[int, Floats]()
    ends = np.zeros((2, 2))  # the sums of n(u_a - w_a) and n(w_a - l_a): estimates, deviations
    for part in squares.finest_parts(weights):
        query = weights[part.axis]
        if part.tells_all:  # nothing was measured together
            around[part.axis] = np.repeat(query, 3, axis=0)
            continue
        counts = squares.single_axes.counts(part.axis)
        around_queries = weights_around(part, query, counts)
        around[part.axis] = around_queries[:, 0]
        least, most, _ = around[part.axis]
        removed = most - query[0]
        added = query[0] - least
        differences = np.stack([removed, added])
        if differences.any():
            solved = squares.single_axes.solve({part.axis: differences})
            sds = np.sqrt(np.diagonal(solved.covariance))
            has_values = differences.any(axis=1)
            ends += np.stack([solved.values, sds * has_values])
    solved = squares.solve(around)
    variances = np.diagonal(solved.covariance)[:2]
    numbers = between(solved.values, variances, ends, reach)
    estimate, low, high = (int(number) for number in numbers)
    return EstimateInterval(
        estimate=estimate,
        low=low,
        high=high,
    )


def weights_around(part: Part, weights: Floats, counts: Floats) -> Floats:
    """Return the l, the u and the likely weights of queries, shape (3, queries, codes), by the `counts` of codes.

    `weights` are 0 or 1, shape (queries, codes).
    """
    counts = np.maximum(counts, FEWEST)
    weight_in_block = part.sums(weights)
    least = weight_in_block == np.bincount(part.blocks)
    most = weight_in_block > 0
    likely = part.sums(weights * counts) / part.sums(counts)
    of_blocks = np.stack((least, most, likely))
    return of_blocks.astype(np.float64)[..., part.blocks]


def between(
    counts: Floats,
    variances: Floats,
    ends: Floats,
    reach: Reach,
) -> Floats:
    """Return estimate, low and high, of any shape, as `count_between` has them.

    Args:
        counts: n(l), n(u) and the likely count.
        variances: those of n(l) and n(u).
        ends: the sums of n(u_a - w_a) and n(w_a - l_a), shape (2, 2, …): estimates, then deviations.
        reach: how far noise goes.
    """
    inner, outer, likely = counts
    removed, added = ends[0]
    inner_sd, outer_sd = np.sqrt(np.maximum(variances, 0.0))
    removed_sd, added_sd = ends[1]
    # n(l), n(u) - sum_a n(u_a - w_a)  <=  t  <=  n(u), n(l) + sum_a n(w_a - l_a)
    bounds = np.broadcast_arrays(inner, outer - removed, outer, inner + added)
    deviations = np.broadcast_arrays(inner_sd, outer_sd + removed_sd, outer_sd, inner_sd + added_sd)
    variances_of_bounds = np.stack(deviations) ** 2
    shared_reach = reach.shared_by(2)
    _, lows, highs = count_ends(np.stack(bounds), variances_of_bounds, shared_reach)
    largest_low = lows[:2].argmax(axis=0)[None]
    smallest_high = 2 + highs[2:].argmin(axis=0)[None]
    smaller = _ends_at(largest_low, lows, highs)
    larger = _ends_at(smallest_high, lows, highs)
    low, high = between_bounds(smaller, larger)
    low = np.maximum(np.floor(low), 0.0)
    high = np.ceil(high)
    estimate = np.rint(np.clip(likely, low, high))
    return np.stack([estimate, low, high])


def _ends_at(places: Integers, lows: Floats, highs: Floats) -> Floats:
    """Return the low and high ends of the bounds at `places` of the first axis."""
    low = np.take_along_axis(lows, places, axis=0)
    high = np.take_along_axis(highs, places, axis=0)
    return np.concatenate([low, high])
