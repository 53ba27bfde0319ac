"""Counts of values that were measured together with others, between what is inside of them and what is around them.

Of a question with 0/1 weights w_a of the codes of its columns, let l_a and u_a weigh a block of values measured together by
the least and by the largest w_a in it. Records that u counts and w does not have in some column a value of u_a - w_a. So with
n(.) the number of records, the truth t has

    max(n(l), n(u) - sum_a n(u_a - w_a))  <=  t  <=  min(n(u), n(l) + sum_a n(w_a - l_a)).

n(l) and n(u) are measured, and so is every value of a column by itself. The estimate takes values of one block to be alike in
all other columns; the interval takes nothing to be so. Where noise makes the bounds contradict each other, both are inside.
DP: post-processing of released counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from marginweave.answers.intervals import EstimateInterval, Reach, between_bounds, count_ends
from marginweave.answers.least_squares import LeastSquares, Weights
from marginweave.answers.tables import FEWEST, Part
from marginweave.base.arrays import Floats

if TYPE_CHECKING:
    from marginweave.answers.model import ModelAnswers  # numba


def count_between(squares: LeastSquares | ModelAnswers, weights: Weights, reach: Reach) -> EstimateInterval:
    """The count of one query, weights of shape (1, codes), of which `squares` do not tell all values apart.

    Each of the four bounds is off on its side with half the probability that is allowed there.

    Raises:
        NotMeasuredError: the axes were not measured together.
    """
    around = dict[int, Floats]()
    ends = np.zeros((2, 2))  # the sums of n(u_a - w_a) and n(w_a - l_a): estimates, deviations
    for part in squares.divided(weights):
        asked = weights[part.axis]
        least, most, _ = around[part.axis] = weights_around(part, asked, squares.alone.counts(part.axis))[:, 0]
        beside = np.stack([most - asked[0], asked[0] - least])
        if beside.any():
            found = squares.alone.solve({part.axis: beside})
            ends += np.stack([found.values, np.sqrt(np.diagonal(found.covariance)) * beside.any(axis=1)])
    solved = squares.solve(around)
    numbers = between(solved.values, np.diagonal(solved.covariance)[:2], ends, reach)
    estimate, low, high = (int(number) for number in numbers)
    return EstimateInterval(estimate=estimate, low=low, high=high)


def weights_around(part: Part, asked: Floats, counts: Floats) -> Floats:
    """Of weights of shape (queries, codes) the l, the u and the likely ones, by the `counts` of codes: thrice that shape."""
    counts, inside = np.maximum(counts, FEWEST), part.sums(asked)
    own = inside == np.bincount(part.blocks), inside > 0, part.sums(asked * counts) / part.sums(counts)
    return np.stack(own).astype(np.float64)[..., part.blocks]


def between(counts: Floats, variances: Floats, ends: Floats, reach: Reach) -> Floats:
    """Estimate, low and high, of any shape, as `count_between` has them.

    From n(l), n(u) and the likely count, the variances of the first two, and the sums of n(u_a - w_a) and n(w_a - l_a) with
    their deviations.
    """
    (inner, outer, likely), sds = counts, np.sqrt(np.maximum(variances, 0.0))
    bounds = np.stack(np.broadcast_arrays(inner, outer - ends[0, 0], outer, inner + ends[0, 1]))
    spread = np.stack(np.broadcast_arrays(sds[0], sds[1] + ends[1, 0], sds[1], sds[0] + ends[1, 1]))
    _, lows, highs = count_ends(bounds, spread**2, replace(reach, level=1 - (1 - reach.level) / 2))
    below = lows[:2].argmax(axis=0)[None]
    above = 2 + highs[2:].argmin(axis=0)[None]
    smaller, larger = (
        np.concatenate([np.take_along_axis(ends, place, axis=0) for ends in (lows, highs)]) for place in (below, above)
    )
    low, high = between_bounds(smaller, larger)
    low = np.maximum(np.floor(low), 0.0)
    high = np.ceil(high)
    return np.stack([np.rint(np.clip(likely, low, high)), low, high])
