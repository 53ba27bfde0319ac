"""Estimates the counts of one axis from all of its tables, given the number of records, where noise chose the merged values.

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

_LEAST_PART = 1e-9
"""Part of the precision of counts that are not to be used. They decide only where no other count says anything."""
_RAMP = 4.0
"""Standard deviations of the noise of a count from where larger tables say nothing of it to where they say all they can."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """Estimates of the counts t of an axis, given their sum n: t = t_0 + n d, with the covariance of t_0.

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
        """Return estimates of weighted sums of the counts, for weights of shape (queries, codes).

        Returns:
            The estimates at n = 0, what each record adds to them, and their covariance given n.
        """
        if self.blocks.tells_all:  # no weight deviates from the mean of its block
            block_means = self.blocks.values(weights)
            at_zero = block_means @ self.means
            covariance = block_means @ self.covariance @ block_means.T
            return at_zero, block_means @ self.slopes, covariance
        block_means = self.blocks.sums(weights) / np.bincount(self.blocks.blocks)
        deviations = weights - block_means[:, self.blocks.blocks]
        at_zero = block_means @ self.means + deviations @ self.inside
        slopes = block_means @ self.slopes
        covariance = (
            block_means @ self.covariance @ block_means.T
            + deviations @ deviations.T * self.variance
        )
        return at_zero, slopes, covariance


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisTable:
    """Pooled counts of an axis over a part, each with the variance 1 / `precision`."""

    part: Part
    counts: Floats
    precision: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Trust:
    """The part r that each code takes from larger tables, shape (codes,), and `slopes`, how much one record more adds to r."""

    parts: Floats
    slopes: Floats

    @classmethod
    def of(cls, tables: Sequence[tuple[Floats, float]], multiples: Floats) -> Trust:
        """Return the trust that follows from the axis's own tables, each with its counts and their variance.

        `multiples` has for each code the number of standard deviations below which a table merged it.
        """
        variances = [[variance] for _, variance in tables]
        sds = np.sqrt(variances)
        counts = np.stack([table_counts for table_counts, _ in tables])
        heights = (counts / sds - multiples) / _RAMP
        lowest_table = heights.argmin(axis=0)
        parts = np.take_along_axis(heights, lowest_table[None], axis=0)[0]
        is_on_ramp = (parts > 0) & (parts < 1)
        slopes = np.where(is_on_ramp, 1 / (_RAMP * sds[lowest_table, 0]), 0.0)
        return cls(parts=np.clip(parts, 0.0, 1.0), slopes=slopes)


@dataclass(frozen=True, kw_only=True, eq=False)
class _CellTrust:
    """The part of the precision of each cell that is used.

    `slopes` is how much one record more of a code adds to that part, and `codes` says which code of the cell it is.
    """

    parts: Floats
    slopes: Floats
    codes: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """Counts that a solution is made of: `sums` says which blocks each cell adds up, shape (blocks, cells).

    The sum of the table is left out: cells have `shares` of it, and it has the variance `variance`.
    """

    sums: Floats
    counts: Floats
    precision: Floats
    shares: Floats
    variance: float
    trust: _CellTrust

    @property
    def used_precision(self) -> Floats:
        """Precision of each cell, as far as it is used."""
        return self.trust.parts * self.precision


def solve_axis(
    own_table: AxisTable,
    larger: Sequence[AxisTable],
    trust: Trust | None,
    *,
    any_joint_query: bool,
) -> Axis:
    """Return estimates of the counts of an axis from its own pooled tables and from larger ones.

    Args:
        own_table: pooled tables of this axis alone.
        larger: pooled larger tables, one for each part of the axis.
        trust: what codes take from larger tables; None where no value was merged by noise.
        any_joint_query: whether any of the queries has other axes as well, which larger tables have to tell apart.
    """
    blocks = _common_refinement(own_table.part, larger)
    sources = _sources(own_table, larger, blocks, trust, any_joint_query=any_joint_query)
    # (sum S W S') t = sum S W z, with the sums S, the used precision W and the counts z of each source
    matrix = np.sum(
        [(source.sums * source.used_precision) @ source.sums.T for source in sources], axis=0
    )
    weighted_counts = np.sum([_weighted_counts(source) for source in sources], axis=0)
    weighted_shares = np.sum([_weighted_shares(source) for source in sources], axis=0)
    inverse = np.asarray(np.linalg.inv(matrix), np.float64)
    spread = inverse.sum(axis=0)
    slopes = spread / spread.sum()
    response = inverse - np.outer(spread, slopes)  # with the sum of all counts fixed
    means = response @ weighted_counts
    corrections = _corrections(sources, response, blocks)
    return Axis(
        blocks=blocks,
        means=means + corrections.sum(axis=1),
        slopes=slopes + response @ weighted_shares,
        covariance=_covariance(sources, response) + corrections @ corrections.T,
        inside=own_table.counts,
        variance=1 / own_table.precision,
    )


