"""The counts of one axis from all of its tables, given the number of records, where noise has chosen which values are merged.

With t the counts of the axis, y its own table, whose cells have the variance 1/q, and z_k pooled larger tables over part k,
whose cells have the variance 1/w_k, generalised least squares weighs y by q and z_k by w_k. Where the noise of y decides what
is merged, that is biased: z corrects y where y is large, and a small y, which was merged, is left alone. So a value takes from
z a part r that changes evenly with y, whether it was merged or not: 0 where y is at most the count below which values are
merged, 1 from `_RAMP` deviations above it. The weight of y is a = 1 - r (1 - q/(q + w)). It depends on the noise e of y, so
the bias is E[a(y) e] = E[a'(y)] / q (Stein 1981): it is known, and taken out. The estimate is unbiased.

A question about other axes as well is answered where larger tables tell its values apart, so it is asked of values that the
noise of y took upwards. There z, whose noise is fresh, is taken whole, and y has the weight r q/(q + w): the same way, from the
other end, with its own correction.

The variance is that of the weights as they are, and the square of each correction: E[(a e - a'/q)^2] = E[a^2/q + a'^2/q^2].
Tables tell of differences between blocks alone: what they say of the number of records n is in its own estimate, so the
counts of an axis are independent of n given n. Of discrete Laplace noise the correction is an approximation.
DP: post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.answers.tables import Part
from marginweave.base.arrays import Floats, Integers

_LEAST = 1e-9
"""Of the precision of counts that are not to be used: they decide what no other count says anything of."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Taken:
    """What part of the precision of each cell is taken, what one record more of a code adds to that, and which code it is."""

    parts: Floats
    rises: Floats
    codes: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """Counts that a solution is made of: `sums` says which blocks each cell adds up, shape (blocks, cells).

    What a table adds up to is left out: cells have `shares` of it, and it has the variance `variance`.
    """

    sums: Floats
    counts: Floats
    precision: Floats
    shares: Floats
    variance: float
    taken: _Taken

    @property
    def used(self) -> Floats:
        """The precision that is taken of each cell."""
        return self.taken.parts * self.precision


def solve_axis(own: AxisTable, larger: Sequence[AxisTable], trust: Trust | None, *, beside: bool) -> Axis:
    """The counts of an axis from its own pooled tables and larger ones; without `trust` no value was merged by their noise.

    With `beside` it is for questions about other axes as well, which larger tables have to tell apart.
    """
    blocks = _refinement(own.part, larger)
    sizes, exact = np.bincount(blocks.blocks), own.precision
    alone, *others = sources = _sources(own, larger, blocks, trust, beside=beside)
    matrix = np.sum([(one.sums * one.used) @ one.sums.T for one in sources], axis=0)
    told = np.sum([one.sums @ (one.used * (one.counts - one.shares * one.counts.sum())) for one in sources], axis=0)
    each = np.sum([one.sums @ (one.used * one.shares) for one in sources], axis=0)  # what a record more adds to that
    inverse = np.asarray(np.linalg.inv(matrix), np.float64)
    spread = inverse.sum(axis=0)
    slopes = spread / spread.sum()
    given = inverse - np.outer(spread, slopes)  # with the sum of all counts held
    means, covariance = given @ told, np.zeros(given.shape)
    for one in sources:
        effect = given @ one.sums * one.used
        whole = effect @ one.shares
        covariance += effect / one.precision @ effect.T - np.outer(whole, whole) * one.variance
    corrections = [-given * alone.taken.rises / sizes * (1 - np.diagonal(given) * alone.used)]
    for one in others:
        at = blocks.blocks[one.taken.codes]
        effect = given @ one.sums
        corrections.append(effect * (one.precision * one.taken.rises * effect[at, np.arange(len(at))] / sizes[at]))
    moved = np.concatenate(corrections, axis=1)
    return Axis(
        blocks=blocks,
        means=means + moved.sum(axis=1),
        slopes=slopes + given @ each,
        covariance=covariance + moved @ moved.T,
        inside=own.counts,
        variance=1 / exact,
    )


def _sources(
    own: AxisTable, larger: Sequence[AxisTable], blocks: Part, trust: Trust | None, *, beside: bool
) -> list[_Source]:
    """The blocks of the own table, then the larger ones, and what is taken of each: of one of both kinds by `trust`."""
    weight = own.precision / (own.precision + sum(one.precision for one in larger))
    of_own, of_others = (trust, None) if beside and larger else (None, trust)
    sizes = np.bincount(blocks.blocks)
    found = [
        _Source(
            sums=np.eye(blocks.size),
            counts=blocks.sums(own.counts),
            precision=own.precision / sizes,
            shares=sizes / sizes.sum(),
            variance=float(sizes.sum() / own.precision),
            taken=_taken(blocks, weight, of_own),
        )
    ]
    for one in larger:
        size = one.part.size
        found.append(
            _Source(
                sums=blocks.values(np.eye(size)[:, one.part.blocks]).T,
                counts=one.counts,
                precision=np.full(size, one.precision),
                shares=np.full(size, 1 / size),
                variance=size / one.precision,
                taken=_taken(one.part, 1 - weight, of_others),
            )
        )
    return found


def _taken(cells: Part, weight: float, trust: Trust | None) -> _Taken:
    """What is taken of cells.

    What has the weight a where all is taken is to have r a: that takes r (1 - a) / (1 - r a). In a cell of several codes the
    smallest r decides.
    """
    if trust is None:
        return _Taken(parts=np.ones(cells.size), rises=np.zeros(cells.size), codes=np.zeros(cells.size, np.int64))
    order = np.lexsort((trust.parts, cells.blocks))
    codes = order[np.searchsorted(cells.blocks[order], np.arange(cells.size))]
    left = 1 - trust.parts[codes] * weight
    return _Taken(
        parts=np.maximum(trust.parts[codes] * (1 - weight) / left, _LEAST),
        rises=(1 - weight) / left**2 * trust.slopes[codes],
        codes=codes,
    )


def _refinement(whole: Part, larger: Sequence[AxisTable]) -> Part:
    """The coarsest part of an axis that is at least as fine as those of all these tables; one block without any."""
    if not larger:
        return Part(axis=whole.axis, blocks=np.zeros(len(whole.blocks), np.int64))
    parts = np.stack([one.part.blocks for one in larger])
    return Part(axis=whole.axis, blocks=np.unique(parts, axis=1, return_inverse=True)[1].reshape(-1))
