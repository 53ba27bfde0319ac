"""Confidence intervals of released counts, from released counts and the sigma of their noise alone.

Every interval is about the count that the noise was added to: of the rows as prepared, contributions bounded. It comes from
the count as it was drawn. The published count, made consistent afterwards, may lie outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Flags, Integers
from marginweave.base.budget import NoiseName
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import PossibleCells
from marginweave.estimate.holders import Holders
from marginweave.estimate.marginals import compression_of
from marginweave.estimate.normalize import find_rows
from marginweave.mechanisms.catalogue import least_selected, noise_reach
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression
from marginweave.observations.tables import Marginals, Observation

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Both ends, included, of an interval for every count; shape of the counts, int64, records. Never below 0.

    `measured` is the count as drawn, 0 where noise made it negative; it lies inside. It is -1 where the count was measured only
    as part of a sum. `impossible` says where a rule allows no record: there all three are 0. `unkept` says where a rule that
    changed no row allows none of the synthetic records. Both are None where no rule was considered.
    """

    low: Integers
    high: Integers
    measured: Integers
    impossible: Flags | None = None
    unkept: Flags | None = None

    def without(self, impossible: Flags) -> Intervals:
        """Return the intervals with exactly 0 where a rule allows no record."""
        return replace(
            self,
            low=np.where(impossible, 0, self.low),
            high=np.where(impossible, 0, self.high),
            measured=np.where(impossible, 0, self.measured),
            impossible=impossible,
        )

    def counts_to_show(self, adjusted: Integers) -> Integers:
        """Return the counts to show next to the intervals: the measured ones, or else `adjusted`, clipped to the intervals."""
        clipped = np.clip(adjusted, self.low, self.high)
        return np.where(self.measured < 0, clipped, self.measured)


def count_interval(
    counts: Integers,
    sigma: float,
    *,
    noise: NoiseName = "rounded-gaussian",
    level: float = LEVEL,
    cells: int = 1,
) -> Intervals:
    """Return the whole numbers m that noise takes to `counts` or beyond with probability at least (1 - level)/2 on either side.

    X = round(m + Z), so P(X >= x; m) = Phi((m - x + 1/2) / sd), and m is inside iff |x - m| <= 1/2 + z sd, z = Phi^-1 of
    1 - (1 - level)/2: exact, rounding included, with coverage at least `level`, and the more so the smaller sd. A sum of g
    cells has g - 1 rounding errors more, of variance 1/12 each: 1/2 + z sqrt(g sd^2 + (g - 1)/12), in good approximation.
    Discrete Laplace noise has P(|X - m| > h) = 2 p^(h + 1) / (1 + p), of which h is the least that is at most 1 - level; of
    a sum of g cells the larger of z sqrt(g) sd and h sqrt(g): its tails lie between the two kinds. No true count is
    negative, so a count below 0 has the interval of 0, [0, h], however far noise took it below, and `low` is at least 0.
    Both rules only add numbers that are not negative to [x - h, x + h], or remove negative ones, so the coverage is not
    smaller. No interval is narrower because a count is far below 0. Without noise the count itself. DP: post-processing.

    Args:
        counts: noisy counts, before any threshold; any shape.
        sigma: standard deviation of the noise of one cell, in records; 0 for a public number.
        noise: its kind.
        level: of confidence, in (0, 1).
        cells: g, how many cells each of `counts` sums.

    Raises:
        InputError: level or sigma out of range.
    """
    _tail(level, sigma)
    if cells < 1:
        raise InputError(f"cells ({cells}) must be at least 1")
    half = noise_reach(noise, sigma, level, cells)
    measured = np.maximum(counts, 0)
    return Intervals(
        low=np.maximum(measured - half, 0),
        high=measured + half,
        measured=measured,
    )