def _weighted_counts(source: _Source) -> Floats:
    """Return S W (z - shares times the sum of z) of a source: its counts less what they say of the number of records."""
    differences = source.counts - source.shares * source.counts.sum()
    return source.sums @ (source.used_precision * differences)


def _weighted_shares(source: _Source) -> Floats:
    """Return what one record more adds to `_weighted_counts`."""
    return source.sums @ (source.used_precision * source.shares)


def _covariance(sources: Sequence[_Source], response: Floats) -> Floats:
    """Return the covariance of the means from the noise of all sources, without corrections."""
    covariance = np.zeros(response.shape)
    for source in sources:
        effect = response @ source.sums * source.used_precision
        effect_of_sum = effect @ source.shares
        noise_of_cells = effect / source.precision @ effect.T
        noise_of_sum = np.outer(effect_of_sum, effect_of_sum) * source.variance
        covariance += noise_of_cells - noise_of_sum
    return covariance


def _corrections(sources: Sequence[_Source], response: Floats, blocks: Part) -> Floats:
    """Return the bias to take out of the means, shape (blocks, cells of all sources). The own table is the first source."""
    sizes = np.bincount(blocks.blocks)
    own_source = sources[0]
    # E[a(y) e] = E[a'(y)] / q
    damping = 1 - np.diagonal(response) * own_source.used_precision
    corrections = [-response * own_source.trust.slopes / sizes * damping]
    for source in sources[1:]:
        block_of_cell = blocks.blocks[source.trust.codes]
        effect = response @ source.sums
        effect_on_own_block = effect[block_of_cell, np.arange(len(block_of_cell))]
        rises = source.precision * source.trust.slopes * effect_on_own_block / sizes[block_of_cell]
        corrections.append(effect * rises)
    return np.concatenate(corrections, axis=1)


def _sources(
    own_table: AxisTable,
    larger: Sequence[AxisTable],
    blocks: Part,
    trust: Trust | None,
    *,
    any_joint_query: bool,
) -> list[_Source]:
    """Return the own table over blocks, then the larger ones, each with the part of its precision that is used.

    `trust` applies to the own table where questions are about other axes as well and there are larger tables, else to these.
    """
    trust_in_larger = trust
    trust_in_own = None
    if any_joint_query and larger:
        trust_in_larger = None
        trust_in_own = trust
    larger_precision = sum(table.precision for table in larger)
    own_weight = own_table.precision / (own_table.precision + larger_precision)
    sizes = np.bincount(blocks.blocks)
    own_source = _Source(
        sums=np.eye(blocks.size),
        counts=blocks.sums(own_table.counts),
        precision=own_table.precision / sizes,
        shares=sizes / sizes.sum(),
        variance=float(sizes.sum() / own_table.precision),
        trust=_cell_trust(blocks, own_weight, trust_in_own),
    )
    sources = [own_source]
    for table in larger:
        size = table.part.size
        cells_of_codes = np.eye(size)[:, table.part.blocks]
        source = _Source(
            sums=blocks.values(cells_of_codes).T,
            counts=table.counts,
            precision=np.full(size, table.precision),
            shares=np.full(size, 1 / size),
            variance=size / table.precision,
            trust=_cell_trust(table.part, 1 - own_weight, trust_in_larger),
        )
        sources.append(source)
    return sources


def _cell_trust(cells: Part, weight: float, trust: Trust | None) -> _CellTrust:
    """Return the part of the precision of each cell that is used; all of it without `trust`.

    A cell that has the weight a where all is used is to have r a: that uses r (1 - a) / (1 - r a). In a cell of several codes
    the smallest r decides.
    """
    if trust is None:
        return _CellTrust(
            parts=np.ones(cells.size),
            slopes=np.zeros(cells.size),
            codes=np.zeros(cells.size, np.int64),
        )
    order = np.lexsort((trust.parts, cells.blocks))
    first_of_cells = np.searchsorted(cells.blocks[order], np.arange(cells.size))
    codes = order[first_of_cells]
    denominator = 1 - trust.parts[codes] * weight
    used_parts = trust.parts[codes] * (1 - weight) / denominator
    return _CellTrust(
        parts=np.maximum(used_parts, _LEAST_PART),
        slopes=(1 - weight) / denominator**2 * trust.slopes[codes],
        codes=codes,
    )


def _common_refinement(full_part: Part, larger: Sequence[AxisTable]) -> Part:
    """Return the coarsest part that is at least as fine as those of all larger tables; a single block without any."""
    if not larger:
        single_block = np.zeros(len(full_part.blocks), np.int64)
        return Part(axis=full_part.axis, blocks=single_block)
    parts = np.stack([table.part.blocks for table in larger])
    _, blocks = np.unique(parts, axis=1, return_inverse=True)
    return Part(axis=full_part.axis, blocks=blocks.reshape(-1))
