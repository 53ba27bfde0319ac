"""Dense marginals that follow from the released combinations: what was suppressed is unknown, not zero."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

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

# A set of columns is informative if it differs from what its parts imply by more than this many deviations of pure noise.
EVIDENCE = 2.0
_STEPS = 30
_TURNS = 60
_FITTING = 30
_SETTLED = 0.02

Facet = tuple[int, Floats]
"""An axis of a table, and the sums of the table over it."""


class InformativeTables:
    """A selection of tables, from short sets of columns to long ones, while there is time to fit them.

    `seconds` are the time that remains.
    """

    def __init__(
        self,
        singles: Sequence[CensoredObservation],
        total: float,
        seconds: float,
    ) -> None:
        self._total = max(total, 1.0)
        self._shares: dict[int, Floats] = {}
        for m in singles:
            even = np.full(len(m.counts), self._total / len(m.counts))
            counts = nearest_column(m, even, self._total)
            self._shares[m.attributes[0]] = counts / self._total
        self.seconds = seconds - sum(fitting_seconds(m.counts.size) for m in singles)

    def pick(self, tables: Iterable[CensoredObservation]) -> list[CensoredObservation]:
        """Return the tables of a length whose counts differ from the product of their columns by more than `EVIDENCE`.

        The most different come first while there is time, and are returned in their original order. With the other tables a
        fit would follow their noise, and end before it has followed the dependence in these. DP: post-processing.
        """
        picked: list[tuple[float, int, CensoredObservation]] = []
        for number, table in enumerate(tables):
            differs = self._surprise(table)
            if differs > EVIDENCE:
                heapq.heappush(picked, (differs, -number, table))
                self.seconds -= fitting_seconds(table.counts.size)
            while picked and self.seconds < 0:
                _, _, dropped = heapq.heappop(picked)
                self.seconds += fitting_seconds(dropped.counts.size)
        in_order = sorted(picked, key=lambda entry: -entry[1])
        return [table for _, _, table in in_order]

    def _surprise(self, table: CensoredObservation) -> float:
        """Return how far a table is from independence, in standard deviations of what noise alone makes of it."""
        if not set(table.attributes) <= self._shares.keys():
            return 0.0
        shares = (self._shares[a] for a in table.attributes)
        product = functools.reduce(np.multiply.outer, shares)
        return _difference(table, self._total * product)


def _filled(table: CensoredObservation, means: Floats) -> Floats:
    """Return released counts, what suppressed ones are expected to be, and the means where nothing was counted."""
    expected = expected_below(means, table.deviation, table.cut)
    suppressed = np.where(table.hidden, expected, means)
    return np.where(table.released, table.counts, suppressed)


def _difference(table: CensoredObservation, means: Floats) -> float:
    """Return how far the counts are from `means`, in standard deviations of what noise alone makes of these."""
    counted = table.released | table.hidden
    residuals = _filled(table, means) - means
    return surprise(
        residuals[counted],
        means[counted],
        table.deviation,
        table.cut,
    )


def tuple_marginals(
    aggregates: Aggregates,
    sizes: Sequence[int],
    masks: Sequence[StructuralZeros] = (),
) -> tuple[Observation, ...]:
    """Return marginals of every attribute, and of every set of attributes whose counts say more than its parts do.

    From short sets to long ones. What the parts of a set imply is the table of maximum entropy with their counts (iterative
    proportional fitting: Deming and Stephan 1940). Where the released counts differ from it by more than their noise, they
    are estimated in steps. A step fills in what suppressed counts are expected to be given the last estimate (EM of a
    censored Gaussian: Dempster, Laird, Rubin 1977). It then takes the nearest table without negative cells whose sums are
    those of the parts. A cell moves in proportion to its variance: that of the noise, or its own square where nothing was
    counted. So missing values, and what was suppressed, get what the other cells leave.

    Args:
        aggregates: normalized k-tuples, without sets of values.
        sizes: number of codes of each attribute, the missing one included where there is one (`domain_sizes`).
        masks: structural zeros; a mask of one attribute gives the missing value's records to the released values.

    Returns:
        Nonnegative float64 marginals, single attributes first; sets of more than 2^18 cells are left out. `deviation` is
        that of the noise. DP: post-processing.
    """
    total = float(max(aggregates.record_count, 1))
    wide_masks = [mask for mask in masks if len(mask.attributes) > 1]
    # of sets that are one attribute shorter
    estimates: dict[Clique, Floats] = {(): np.array(total)}
    marginals: list[Observation] = []
    for tables in _tables(aggregates, sizes, wide_masks):
        parts = estimates
        estimates = {}
        for table in tables:
            clique = table.attributes
            facets = _facets(clique, parts)
            if len(facets) < len(clique):
                continue
            possible = allowed_cells(clique, table.counts.shape, wide_masks)
            implied = _implied(facets, possible)
            estimates[clique] = implied
            if len(clique) == 1 or _difference(table, implied) > EVIDENCE:
                estimate = _estimate(table, possible, implied, facets, total)
                estimates[clique] = estimate
                counts = _without_suppressed(estimate, clique, masks)
                marginals.append(
                    Observation(attributes=clique, counts=counts, deviation=table.deviation)
                )
    return tuple(marginals)


def _facets(clique: Clique, parts: Mapping[Clique, Floats]) -> list[Facet]:
    """Return the sums over each axis of a table, as far as `parts` has them."""
    facets = []
    for axis in range(len(clique)):
        part = clique[:axis] + clique[axis + 1 :]
        if part in parts:
            facets.append((axis, parts[part]))
    return facets


def tuple_observations(
    aggregates: Aggregates, sizes: Sequence[int]
) -> tuple[CensoredObservation, ...]:
    """Return what the released combinations say of single columns, and of `InformativeTables`, without any estimate.

    Every single column is included, also where no value of its private domain was released and nothing is known of it.

    Args:
        aggregates: normalized k-tuples, without sets of values.
        sizes: number of codes of each attribute, the missing one included where there is one (`domain_sizes`).

    Returns:
        From short sets to long ones; sets of more than 2^18 cells are left out. DP: post-processing.
    """
    observations: list[CensoredObservation] = []
    informative: InformativeTables | None = None
    for drawn in _tables(aggregates, sizes, ()):
        if informative is None:
            observations += drawn
            informative = InformativeTables(observations, aggregates.record_count, MOST_SECONDS)
        else:
            counted = (table for table in drawn if (table.released | table.hidden).any())
            observations += informative.pick(counted)
    return tuple(observations)


def _tables(
    aggregates: Aggregates,
    sizes: Sequence[int],
    masks: Sequence[StructuralZeros],
) -> Iterator[Iterator[CensoredObservation]]:
    """Yield for each length the tables of all sets of columns with at most MAX_TABLE cells, without cells that masks forbid.

    Counts are noisy where they were released, and below the cut where a candidate was not; other cells (a missing value, a
    value that was suppressed before) were never counted.
    """
    candidates = CandidateSet(length=1, sizes=aggregates.domain.sizes)
    for level, noise in zip(aggregates.levels, aggregates.noise, strict=True):
        yield _tables_of_length(level, noise, candidates, sizes, masks)
        candidates = CandidateSet.above(level, aggregates.domain.sizes)


def _tables_of_length(
    level: Level,
    noise: LevelNoise,
    candidates: CandidateSet,
    sizes: Sequence[int],
    masks: Sequence[StructuralZeros],
) -> Iterator[CensoredObservation]:
    """Yield the tables of `_tables` of one length."""
    rows_of_cliques = dict(level.by_columns())
    counted_cliques = set(candidates.column_sets())
    for clique in itertools.combinations(range(len(sizes)), level.length):
        shape = tuple(sizes[a] for a in clique)
        if math.prod(shape) > MAX_TABLE:
            continue
        counts = np.zeros(shape)
        released = np.zeros(shape, np.bool_)
        candidate = np.zeros(shape, np.bool_)
        if clique in rows_of_cliques:
            rows = rows_of_cliques[clique]
            cells = tuple(level.values[rows].T)
            counts[cells] = level.counts[rows]
            released[cells] = True
        if clique in counted_cliques:
            candidate = candidates.mask(clique)[tuple(slice(size) for size in shape)]
        possible = allowed_cells(clique, shape, masks)
        yield CensoredObservation(
            attributes=clique,
            counts=counts,
            deviation=noise.deviation,
            released=released & possible,
            hidden=candidate & possible & ~released,
            cut=noise.threshold - 0.5,  # counts are whole
        )


def _implied(facets: Sequence[Facet], possible: Flags) -> Floats:
    """Return the table of maximum entropy with the sums of its facets, as far as possible cells allow."""
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
    counted: CensoredObservation,
    possible: Flags,
    implied: Floats,
    facets: Sequence[Facet],
    total: float,
) -> Floats:
    """Return the table that fits both the counts and the facets."""
    sigma = counted.deviation
    is_counted = counted.released | counted.hidden
    variance = np.where(is_counted, sigma**2, implied**2 + 1.0) * possible
    shares = []  # of each facet's difference that each cell takes
    for axis, _ in facets:
        variance_sums = variance.sum(axis=axis, keepdims=True)
        shares.append(_ratio(variance, np.broadcast_to(variance_sums, variance.shape)))
    table = implied
    for _ in range(_STEPS):
        before = table
        table = _filled(counted, table)
        for _ in range(_TURNS):
            for (axis, facet), share in zip(facets, shares, strict=True):
                missing = facet - table.sum(axis=axis)
                table = table + share * np.expand_dims(missing, axis)
            lowest = float(table.min(initial=0.0))
            table = np.maximum(table, 0.0)
            if lowest >= -TOLERANCE * total:
                break
        if np.abs(table - before).max(initial=0.0) <= _SETTLED * sigma:
            break
    table_sum = float(table.sum())
    return table * (total / table_sum) if table_sum > 0 else table


def _ratio(dividend: Floats, divisor: Floats) -> Floats:
    """Return dividend / divisor, and 0 where the divisor is not above 0."""
    quotient = np.zeros_like(divisor)
    return np.divide(dividend, divisor, out=quotient, where=divisor > 0)


def _without_suppressed(
    table: Floats,
    clique: Clique,
    masks: Sequence[StructuralZeros],
) -> Floats:
    """Move the records of codes that a mask of one attribute forbids to its other codes, in proportion."""
    for mask in masks:
        if len(mask.attributes) == 1 and mask.attributes[0] in clique:
            axis = clique.index(mask.attributes[0])
            allowed = table * allowed_cells(clique, table.shape, [mask])
            table_sums = table.sum(axis=axis, keepdims=True)
            allowed_sums = allowed.sum(axis=axis, keepdims=True)
            table = allowed * _ratio(table_sums, allowed_sums)
    return table
