"""Counts of values that were measured together with others, between what is inside of them and what is around them.

Of a question with 0/1 weights w_a of the codes of its columns, let l_a and u_a weigh a block of values measured together by
the least and by the largest w_a in it. Records that u counts and w does not have in some column a value of u_a - w_a. So with
n(.) the number of records, the truth t has

    max(n(l), n(u) - sum_a n(u_a - w_a))  <=  t  <=  min(n(u), n(l) + sum_a n(w_a - l_a)).

n(l) and n(u) are measured, and so is every value of a column by itself. The estimate takes values of one block to be alike in
all other columns; the interval takes nothing to be so.
DP: post-processing of released counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from marginweave.schemas.arrays import Floats
from marginweave.tasks.answers.intervals import EstimateInterval, Reach, count_ends
from marginweave.tasks.answers.least_squares import LeastSquares, Weights

if TYPE_CHECKING:
    from marginweave.tasks.answers.model import ModelAnswers  # numba

_FEWEST = 1e-6
"""Records of a value whose noisy count is not positive."""


def count_between(squares: LeastSquares | ModelAnswers, weights: Weights, reach: Reach) -> EstimateInterval:
    """The count of one query, weights of shape (1, codes), of which `squares` do not tell all values apart.

    Each of the four bounds is off on its side with half the probability that is allowed there.

    Raises:
        NotMeasuredError: the axes were not measured together.
    """
    around, ends = (
        dict[int, Floats](),
        np.zeros((2, 2)),
    )  # the sums of n(u_a - w_a) and n(w_a - l_a): estimates, deviations
    for part in squares.divided(weights):
        asked, size = weights[part.axis][0], part.size
        counts = np.maximum(squares.alone.counts(part.axis), _FEWEST)
        least, most = np.ones(size), np.zeros(size)
        np.minimum.at(least, part.blocks, asked)
        np.maximum.at(most, part.blocks, asked)
        likely = np.bincount(part.blocks, counts * asked) / np.bincount(part.blocks, counts)
        around[part.axis] = np.stack([least, most, likely])[:, part.blocks]
        beside = np.stack([around[part.axis][1] - asked, asked - around[part.axis][0]])
        if beside.any():
            found = squares.alone.solve({part.axis: beside})
            ends += np.stack([found.values, np.sqrt(np.diagonal(found.covariance)) * beside.any(axis=1)])
    solved = squares.solve(around)
    inner, outer, likely = solved.values.tolist()
    sds = np.sqrt(np.maximum(np.diagonal(solved.covariance), 0.0))
    bounds = np.array([inner, outer - ends[0, 0], outer, inner + ends[0, 1]])
    spread = np.array([sds[0], sds[1] + ends[1, 0], sds[1], sds[0] + ends[1, 1]])
    _, lows, highs = count_ends(bounds, spread**2, replace(reach, level=1 - (1 - reach.level) / 2))
    low, high = sorted((float(lows[:2].max()), float(highs[2:].min())))
    return EstimateInterval(estimate=round(min(max(likely, low), high)), low=int(low), high=int(high))