def selected_interval(
    counts: Integers,
    threshold: int | Integers,
    sigma: float,
    *,
    level: float = LEVEL,
) -> Intervals:
    """Return intervals of counts that were released only because they reached `threshold`, `low` by the truncated normal.

    Selection lifts what is released, and `least_selected` takes it back: given that it is released, a count has
    P(X >= x | X >= T; m) = Phi((m - x + 1/2) / sd) / Phi((m - T + 1/2) / sd). The `high` of Lee, Sun, Sun and Taylor (2016),
    just above T, is below x itself. A count that barely reached T would then look like the surest of all, and would be
    covered least often, as the counts there are mostly larger. So `high` is that of `count_interval`, which is never below
    theirs and only covers more. Whatever m, a released count is covered with probability at least `level`. DP: post-processing.

    Args:
        counts: noisy counts at least `threshold`, as drawn; shape (n,).
        threshold: T, one for all or shape (n,).
        sigma: standard deviation of the noise, in records, above 0.
        level: of confidence, in (0, 1).

    Raises:
        InputError: level or sigma out of range, or a count below its threshold.
    """
    _tail(level, sigma)
    if not sigma:
        raise InputError("sigma (0) must be positive where counts were selected")
    thresholds = np.broadcast_to(np.asarray(threshold, np.int64), counts.shape)
    if (counts < thresholds).any():
        raise InputError("counts must be at least their threshold")
    nominal = count_interval(counts, sigma, level=level)
    low = np.zeros(counts.shape, np.int64)
    for least in np.unique(thresholds):
        chosen = thresholds == least
        distinct, rows = np.unique(counts[chosen], return_inverse=True)  # few counts are distinct
        low[chosen] = least_selected(RoundedGaussian.name, sigma, distinct, int(least), level)[rows]
    return Intervals(
        low=np.minimum(low, nominal.low),
        high=nominal.high,
        measured=counts.astype(np.int64),
    )


def censored_bound(
    threshold: int,
    sigma: float,
    *,
    level: float = LEVEL,
) -> int:
    """Return the largest whole m whose noisy count is below `threshold` with probability above 1 - level.

    P(X < T; m) = Phi((T - 1/2 - m) / sd), so that 0 to this end covers whatever count was not released because its noisy count
    was below T, with probability `level` at least (a censored observation: Tobin 1958). DP: post-processing.

    Raises:
        InputError: level or sigma out of range.
    """
    from scipy.special import ndtri  # a quarter of a second, which answers do without

    _tail(level, sigma)
    reach = float(ndtri(level)) * sigma
    return max(math.ceil(threshold - 0.5 + reach) - 1, 0)


def expected_ends(
    low: int,
    high: int,
    tail: float,
) -> tuple[int, int]:
    """Return the least and most expectation of a count between `low` and `high`, a sum of independent 0 or 1.

    Of expectation m a count of c and more has probability exp(-m I(c/m)) at most for c > m, I(x) = x ln x - x + 1, and so has
    one of c and less for c < m (Chernoff 1952). The ends are where that is `tail`: with y = m/c, y - 1 - ln y = ln(1/tail)/c,
    whose solutions are the branches of Lambert's W. Each end is beyond the expectation with probability `tail` at most.
    """
    from scipy.special import lambertw

    reach = -math.log(tail)

    def expectation(count: int, branch: int) -> float:
        argument = -math.exp(-1 - reach / count)
        return -count * float(lambertw(argument, branch).real)

    least = expectation(low, 0) if low else 0.0
    most = expectation(high, -1) if high else reach
    return math.floor(least), math.ceil(most)


def record_interval(aggregates: Aggregates, level: float = LEVEL) -> tuple[int, int]:
    """Return the ends of the `count_interval` of the record count. DP: post-processing."""
    counts = np.array([aggregates.record_count])
    interval = count_interval(counts, aggregates.record_deviation, level=level)
    return int(interval.low[0]), int(interval.high[0])


def release_intervals(
    aggregates: Aggregates,
    drawn: Aggregates,
    configuration: Configuration,
    *,
    level: float = LEVEL,
) -> tuple[Intervals, ...]:
    """Return an interval for every count of k-tuples, one `Intervals` a length.

    They are aligned with `aggregates.levels[k - 1].counts`. Every length has a threshold, so all of its counts were selected
    and have a `selected_interval`: with T of private domains at length 1 where the column is private. Each length has its own
    noise, so the shorter lengths, by which the candidates were chosen, change nothing. DP: post-processing.

    Args:
        aggregates: normalized counts, as published.
        drawn: the same before they were made consistent.
        configuration: says which domains are private.
        level: of confidence, in (0, 1).

    Raises:
        InputError: a combination that was not drawn.
    """
    private = np.array([attribute.private for attribute in configuration.attributes])
    intervals = []
    levels = zip(
        aggregates.levels,
        drawn.levels,
        aggregates.noise,
        strict=True,
    )
    for published, source, noise in levels:
        rows = find_rows(
            source,
            published.columns,
            published.values,
            aggregates.domain.sizes,
        )
        if (rows < 0).any():
            raise InputError("aggregates must hold no combination that was not drawn")
        thresholds = np.full(len(published), noise.threshold, np.int64)
        if published.length == 1:
            columns = published.columns[:, 0]
            thresholds[private[columns]] = noise.private_threshold
        counts = source.counts[rows]
        intervals.append(selected_interval(counts, thresholds, noise.deviation, level=level))
    return tuple(intervals)


