"""Consistent marginals, and the counts over the released domain that follow from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.configuration.release import Configuration
from marginweave.domain.combinations import Level
from marginweave.domain.masks import Clique, StructuralZeros
from marginweave.domain.zeros import structural_masks
from marginweave.estimate.holders import Holders
from marginweave.estimate.known import known_compression, known_marginals, total_of_rows
from marginweave.estimate.normalize import find_rows
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.compression import Compression, compress_mask, compress_observation
from marginweave.observations.means import estimate_total
from marginweave.observations.tables import Marginals, Observation
from marginweave.observations.undeclared import declared_compression, ignored_attributes

MOST_LISTED = 1_000_000
"""Measured cells that are all listed: about 40 MB of CSV, and as many rows as a spreadsheet can hold."""


def normalize_marginals(marginals: Marginals, configuration: Configuration) -> Marginals:
    """Return the marginals with `consistent` ones over merged codes, and known tables.

    A resized table has its public record count. DP: post-processing.

    Args:
        marginals: as they were drawn.
        configuration: what is declared, bounds resolved.

    Raises:
        InputError: structural zeros that leave no record.
    """
    from marginweave.estimate.consistency import make_consistent  # numba, which answers do without

    masks, compression = compression_of(marginals, configuration)
    estimated = estimated_marginals(marginals, configuration)
    measured = measured_marginals(estimated, compression)
    total = record_total(marginals, configuration)
    known_tables = known_marginals(configuration, measured, total, compression)
    compressed_masks = [compress_mask(mask, compression) for mask in masks]
    tables = [*measured, *known_tables]
    consistent = make_consistent(tables, compressed_masks, total=total)
    return replace(marginals, consistent=consistent)


def record_total(marginals: Marginals, configuration: Configuration) -> float:
    """Return the number of records that consistent marginals add up to: a public one, or the best estimate of all tables.

    DP: post-processing.

    Args:
        marginals: as they were drawn; nothing of `consistent` ones is read.
        configuration: what is declared, bounds resolved.
    """
    if marginals.pooled:
        estimated_total = estimate_total([*marginals.pooled, *marginals.coarse])
    else:
        estimated_total, _ = _total(marginals, configuration)
    return total_of_rows(configuration) or estimated_total


def measured_marginals(marginals: Marginals, compression: Compression) -> tuple[Observation, ...]:
    """Return all marginals as they were drawn, and earlier ones, over merged codes. DP: post-processing."""
    one_way, larger = marginals.measured
    compressed = [compress_observation(m, compression) for m in one_way]
    return (*compressed, *larger)


def compression_of(
    marginals: Marginals,
    configuration: Configuration,
) -> tuple[tuple[StructuralZeros, ...], Compression]:
    """Return the structural zeros over the released domain, and which rare values were merged. DP: post-processing.

    The merged values follow from the drawn counts alone. Where there are pooled counts, these give the shares of the values.
    """
    estimated = _estimated(configuration, marginals)
    labels = marginals.domain.labels
    single = estimated_marginals(marginals, configuration).measured[0]
    all_ignored = configuration.with_undeclared(())
    coded = ignored_attributes(all_ignored, labels, marginals.one_way)
    undeclared = coded - ignored_codes(marginals, configuration)
    declared = declared_compression(configuration, labels, marginals.one_way)
    merged = declared.with_last(dict.fromkeys(undeclared, 0.0))
    counts = tuple(np.asarray(m.counts, np.float64) for m in single)
    masks = structural_masks(estimated, labels)
    compression = replace(merged, counts=counts)
    return masks, known_compression(compression, configuration)


def drawn_compression_of(marginals: Marginals, configuration: Configuration) -> Compression:
    """Return the compression over all codes of tables as they were drawn; codes that estimates ignore come last."""
    _, merged = compression_of(marginals, configuration)
    one_way = marginals.measured[0]
    ignored = ignored_codes(marginals, configuration)
    last_counts = {a: float(one_way[a].counts[-1]) for a in ignored}
    return merged.with_last(last_counts)


def estimated_marginals(marginals: Marginals, configuration: Configuration) -> Marginals:
    """Return the marginals without the codes that estimates ignore (`UndeclaredCells`). DP: post-processing."""
    ignored = ignored_codes(marginals, configuration)

    def without_ignored(measured: Sequence[Observation]) -> tuple[Observation, ...]:
        return tuple(m.without_last(ignored) for m in measured)

    return replace(
        marginals,
        one_way=without_ignored(marginals.one_way),
        larger=without_ignored(marginals.larger),
        pooled=without_ignored(marginals.pooled),
        coarse=without_ignored(marginals.coarse),
    )


def _estimated(configuration: Configuration, marginals: Marginals) -> Configuration:
    """Return the configuration of the columns that keep undeclared values in estimates."""
    return configuration.with_undeclared(marginals.domain.with_undeclared)


def ignored_codes(marginals: Marginals, configuration: Configuration) -> frozenset[int]:
    """Return the attributes whose tables have one code more than estimates have: the last."""
    estimated = _estimated(configuration, marginals)
    return ignored_attributes(estimated, marginals.domain.labels, marginals.one_way)


def marginal_counts(
    marginals: Marginals,
    configuration: Configuration,
    longest: int | None = None,
) -> Aggregates:
    """Count single values, pairs inside a marginal, and each larger marginal, as combinations without missing values.

    Consistent counts, rounded, those above 0; none is above a part of it. A merged value's count is shared by its
    values in proportion to their noisy one-way counts, as in the records. DP: post-processing.

    Args:
        marginals: normalized ones.
        configuration: what is declared, bounds resolved.
        longest: no combinations of more values.
    """
    deviations = cell_deviations([*marginals.one_way, *marginals.larger])
    counts = _LevelCounts(marginals, configuration)
    most = max(map(len, deviations))
    lengths = range(1, most + 1)
    levels: list[Level] = []
    for length in lengths[:longest]:
        cliques = [clique for clique in sorted(deviations) if len(clique) == length]
        levels.append(counts.level(length, cliques, levels, deviations))
    total, sigma = _total(marginals, configuration)
    return Aggregates(
        domain=marginals.domain,
        record_count=round(total),
        record_deviation=sigma,
        levels=tuple(levels),
        noise=tuple(_noise(level.length, deviations) for level in levels),
        measured=deviations,
    )


def cell_deviations(measurements: Sequence[Observation]) -> dict[Clique, float]:
    """Return the standard deviation of a cell, before consistency, of every measured set of attributes and pair inside one.

    A pair that was not measured itself is a sum of g cells: sqrt(g) deviation, the least that a marginal gives.
    DP: post-processing.
    """
    direct = {m.attributes: m.deviation for m in measurements}
    inside: dict[Clique, float] = {}
    for m in measurements:
        axes = range(len(m.attributes))
        for first, second in itertools.combinations(axes, 2):
            pair = m.attributes[first], m.attributes[second]
            pair_cells = m.counts.shape[first] * m.counts.shape[second]
            summed = m.counts.size / pair_cells
            deviation = m.deviation * math.sqrt(summed)
            least = inside.get(pair, math.inf)
            inside[pair] = min(least, deviation)
    return inside | direct


def listed_counts(
    counts: Aggregates,
    longest: int | None = None,
) -> tuple[Aggregates, tuple[Clique, ...]]:
    """Return counts as they are published, and the sets of attributes of which not all cells are listed.

    Sets of at most `longest` attributes also list the cells of which consistency left nothing, up to `MOST_LISTED` cells, of
    the smallest sets of attributes first. The other sets, which are returned beside the counts, list only the cells above 0.
    Which sets these are follows from the sizes of the released domain. Counts of k-tuples are as they were. DP:
    post-processing.
    """
    sizes = counts.domain.sizes
    cells: dict[Clique, int] = {}
    for clique in counts.measured or ():
        cells[clique] = math.prod(sizes[a] for a in clique)
    smallest_first = sorted((number, clique) for clique, number in cells.items())
    order = [clique for _, clique in smallest_first]
    cells_so_far = itertools.accumulate(number for number, _ in smallest_first)
    complete: set[Clique] = set()
    for clique, number in zip(order, cells_so_far, strict=True):
        is_short = not longest or len(clique) <= longest
        if is_short and number <= MOST_LISTED:
            complete.add(clique)
    levels = tuple(_with_empty_cells(level, complete, sizes) for level in counts.levels)
    incomplete = tuple(clique for clique in order if clique not in complete)
    return replace(counts, levels=levels), incomplete


def _with_empty_cells(
    level: Level,
    complete: Collection[Clique],
    sizes: Sequence[int],
) -> Level:
    """Return the level with all cells, also those of count 0, of the sets of attributes in `complete`."""
    rows_of_cliques = dict(level.by_columns())
    cliques = {clique for clique in complete if len(clique) == level.length}
    cliques.update(rows_of_cliques)
    parts = []
    for clique in sorted(cliques):
        rows = rows_of_cliques.get(clique, slice(0, 0))
        values = level.values[rows]
        numbers = level.counts[rows]
        if clique in complete:
            shape = [sizes[a] for a in clique]
            table = np.zeros(shape, np.int64)
            table[tuple(values.T)] = numbers
            values = np.argwhere(table >= 0)
            numbers = table.ravel()
        parts.append((clique, values, numbers))
    return Level.join(level.length, parts)


def _total(marginals: Marginals, configuration: Configuration) -> tuple[float, float]:
    """Return the number of records and its sigma, by marginals over the codes that they were measured in."""
    if configuration.resize is not None:
        return float(configuration.resize.records), 0.0
    variances = [m.counts.size * m.deviation**2 for m in marginals.drawn]
    precision = sum(1 / variance for variance in variances)
    return estimate_total(marginals.drawn), precision**-0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """The merged code of each code of every attribute, and the code's share of it."""

    codes: tuple[Integers, ...]
    shares: tuple[Floats, ...]

    @classmethod
    def of(cls, compression: Compression) -> Spread:
        """Return shares in proportion to noisy one-way counts, as in the records; equal where none is positive.

        DP: post-processing.
        """
        shares = []
        merged = zip(compression.codes, compression.counts, strict=True)
        for new, counts in merged:
            weights = np.maximum(counts, 0.0)
            merged_weights = np.bincount(new, weights=weights)[new]
            is_positive = merged_weights > 0
            divisors = np.where(is_positive, merged_weights, 1.0)
            members = np.bincount(new)[new]
            equal = 1 / members
            shares.append(np.where(is_positive, weights / divisors, equal))
        return cls(codes=compression.codes, shares=tuple(shares))

    def counts(self, clique: Clique, values: Floats) -> Floats:
        """Return counts over merged codes as counts over the codes of the domain."""
        merged_codes = [self.codes[a] for a in clique]
        spread = values[np.ix_(*merged_codes)]
        for axis, a in enumerate(clique):
            absent_axes = [*range(len(clique))]
            absent_axes.remove(axis)
            shares = np.expand_dims(self.shares[a], absent_axes)
            spread = spread * shares
        return spread


