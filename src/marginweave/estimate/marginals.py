"""Consistent marginals, and the counts that they stand for over the released domain."""

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
from marginweave.estimate.consistency import Holders, make_consistent
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
    """The marginals with `consistent` ones over merged codes, and known tables; a resized table has its public record count.

    DP: post-processing.

    Args:
        marginals: as they were drawn.
        configuration: what is declared, bounds resolved.

    Raises:
        InputError: structural zeros that leave no record.
    """
    masks, compression = compression_of(marginals, configuration)
    measured = measured_marginals(estimated_marginals(marginals, configuration), compression)
    drawn = (
        estimate_total([*marginals.pooled, *marginals.coarse])
        if marginals.pooled
        else _total(marginals, configuration)[0]
    )
    total = total_of_rows(configuration) or drawn
    known = known_marginals(configuration, measured, total, compression)
    consistent = make_consistent(
        [*measured, *known],
        [compress_mask(mask, compression) for mask in masks],
        total=total,
    )
    return replace(marginals, consistent=consistent)


def measured_marginals(marginals: Marginals, compression: Compression) -> tuple[Observation, ...]:
    """All marginals as they were drawn, and earlier ones, over merged codes. DP: post-processing."""
    one_way, larger = marginals.measured
    return (*(compress_observation(m, compression) for m in one_way), *larger)


def compression_of(
    marginals: Marginals, configuration: Configuration
) -> tuple[tuple[StructuralZeros, ...], Compression]:
    """The structural zeros over the released domain, and which rare values were merged. DP: post-processing.

    What was merged follows from the drawn counts alone; merged values are told apart by pooled counts, where there are some.
    """
    estimated, labels = _estimated(configuration, marginals), marginals.domain.labels
    single = estimated_marginals(marginals, configuration).measured[0]
    coded = ignored_attributes(configuration.with_undeclared(()), labels, marginals.one_way)
    kept = dict.fromkeys(coded - _ignored(marginals, configuration), 0.0)
    merged = declared_compression(configuration, labels, marginals.one_way).with_last(kept)
    counts = tuple(np.asarray(m.counts, np.float64) for m in single)
    return structural_masks(estimated, labels), known_compression(replace(merged, counts=counts), configuration)


def drawn_compression_of(marginals: Marginals, configuration: Configuration) -> Compression:
    """The same over all codes of tables as they were drawn, those that estimates ignore last."""
    merged = compression_of(marginals, configuration)[1]
    ignored = _ignored(marginals, configuration)
    return merged.with_last({a: float(marginals.measured[0][a].counts[-1]) for a in ignored})


def estimated_marginals(marginals: Marginals, configuration: Configuration) -> Marginals:
    """The marginals without codes that are not kept (`UndeclaredCells`). DP: post-processing."""
    ignored = _ignored(marginals, configuration)

    def kept(measured: Sequence[Observation]) -> tuple[Observation, ...]:
        return tuple(m.without_last(ignored) for m in measured)

    return replace(
        marginals,
        one_way=kept(marginals.one_way),
        larger=kept(marginals.larger),
        pooled=kept(marginals.pooled),
        coarse=kept(marginals.coarse),
    )


def _estimated(configuration: Configuration, marginals: Marginals) -> Configuration:
    return configuration.with_undeclared(marginals.domain.with_undeclared)


def _ignored(marginals: Marginals, configuration: Configuration) -> frozenset[int]:
    """The attributes whose tables have one code more, the last, than estimates have."""
    return ignored_attributes(_estimated(configuration, marginals), marginals.domain.labels, marginals.one_way)


def marginal_counts(marginals: Marginals, configuration: Configuration, longest: int | None = None) -> Aggregates:
    """Counts of single values, of pairs inside a marginal, and of each larger marginal, as combinations without missing values.

    Consistent counts, rounded, those above 0; none is above a part of it. A merged value's count is shared by its
    values in proportion to their noisy one-way counts, as in the records. DP: post-processing.

    Args:
        marginals: normalized ones.
        configuration: what is declared, bounds resolved.
        longest: no combinations of more values.
    """
    deviations = cell_deviations([*marginals.one_way, *marginals.larger])
    counts = _LevelCounts(marginals, configuration)
    levels: list[Level] = []
    for length in range(1, max(map(len, deviations)) + 1)[:longest]:
        cliques = [c for c in sorted(deviations) if len(c) == length]
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


def listed_counts(counts: Aggregates, longest: int | None = None) -> tuple[Aggregates, tuple[Clique, ...]]:
    """Counts as they are published: of sets of at most `longest` attributes also the cells of which consistency left nothing.

    At most `MOST_LISTED` cells, of the smallest sets of attributes first. Of the other sets, which are returned beside the
    counts, there are the cells above 0 alone. Which sets these are follows from the sizes of the released domain. Counts of
    k-tuples are as they were. DP: post-processing.
    """
    cells = {clique: math.prod(counts.domain.sizes[a] for a in clique) for clique in counts.measured or ()}
    order = sorted(cells, key=lambda clique: (cells[clique], clique))
    sums = itertools.accumulate(cells[clique] for clique in order)
    whole = {c for c, n in zip(order, sums, strict=True) if n <= MOST_LISTED and len(c) <= (longest or len(c))}
    levels = []
    for level in counts.levels:
        rows, parts = dict(level.by_columns()), []
        for clique in sorted({*rows, *(c for c in whole if len(c) == level.length)}):
            held = rows.get(clique, slice(0, 0))
            values, numbers = level.values[held], level.counts[held]
            if clique in whole:
                table = np.zeros([counts.domain.sizes[a] for a in clique], np.int64)
                table[tuple(values.T)] = numbers
                values, numbers = np.argwhere(table >= 0), table.ravel()
            parts.append((clique, values, numbers))
        levels.append(Level.join(level.length, parts))
    return replace(counts, levels=tuple(levels)), tuple(c for c in order if c not in whole)


