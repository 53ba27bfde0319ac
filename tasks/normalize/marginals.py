"""Consistent marginals, and the counts that they stand for over the released domain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.schemas.arrays import Floats, Integers
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Aggregates, Level, LevelNoise
from marginweave.schemas.released.measurements import Clique, Marginals, Mask, Measurement
from marginweave.tasks.aggregate.domain import (
    Compression,
    compress_mask,
    compress_measurement,
    released_compression,
    structural_masks,
)
from marginweave.tasks.aggregate.marginals import estimate_total
from marginweave.tasks.normalize.consistency import Holders, make_consistent
from marginweave.tasks.normalize.normalize import find_rows


def normalize_marginals(marginals: Marginals, configuration: Configuration) -> Marginals:
    """The marginals with `consistent` ones over merged codes; a resized table has its public number of records.

    DP: post-processing.

    Args:
        marginals: as they were drawn.
        configuration: what is declared, bounds resolved.

    Raises:
        InputError: structural zeros that leave no record.
    """
    masks, compression = compression_of(marginals, configuration)
    consistent = make_consistent(
        measured_marginals(marginals, compression),
        [compress_mask(mask, compression) for mask in masks],
        total=_total(marginals, configuration)[0],
    )
    return replace(marginals, consistent=consistent)


def measured_marginals(marginals: Marginals, compression: Compression) -> tuple[Measurement, ...]:
    """All marginals as they were drawn, those of one attribute over merged codes as well. DP: post-processing."""
    return (*(compress_measurement(m, compression) for m in marginals.one_way), *marginals.larger)


def compression_of(marginals: Marginals, configuration: Configuration) -> tuple[tuple[Mask, ...], Compression]:
    """The structural zeros over the released domain, and which rare values were merged. DP: post-processing."""
    settings = configuration.marginal_settings
    masks = structural_masks(configuration, marginals.domain.labels)
    return masks, released_compression(marginals.one_way, settings, masks)


def marginal_counts(marginals: Marginals, configuration: Configuration) -> Aggregates:
    """Counts of single values, of pairs inside a marginal, and of each larger marginal, as combinations without missing values.

    Consistent counts, rounded, those above 0; none is above a part of it (`capped`). A merged value's count is shared by its
    values in proportion to their noisy one-way counts, as in the records. DP: post-processing.

    Args:
        marginals: normalized ones.
        configuration: what is declared, bounds resolved.
    """
    spread = Spread.of(compression_of(marginals, configuration)[1])
    deviations = cell_deviations([*marginals.one_way, *marginals.larger])
    sizes = marginals.domain.sizes
    levels: list[Level] = []
    for length in range(1, max(map(len, deviations)) + 1):
        cliques = [c for c in sorted(deviations) if len(c) == length]
        level = level_of(length, cliques, marginals.consistent, spread, sizes)
        levels.append(capped(level, levels, deviations, sizes))
    total, deviation = _total(marginals, configuration)
    return Aggregates(
        domain=marginals.domain,
        record_count=round(total),
        record_deviation=deviation,
        levels=tuple(levels),
        noise=tuple(_noise(level, deviations) for level in levels),
        measured=deviations,
    )


def cell_deviations(measurements: Sequence[Measurement]) -> dict[Clique, float]:
    """Standard deviation of a cell, before consistency, of every measured set of attributes and every pair inside one.

    A pair that was not measured itself is a sum of g cells: sqrt(g) deviation, the least that a marginal gives.
    DP: post-processing.
    """
    direct = {m.attributes: m.deviation for m in measurements}
    inside: dict[Clique, float] = {}
    for m in measurements:
        for places in itertools.combinations(range(len(m.attributes)), 2):
            pair = tuple(m.attributes[i] for i in places)
            summed = m.counts.size / math.prod(m.counts.shape[i] for i in places)
            inside[pair] = min(inside.get(pair, math.inf), m.deviation * math.sqrt(summed))
    return inside | direct


def _total(marginals: Marginals, configuration: Configuration) -> tuple[float, float]:
    """The number of records and its deviation, of marginals over the codes that they were measured in."""
    if configuration.resize is not None:
        return float(configuration.resize.records), 0.0
    drawn = [*marginals.one_way, *marginals.larger]
    precision = sum(1 / (m.counts.size * m.deviation**2) for m in drawn)
    return estimate_total(drawn), precision**-0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """For every attribute the merged code of each code, and the code's share of it."""

    codes: tuple[Integers, ...]
    shares: tuple[Floats, ...]

    @classmethod
    def of(cls, compression: Compression) -> Spread:
        """In proportion to noisy one-way counts, as in the records; alike where none is positive. DP: post-processing."""
        shares = []
        for new, counts in zip(compression.codes, compression.counts, strict=True):
            weights = np.maximum(counts, 0.0)
            together = np.bincount(new, weights=weights)
            members = np.bincount(new)
            known = together[new] > 0
            shares.append(np.where(known, weights / np.where(known, together[new], 1.0), 1 / members[new]))
        return cls(codes=compression.codes, shares=tuple(shares))

    def counts(self, clique: Clique, values: Floats) -> Floats:
        """Counts over merged codes as counts over the codes of the domain."""
        spread = values[np.ix_(*(self.codes[a] for a in clique))]
        for axis, a in enumerate(clique):
            spread = spread * np.expand_dims(self.shares[a], [i for i in range(len(clique)) if i != axis])
        return spread