class _LevelCounts:
    """Rounded counts of combinations of a length, from consistent marginals."""

    def __init__(self, marginals: Marginals, configuration: Configuration) -> None:
        self._consistent = marginals.consistent
        self._sizes = marginals.domain.sizes
        _, compression = compression_of(marginals, configuration)
        self._spread = Spread.of(compression)
        self.holders = Holders([m.attributes for m in marginals.consistent])

    def level(
        self,
        length: int,
        cliques: Sequence[Clique],
        shorter: Sequence[Level],
        covered: Collection[Clique],
    ) -> Level:
        """Return counts above 0 of sets of attributes, each the sum of the smallest marginal that includes the set.

        No count is above that of a combination inside it whose attributes are `covered`: consistent counts differ in their
        last digits, so that two that should be equal may round to different numbers.
        """
        tables = []
        for clique in cliques:
            table = self._rounded(clique)
            is_positive = table > 0
            values = np.argwhere(is_positive)
            tables.append((clique, values, table[is_positive]))
        level = Level.join(length, tables)
        counts = level.counts.copy()
        for part in shorter:
            # row -1, of a part that is not there, has count 0
            part_counts = np.append(part.counts, 0)
            for rows, places in _places(level, part.length, covered):
                columns = level.columns[rows][:, places]
                values = level.values[rows][:, places]
                part_rows = find_rows(part, columns, values, self._sizes)
                limits = part_counts[part_rows]
                counts[rows] = np.minimum(counts[rows], limits)
        return level.positive(counts)

    def _rounded(self, clique: Clique) -> Integers:
        """Return the rounded counts of a set of attributes, without missing values."""
        places = self.holders.of(clique)
        holders = [self._consistent[place] for place in places]
        holder = min(holders, key=lambda m: m.counts.size)
        summed_axes = tuple(axis for axis, a in enumerate(holder.attributes) if a not in clique)
        merged = holder.counts.sum(axis=summed_axes)
        spread = self._spread.counts(clique, np.asarray(merged, np.float64))
        rounded = np.rint(spread).astype(np.int64)
        values = tuple(slice(self._sizes[a]) for a in clique)
        return rounded[values]