def _total(marginals: Marginals, configuration: Configuration) -> tuple[float, float]:
    """The number of records and its sigma, of marginals over the codes that they were measured in."""
    if configuration.resize is not None:
        return float(configuration.resize.records), 0.0
    precision = sum(1 / (m.counts.size * m.deviation**2) for m in marginals.drawn)
    return estimate_total(marginals.drawn), precision**-0.5


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


class _LevelCounts:
    """Rounded counts of combinations of a length, from consistent marginals."""

    def __init__(self, marginals: Marginals, configuration: Configuration) -> None:
        self._consistent, self._sizes = marginals.consistent, marginals.domain.sizes
        self._spread = Spread.of(compression_of(marginals, configuration)[1])
        self.holders = Holders([m.attributes for m in marginals.consistent])

    def level(
        self, length: int, cliques: Sequence[Clique], shorter: Sequence[Level], covered: Collection[Clique]
    ) -> Level:
        """Counts above 0 of sets of attributes, each the sum of the smallest marginal that holds it.

        No count is above that of a combination inside it whose attributes are `covered`: consistent counts differ in their
        last digits, so that two that should be equal may round to different numbers.
        """
        tables = []
        for clique in cliques:
            holder = min((self._consistent[i] for i in self.holders.of(clique)), key=lambda m: m.counts.size)
            others = tuple(axis for axis, a in enumerate(holder.attributes) if a not in clique)
            spread = self._spread.counts(clique, np.asarray(holder.counts.sum(axis=others), np.float64))
            table = np.rint(spread).astype(np.int64)[tuple(slice(self._sizes[a]) for a in clique)]
            tables.append((clique, np.argwhere(table > 0), table[table > 0]))
        level = Level.join(length, tables)
        counts = level.counts.copy()
        for part in shorter:
            for rows, places in _places(level, part.length, covered):
                found = find_rows(part, level.columns[rows][:, places], level.values[rows][:, places], self._sizes)
                limit = np.append(part.counts, 0)[found]  # -1, not among them, is a count of 0
                counts[rows] = np.minimum(counts[rows], limit)
        return level.positive(counts)


def _places(level: Level, length: int, covered: Collection[Clique]) -> Iterator[tuple[slice, list[int]]]:
    """Rows of a level, and the positions of covered attributes in them; single ones and pairs are covered in every row."""
    if length <= 2:
        yield from ((slice(None), list(places)) for places in itertools.combinations(range(level.length), length))
        return
    longer = [clique for clique in covered if len(clique) == length]
    for columns, rows in level.by_columns() if longer else ():
        yield from ((rows, [columns.index(a) for a in part]) for part in longer if set(part) <= set(columns))


def _noise(length: int, deviations: Mapping[Clique, float]) -> LevelNoise:
    """The largest noise of a length; every count above 0 is released."""
    sigma = max((sd for clique, sd in deviations.items() if len(clique) == length), default=0.0)
    return LevelNoise(
        length=length, contribution_bound=1, deviation=sigma, threshold=1, private_threshold=0, candidates=None
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
    counts, inside = marginal_counts(marginals, configuration), _LevelCounts(marginals, configuration)
    columns, covered = range(len(counts.domain.names)), set[Clique]()
    levels = [counts.levels[0]]
    pairs = {pair: (m.values[rows], m.counts[rows]) for m in counts.levels[1:2] for pair, rows in m.by_columns()}
    singles = {names[0]: rows for names, rows in counts.levels[0].by_columns()}
    for pair in itertools.combinations(columns, 2):
        if inside.holders.of(pair):
            covered.add(pair)
            if pair not in (counts.measured or {}):  # known from elsewhere alone
                level = inside.level(2, [pair], levels[:1], ())
                pairs[pair] = level.values, level.counts
        elif singles.keys() >= {*pair}:
            pairs[pair] = _independent(counts, *(singles[column] for column in pair))
    if len(columns) > 1:
        levels.append(Level.join(2, ((pair, *pairs[pair]) for pair in sorted(pairs))))
    for length in range(3, len(counts.levels) + 1):
        sets = list(itertools.combinations(columns, length))
        if not all(map(inside.holders.of, sets)):
            break
        covered.update(sets)
        levels.append(inside.level(length, sets, levels, covered))
    return replace(counts, levels=tuple(levels), noise=counts.noise[: len(levels)])


def _independent(counts: Aggregates, one: slice, other: slice) -> tuple[Integers, Integers]:
    """What the single counts in some rows say of pairs of their values: values and counts."""
    values, number = counts.levels[0].values[:, 0], counts.levels[0].counts
    product = np.multiply.outer(number[one].astype(np.float64), number[other]) / max(counts.record_count, 1)
    expected = np.maximum(np.rint(product).astype(np.int64), 1).ravel()  # no value has more records than there are
    first, second = np.meshgrid(values[one], values[other], indexing="ij")
    return np.stack([first.ravel(), second.ravel()], axis=1), expected