def level_of(
    length: int, cliques: Sequence[Clique], consistent: Sequence[Measurement], spread: Spread, sizes: Sequence[int]
) -> Level:
    """Counts above 0 of sets of attributes, each the sum of the smallest marginal that holds it. DP: post-processing."""
    holders = Holders([m.attributes for m in consistent])
    tables = []
    for clique in cliques:
        holder = min((consistent[i] for i in holders.of(clique)), key=lambda m: m.counts.size)
        others = tuple(axis for axis, a in enumerate(holder.attributes) if a not in clique)
        summed = np.asarray(holder.counts.sum(axis=others), np.float64)
        table = np.rint(spread.counts(clique, summed)).astype(np.int64)[tuple(slice(sizes[a]) for a in clique)]
        tables.append((clique, np.argwhere(table > 0), table[table > 0]))
    return Level.join(length, tables)


def capped(level: Level, shorter: Sequence[Level], covered: Collection[Clique], sizes: tuple[int, ...]) -> Level:
    """No count above that of a combination inside it whose attributes are `told`; what is 0 then goes.

    Consistent counts differ in their last digits, so that two that should be equal may round to different numbers.
    DP: post-processing.
    """
    counts = level.counts.copy()
    for part in shorter:
        for rows, places in _places(level, part.length, covered):
            found = find_rows(part, level.columns[rows][:, places], level.values[rows][:, places], sizes)
            limit = np.append(part.counts, 0)[found]  # -1, not among them, is a count of 0
            counts[rows] = np.minimum(counts[rows], limit)
    return level.positive(counts)


def _places(level: Level, length: int, covered: Collection[Clique]) -> Iterator[tuple[slice, list[int]]]:
    """Rows of a level, and the positions of told attributes in them; single ones and pairs are told of every row."""
    if length <= 2:
        yield from ((slice(None), list(places)) for places in itertools.combinations(range(level.length), length))
        return
    longer = [clique for clique in covered if len(clique) == length]
    for columns, rows in level.by_columns() if longer else ():
        yield from ((rows, [columns.index(a) for a in part]) for part in longer if set(part) <= set(columns))


def _noise(level: Level, deviations: Mapping[Clique, float]) -> LevelNoise:
    """The largest noise of a length; every count above 0 is told."""
    widest = max((sd for clique, sd in deviations.items() if len(clique) == level.length), default=0.0)
    return LevelNoise(
        length=level.length,
        contribution_bound=1,
        deviation=widest,
        threshold=1,
        private_threshold=0,
        candidates=None,
    )


def all_pairs(marginals: Marginals, configuration: Configuration) -> Aggregates:
    """Counts of single values and of all pairs, and of longer sets up to the longest length of which all lie in marginals.

    Counts of a set inside marginals are their sums, no more than any part of it has. A pair of columns in no marginal has
    the counts that independence implies, n_ab = n_a n_b / n; where neither value is without a record, at least 1, as nothing
    was measured that would rule the combination out. DP: post-processing.

    Args:
        marginals: normalized ones.
        configuration: what is declared, bounds resolved.

    Returns:
        Counts of lengths 1..R, R at least 2 where there are two columns; `noise` and `measured` as `marginal_counts` has
        them.
    """
    counts = marginal_counts(marginals, configuration)
    columns, sizes = range(len(counts.domain.names)), counts.domain.sizes
    holders = Holders([m.attributes for m in marginals.consistent])
    covered: set[Clique] = {pair for pair in itertools.combinations(columns, 2) if holders.of(pair)}
    pairs = {
        pair: (level.values[rows], level.counts[rows])
        for level in counts.levels[1:2]
        for pair, rows in level.by_columns()
    }
    pairs |= _independent(counts, [pair for pair in itertools.combinations(columns, 2) if pair not in covered])
    levels = [counts.levels[0]]
    if len(columns) > 1:
        levels.append(Level.join(2, ((pair, *pairs[pair]) for pair in sorted(pairs))))
    spread = Spread.of(compression_of(marginals, configuration)[1])
    for length in range(3, len(counts.levels) + 1):
        sets = list(itertools.combinations(columns, length))
        if not all(map(holders.of, sets)):
            break
        covered.update(sets)
        levels.append(capped(level_of(length, sets, marginals.consistent, spread, sizes), levels, covered, sizes))
    return replace(counts, levels=tuple(levels), noise=counts.noise[: len(levels)])


def _independent(counts: Aggregates, pairs: Sequence[Clique]) -> dict[Clique, tuple[Integers, Integers]]:
    """What single counts alone say of pairs of columns: values and counts of each."""
    found: dict[Clique, tuple[Integers, Integers]] = {}
    singles = {columns[0]: rows for columns, rows in counts.levels[0].by_columns()}
    values, number = counts.levels[0].values[:, 0], counts.levels[0].counts
    for first, second in pairs:
        if not (first in singles and second in singles):
            continue
        a, b = (singles[column] for column in (first, second))
        product = np.multiply.outer(number[a].astype(np.float64), number[b]) / max(counts.record_count, 1)
        expected = np.maximum(np.rint(product).astype(np.int64), 1).ravel()  # no value has more records than there are
        both = np.stack([np.repeat(values[a], len(values[b])), np.tile(values[b], len(values[a]))], axis=1)
        found[first, second] = both, expected
    return found