def _places(
    level: Level,
    length: int,
    covered: Collection[Clique],
) -> Iterator[tuple[slice, list[int]]]:
    """Yield rows of a level, and the positions of covered attributes in them.

    Single attributes and pairs are covered in every row.
    """
    if length <= 2:
        positions = range(level.length)
        for places in itertools.combinations(positions, length):
            yield slice(None), list(places)
        return
    longer = [clique for clique in covered if len(clique) == length]
    if not longer:
        return
    for columns, rows in level.by_columns():
        for part in longer:
            if set(part) <= set(columns):
                yield rows, [columns.index(a) for a in part]


def _noise(length: int, deviations: Mapping[Clique, float]) -> LevelNoise:
    """Return the largest noise of a length; every count above 0 is released."""
    of_length = [sd for clique, sd in deviations.items() if len(clique) == length]
    return LevelNoise(
        length=length,
        contribution_bound=1,
        deviation=max(of_length, default=0.0),
        threshold=1,
        private_threshold=0,
        candidates=None,
    )


def all_pairs(marginals: Marginals, configuration: Configuration) -> Aggregates:
    """Count single values and all pairs, and longer sets up to the longest length of which all lie in marginals.

    Counts of a set inside marginals are their sums, no more than any part of it has. A pair of columns in no marginal has
    the counts that independence implies, n_ab = n_a n_b / n. Where both values have records, the count is at least 1, as
    nothing was measured that would rule the combination out. DP: post-processing.

    Args:
        marginals: normalized ones.
        configuration: what is declared, bounds resolved.

    Returns:
        Counts of lengths 1..R, R at least 2 where there are two columns; `noise` and `measured` as `marginal_counts` has
        them.
    """
    counts = marginal_counts(marginals, configuration)
    inside = _LevelCounts(marginals, configuration)
    columns = range(len(counts.domain.names))
    levels = [counts.levels[0]]
    if len(columns) > 1:
        levels.append(_level_of_pairs(counts, inside))
    pairs = itertools.combinations(columns, 2)
    covered: set[Clique] = {pair for pair in pairs if inside.holders.of(pair)}
    for length in range(3, len(counts.levels) + 1):
        sets = list(itertools.combinations(columns, length))
        if not all(map(inside.holders.of, sets)):
            break
        covered.update(sets)
        levels.append(inside.level(length, sets, levels, covered))
    return replace(
        counts,
        levels=tuple(levels),
        noise=counts.noise[: len(levels)],
    )


