"""The counts of one axis from all of its tables, given the number of records, where noise has chosen which values are merged.

With t the counts of the axis, y its own table, whose cells have the variance 1/q, and z_k pooled larger tables over part k,
whose cells have the variance 1/w_k, generalised least squares weighs y by q and z_k by w_k. Where the noise of y decides what
is merged, that is biased: z corrects y where y is large, and a small y, which was merged, is left alone. So a value takes from
z a part r that changes evenly with y, whether it was merged or not: 0 where y is at most the count below which values are
merged, 1 from `_RAMP` deviations above it. The weight of y is a = 1 - r (1 - q/(q + w)). It depends on the noise e of y, so
the bias is E[a(y) e] = E[a'(y)] / q (Stein 1981): it is known, and taken out. The estimate is unbiased.

The variance is that of the weights as they are, and the square of each correction: E[(a e - a'/q)^2] = E[a^2/q + a'^2/q^2].
Larger tables tell of differences between blocks alone: what they say of the number of records n is in its own estimate, so the
counts of an axis are independent of n given n. Of discrete Laplace noise the correction is an approximation.
DP: post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.answers.tables import Part
from marginweave.base.arrays import Floats, Integers

_RAMP = 4.0
"""Standard deviations of the noise of a count from where larger tables tell nothing of it to where they tell all they can."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """What is known of the counts t of an axis, given their sum n: t = t_0 + n d, with the covariance of t_0.

    Both are over blocks, the coarsest division that is at least as fine as every part of larger tables: `means` t_0, `slopes`
    d, `covariance`. Inside a block the axis's own counts `inside` decide, whose cells have the variance `variance`.
    """

    blocks: Part
    means: Floats
    slopes: Floats
    covariance: Floats
    inside: Floats
    variance: float

    def estimates(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """For weights of the codes, shape (queries, codes): at n = 0, for each record, and their covariance given n."""
        sizes = np.bincount(self.blocks.blocks)
        level = self.blocks.sums(weights) / sizes
        rest = weights - level[:, self.blocks.blocks]
        covariance = level @ self.covariance @ level.T + rest @ rest.T * self.variance
        return level @ self.means + rest @ self.inside, level @ self.slopes, covariance


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisTable:
    """Pooled counts of an axis over a part, each with the variance 1 / `precision`."""

    part: Part
    counts: Floats
    precision: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Trust:
    """The part r of what larger tables tell that each code takes, shape (codes,), and how much a record more adds to it."""

    parts: Floats
    slopes: Floats

    @classmethod
    def of(cls, tables: Sequence[tuple[Floats, float]], multiples: Floats) -> Trust:
        """By the axis's own tables, counts and variances; values were merged where one is below so many deviations."""
        sds = np.sqrt([[variance] for _, variance in tables])
        above = (np.stack([counts for counts, _ in tables]) / sds - multiples) / _RAMP
        least = above.argmin(axis=0)
        parts = np.take_along_axis(above, least[None], axis=0)[0]
        slopes = np.where((parts > 0) & (parts < 1), 1 / (_RAMP * sds[least, 0]), 0.0)
        return cls(parts=np.clip(parts, 0.0, 1.0), slopes=slopes)


def solve_axis(own: AxisTable, larger: Sequence[AxisTable], trust: Trust | None) -> Axis:
    """The counts of an axis from its own pooled tables and larger ones; without `trust` no value was merged by their noise."""
    blocks = _refinement(own.part, larger)
    sizes, exact = np.bincount(blocks.blocks), own.precision
    shares = _taken(own, larger, trust)
    matrix, told = np.diag(exact / sizes), exact / sizes * blocks.sums(own.counts)
    each = np.zeros(len(sizes))  # of what is told, what a record more adds
    sums = [blocks.values(np.eye(one.part.size)[:, one.part.blocks]).T for one in larger]
    for one, inside, (taken, *_) in zip(larger, sums, shares, strict=True):
        weighted = inside * (taken * one.precision)
        matrix = matrix + weighted @ inside.T
        told = told + weighted @ (one.counts - one.counts.mean())
        each = each + weighted.sum(axis=1) / one.part.size
    inverse = np.asarray(np.linalg.inv(matrix), np.float64)
    spread = inverse.sum(axis=0)
    slopes = spread / spread.sum()
    given = inverse - np.outer(spread, slopes)  # with the sum of all counts held
    means, covariance = given @ told, given * (exact / sizes) @ given.T
    for one, inside, (taken, codes, rises) in zip(larger, sums, shares, strict=True):
        effect = given @ inside
        weighted = effect * taken
        covariance += one.precision * (weighted @ weighted.T - np.outer(*[weighted.sum(axis=1)] * 2) / one.part.size)
        some = np.flatnonzero(rises)
        at = blocks.blocks[codes[some]]
        corrections = effect[:, some] * (one.precision * rises[some] * effect[at, some] / sizes[at])
        means, covariance = means + corrections.sum(axis=1), covariance + corrections @ corrections.T
    return Axis(
        blocks=blocks,
        means=means,
        slopes=slopes + given @ each,
        covariance=covariance,
        inside=own.counts,
        variance=1 / exact,
    )


def _taken(own: AxisTable, larger: Sequence[AxisTable], trust: Trust | None) -> list[tuple[Floats, Integers, Floats]]:
    """Of each larger table the part of its precision that each block has, the code that decides it, and what one record adds.

    Where y has the weight 1 - r (1 - a), a = q / (q + w), this part is r a / (1 - r (1 - a)). The smallest r decides.
    """
    least = own.precision / (own.precision + sum(one.precision for one in larger))
    found = []
    for one in larger:
        if trust is None:
            found.append((np.ones(one.part.size), np.zeros(one.part.size, np.int64), np.zeros(one.part.size)))
            continue
        order = np.lexsort((trust.parts, one.part.blocks))
        codes = order[np.searchsorted(one.part.blocks[order], np.arange(one.part.size))]
        parts, of_own = trust.parts[codes], 1 - trust.parts[codes] * (1 - least)
        found.append((parts * least / of_own, codes, least / of_own**2 * trust.slopes[codes]))
    return found


def _refinement(whole: Part, larger: Sequence[AxisTable]) -> Part:
    """The coarsest part of an axis that is at least as fine as those of all these tables; one block without any."""
    if not larger:
        return Part(axis=whole.axis, blocks=np.zeros(len(whole.blocks), np.int64))
    parts = np.stack([one.part.blocks for one in larger])
    return Part(axis=whole.axis, blocks=np.unique(parts, axis=1, return_inverse=True)[1].reshape(-1))
