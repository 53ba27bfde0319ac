"""Dense marginals that the released combinations stand for: what was suppressed is unknown, not zero."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from marginweave.base.arrays import Flags, Floats
from marginweave.configuration.default_records import MOST_SECONDS, fitting_seconds
from marginweave.configuration.values import MAX_TABLE
from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.domain.masks import Clique, StructuralZeros, allowed_cells
from marginweave.estimate.consistency import TOLERANCE
from marginweave.estimate.mixture.targets import expected_below, surprise
from marginweave.estimate.rounding import nearest_column
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.tables import CensoredObservation, Observation

# A set of columns counts when it differs from what its parts imply by more than so many deviations of pure noise.
EVIDENCE = 2.0
_STEPS = 30
_TURNS = 60
_FITTING = 30
_SETTLED = 0.02


class InformativeTables:
    """Picks tables, from short sets of columns to long ones, while there is time to fit them.

    `seconds` are what is left of it.
    """

    def __init__(self, singles: Sequence[CensoredObservation], total: float, seconds: float) -> None:
        self._total = max(total, 1.0)
        self._shares = {}
        for m in singles:
            even = np.full(len(m.counts), self._total / len(m.counts))
            self._shares[m.attributes[0]] = nearest_column(m, even, self._total) / self._total
        self.seconds = seconds - sum(fitting_seconds(m.counts.size) for m in singles)

    def pick(self, tables: Iterable[CensoredObservation]) -> list[CensoredObservation]:
        """The tables of a length whose counts differ from the product of their columns by more than `EVIDENCE`.

        Most differing first, as many as there is time for; in the order they came in. The others would only have a fit follow
        their noise, and end before it has followed what there is to be seen. DP: post-processing.
        """
        kept: list[tuple[float, int, CensoredObservation]] = []
        for number, table in enumerate(tables):
            differs = self._surprise(table)
            if differs > EVIDENCE:
                heapq.heappush(kept, (differs, -number, table))
                self.seconds -= fitting_seconds(table.counts.size)
            while kept and self.seconds < 0:
                self.seconds += fitting_seconds(heapq.heappop(kept)[2].counts.size)
        return [table for _, _, table in sorted(kept, key=lambda entry: -entry[1])]

    def _surprise(self, table: CensoredObservation) -> float:
        """In standard deviations of what noise alone makes of it."""
        if not set(table.attributes) <= self._shares.keys():
            return 0.0
        shares = (self._shares[a] for a in table.attributes)
        return _difference(table, self._total * functools.reduce(np.multiply.outer, shares))


def _filled(table: CensoredObservation, means: Floats) -> Floats:
    """Released counts; what suppressed ones are expected to be, and the means themselves where nothing was counted."""
    suppressed = np.where(table.hidden, expected_below(means, table.deviation, table.cut), means)
    return np.where(table.released, table.counts, suppressed)


def _difference(table: CensoredObservation, means: Floats) -> float:
    """How far the counts are from `means`, in standard deviations of what noise alone makes of these."""
    known = table.released | table.hidden
    return surprise((_filled(table, means) - means)[known], means[known], table.deviation, table.cut)


def tuple_marginals(
    aggregates: Aggregates, sizes: Sequence[int], masks: Sequence[StructuralZeros] = ()
) -> tuple[Observation, ...]:
    """Marginals of every attribute, and of every set of attributes whose counts say more than its parts do.

    From short sets to long ones. What the parts of a set imply is the table of maximum entropy with their counts (iterative
    proportional fitting: Deming and Stephan 1940). Where the released counts differ from it by more than their noise, the
    estimate is theirs: a step fills in what suppressed counts are expected to be given the last estimate (EM of a censored
    Gaussian: Dempster, Laird, Rubin 1977), then takes the nearest table without negative cells whose sums are those of the
    parts, a cell moving in proportion to its variance: that of the noise, or its own square where nothing was counted. So
    missing values, and what was suppressed, get what the other cells leave.

    Args:
        aggregates: normalized k-tuples, without sets of values.
        sizes: number of codes of each attribute, the missing one included where there is one (`domain_sizes`).
        masks: structural zeros; a mask of one attribute gives the missing value's records to the released values.

    Returns:
        Nonnegative float64 marginals, single attributes first; sets of more than 2^18 cells are left out. `deviation` is
        that of the noise. DP: post-processing.
    """
    total = float(max(aggregates.record_count, 1))
    together = [mask for mask in masks if len(mask.attributes) > 1]
    known: dict[Clique, Floats] = {(): np.array(total)}
    found: list[Observation] = []
    for tables in _tables(aggregates, sizes, together):
        parts, known = known, {}
        for table in tables:
            clique = table.attributes
            others = ((axis, clique[:axis] + clique[axis + 1 :]) for axis in range(len(clique)))
            facets = [(axis, parts[rest]) for axis, rest in others if rest in parts]
            if len(facets) < len(clique):
                continue
            possible = allowed_cells(clique, table.counts.shape, together)
            known[clique] = implied = _implied(facets, possible)
            if len(clique) == 1 or _difference(table, implied) > EVIDENCE:
                known[clique] = _estimate(table, possible, implied, facets, total)
                kept = _without_suppressed(known[clique], clique, masks)
                found.append(Observation(attributes=clique, counts=kept, deviation=table.deviation))
    return tuple(found)


def tuple_observations(aggregates: Aggregates, sizes: Sequence[int]) -> tuple[CensoredObservation, ...]:
    """What the released combinations tell of sets of columns, without any estimate: of single columns, and `InformativeTables`.

    Of each single column, also where no value of its private domain was released and nothing is known of it.

    Args:
        aggregates: normalized k-tuples, without sets of values.
        sizes: number of codes of each attribute, the missing one included where there is one (`domain_sizes`).

    Returns:
        From short sets to long ones; sets of more than 2^18 cells are left out. DP: post-processing.
    """
    found: list[CensoredObservation] = []
    informative: InformativeTables | None = None
    for drawn in _tables(aggregates, sizes, ()):
        if informative is None:
            found += drawn
        else:
            found += informative.pick(table for table in drawn if (table.released | table.hidden).any())
        informative = informative or InformativeTables(found, aggregates.record_count, MOST_SECONDS)
    return tuple(found)


def _tables(
    aggregates: Aggregates, sizes: Sequence[int], masks: Sequence[StructuralZeros]
) -> Iterator[Iterator[CensoredObservation]]:
    """For each length what is known of all sets of columns with at most MAX_TABLE cells, but of cells that masks forbid.

    Counts are noisy where they were released, and below the cut where a candidate was not; other cells (a missing value, a
    value that was suppressed before) were never counted.
    """

    def of_length(level: Level, noise: LevelNoise, candidates: CandidateSet) -> Iterator[CensoredObservation]:
        rows, counted = dict(level.by_columns()), set(candidates.column_sets())
        for clique in itertools.combinations(range(len(sizes)), level.length):
            shape = tuple(sizes[a] for a in clique)
            if math.prod(shape) > MAX_TABLE:
                continue
            counts, released, inside = np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
            if clique in rows:
                cells = tuple(level.values[rows[clique]].T)
                counts[cells], released[cells] = level.counts[rows[clique]], True
            if clique in counted:
                inside = candidates.mask(clique)[tuple(slice(size) for size in shape)]
            possible = allowed_cells(clique, shape, masks)
            yield CensoredObservation(
                attributes=clique,
                counts=counts,
                deviation=noise.deviation,
                released=released & possible,
                hidden=inside & possible & ~released,
                cut=noise.threshold - 0.5,  # counts are whole
            )

    candidates = CandidateSet(length=1, sizes=aggregates.domain.sizes)
    for level, noise in zip(aggregates.levels, aggregates.noise, strict=True):
        yield of_length(level, noise, candidates)
        candidates = CandidateSet.above(level, aggregates.domain.sizes)


def _implied(facets: Sequence[tuple[int, Floats]], possible: Flags) -> Floats:
    """The table of maximum entropy with the sums of its facets, as far as possible cells allow."""
    table = possible.astype(np.float64)
    for _ in range(_FITTING if len(facets) > 1 else 1):
        before = table
        for axis, facet in facets:
            sums = table.sum(axis=axis)
            table = table * np.expand_dims(_ratio(facet, sums), axis)
        if np.abs(table - before).max(initial=0.0) <= 1e-6:
            break
    return table


def _estimate(
    counted: CensoredObservation, possible: Flags, implied: Floats, facets: Sequence[tuple[int, Floats]], total: float
) -> Floats:
    """The table that fits both the counts and the facets."""
    known, sigma = counted.released | counted.hidden, counted.deviation
    variance = np.where(known, sigma**2, implied**2 + 1.0) * possible
    sums = (variance.sum(axis=axis, keepdims=True) for axis, _ in facets)
    shares = [_ratio(variance, np.broadcast_to(together, variance.shape)) for together in sums]
    table = implied
    for _ in range(_STEPS):
        before, table = table, _filled(counted, table)
        for _ in range(_TURNS):
            for (axis, facet), share in zip(facets, shares, strict=True):
                table = table + share * np.expand_dims(facet - table.sum(axis=axis), axis)
            lowest = float(table.min(initial=0.0))
            table = np.maximum(table, 0.0)
            if lowest >= -TOLERANCE * total:
                break
        if np.abs(table - before).max(initial=0.0) <= _SETTLED * sigma:
            break
    together = float(table.sum())
    return table * (total / together) if together > 0 else table


def _ratio(one: Floats, other: Floats) -> Floats:
    """One / other, and 0 where `other` is not above 0."""
    return np.divide(one, other, out=np.zeros_like(other), where=other > 0)


def _without_suppressed(table: Floats, clique: Clique, masks: Sequence[StructuralZeros]) -> Floats:
    """Records of codes that a mask of one attribute forbids go to its other codes, in proportion."""
    for mask in masks:
        if len(mask.attributes) == 1 and mask.attributes[0] in clique:
            axis, kept = clique.index(mask.attributes[0]), table * allowed_cells(clique, table.shape, [mask])
            sums = kept.sum(axis=axis, keepdims=True)
            table = kept * _ratio(table.sum(axis=axis, keepdims=True), sums)
    return table