def _level_of_pairs(counts: Aggregates, inside: _LevelCounts) -> Level:
    """Return counts of all pairs: measured ones, sums of other marginals, and what independence implies."""
    pairs: dict[Clique, tuple[Integers, Integers]] = {}
    for level in counts.levels[1:2]:
        for pair, rows in level.by_columns():
            pairs[pair] = level.values[rows], level.counts[rows]
    single_values = counts.levels[:1]
    by_columns = counts.levels[0].by_columns()
    rows_of_columns = {column: rows for (column,), rows in by_columns}
    columns = range(len(counts.domain.names))
    for pair in itertools.combinations(columns, 2):
        if inside.holders.of(pair):
            if pair not in (counts.measured or {}):  # in a known table only
                level = inside.level(2, [pair], single_values, ())
                pairs[pair] = level.values, level.counts
        elif rows_of_columns.keys() >= {*pair}:
            first, second = pair
            first_rows = rows_of_columns[first]
            second_rows = rows_of_columns[second]
            pairs[pair] = _independent(counts, first_rows, second_rows)
    parts = [(pair, *pairs[pair]) for pair in sorted(pairs)]
    return Level.join(2, parts)


def _independent(
    counts: Aggregates,
    first_rows: slice,
    second_rows: slice,
) -> tuple[Integers, Integers]:
    """Return values and counts of the pairs that single counts in these rows imply if their columns are independent."""
    values = counts.levels[0].values[:, 0]
    numbers = counts.levels[0].counts
    first_numbers = numbers[first_rows].astype(np.float64)
    # n_ab = n_a n_b / n, at least 1
    products = np.multiply.outer(first_numbers, numbers[second_rows])
    expected = products / max(counts.record_count, 1)
    rounded = np.rint(expected).astype(np.int64)
    pair_counts = np.maximum(rounded, 1).ravel()
    first_values = values[first_rows]
    second_values = values[second_rows]
    first, second = np.meshgrid(first_values, second_values, indexing="ij")
    pair_values = np.stack([first.ravel(), second.ravel()], axis=1)
    return pair_values, pair_counts