def _tail(level: float, sigma: float) -> float:
    """Return (1 - level)/2. Raises InputError if level or sigma is out of range."""
    if not 0 < level < 1:
        raise InputError(f"level ({level}) must lie strictly between 0 and 1")
    if not 0 <= sigma < math.inf:
        raise InputError(f"sigma ({sigma}) must not be negative")
    return (1 - level) / 2


def marginal_intervals(
    aggregates: Aggregates,
    marginals: Marginals,
    configuration: Configuration,
    *,
    level: float = LEVEL,
) -> tuple[Intervals, ...]:
    """Return intervals of counts from marginals: the `count_interval` of the cell, or sum of cells, as measured.

    They are aligned as those of `release_intervals`. No cell was selected: all are in `marginals`, whichever of them have a
    count above 0 in `aggregates`. A combination with a value that was measured in a sum with others has at most the count of
    the sum, and 0 at least. One that a rule excludes has no record. DP: post-processing.
    """
    labels = marginals.domain.labels
    possible_cells = PossibleCells.of(configuration, labels)
    possible_records = PossibleCells.of_records(configuration, labels)
    _, compression = compression_of(marginals, configuration)
    holders = Holders([m.attributes for m in marginals.larger])
    intervals = []
    for listed in aggregates.levels:
        low, high, measured = np.zeros((3, len(listed)), np.int64)
        possible, recorded = np.ones((2, len(listed)), np.bool_)
        for columns, rows in listed.by_columns():
            values = listed.values[rows]
            holder = _holder(columns, marginals, holders)
            of_columns = _cell_intervals(columns, values, holder, compression, level)
            low[rows] = of_columns.low
            high[rows] = of_columns.high
            measured[rows] = of_columns.measured
            possible[rows] = possible_cells.contain(columns, values.T, {})
            recorded[rows] = possible_records.contain(columns, values.T, {})
        inside = Intervals(
            low=low,
            high=high,
            measured=measured,
            unkept=possible & ~recorded,
        )
        intervals.append(inside.without(~possible))
    return tuple(intervals)


def project(measurement: Observation, columns: Clique) -> tuple[Integers, int]:
    """Return noisy counts of some attributes of a marginal, and how many of its cells each one sums. DP: post-processing."""
    summed_axes = tuple(axis for axis, a in enumerate(measurement.attributes) if a not in columns)
    sums = measurement.counts.sum(axis=summed_axes)
    return np.rint(sums).astype(np.int64), _summed(measurement, columns)


def _holder(
    columns: Clique,
    marginals: Marginals,
    holders: Holders,
) -> Observation:
    """Return the marginal that measured a set of columns best: itself, or the one whose sums have the least noise."""
    if len(columns) == 1:
        return marginals.one_way[columns[0]]
    larger = [marginals.larger[i] for i in holders.of(columns)]

    def preference(m: Observation) -> tuple[bool, float]:
        variance = m.deviation**2 * _summed(m, columns)
        return m.attributes != columns, variance

    return min(larger, key=preference)


def _summed(measurement: Observation, columns: Clique) -> int:
    """Return how many cells of a marginal add up to one cell over `columns`."""
    sizes = zip(measurement.attributes, measurement.counts.shape, strict=True)
    return math.prod(size for a, size in sizes if a not in columns)


def _cell_intervals(
    columns: Clique,
    values: Integers,
    holder: Observation,
    compression: Compression,
    level: float,
) -> Intervals:
    """Return intervals of combinations of `columns` by the counts of one marginal."""
    table, summed = project(holder, columns)
    codes = list(values.T)
    # whether no value of a combination was merged with others
    is_single = np.ones(len(values), np.bool_)
    if len(columns) > 1:
        for axis, a in enumerate(columns):
            merged_codes = compression.codes[a]
            codes[axis] = merged_codes[codes[axis]]
            is_single &= np.bincount(merged_codes)[codes[axis]] == 1
    counts = table[tuple(codes)]
    interval = count_interval(
        counts,
        holder.deviation,
        noise=holder.noise,
        level=level,
        cells=summed,
    )
    return Intervals(
        low=np.where(is_single, interval.low, 0),
        high=interval.high,
        measured=np.where(is_single, interval.measured, -1),
    )
