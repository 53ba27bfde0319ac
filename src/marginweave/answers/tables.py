"""Measured tables over the parts of columns that they tell apart: rare values merged, coarser bins, or all of its values.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import NoiseName
from marginweave.configuration.marginals import COMPRESS
from marginweave.configuration.release import Configuration
from marginweave.estimate.earlier import Read, earlier_tables
from marginweave.estimate.known import total_of_rows
from marginweave.estimate.marginals import drawn_compression_of, estimated_marginals, ignored_codes
from marginweave.mechanisms.catalogue import count_noise
from marginweave.observations.means import estimate_total
from marginweave.observations.tables import Marginals, Observation
from marginweave.observations.undeclared import ignored_attributes

_CONTRADICTED = 5.0
"""Deviations of the drawn number of records from a known one beyond which that is not the table's.

By chance that is rare, and then the drawn number is used, which is right as well.
"""
FEWEST = 1e-6
"""Records of a value whose noisy count is not positive."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A division of the codes of an axis into blocks: `blocks` has the block of each code.

    An axis is an attribute over its codes, the missing one last.
    """

    axis: int
    blocks: Integers

    @property
    def size(self) -> int:
        """Number of blocks."""
        return int(self.blocks.max()) + 1

    def sums(self, weights: Floats) -> Floats:
        """Return the sum in each block, shape (…, blocks), of weights of the codes, shape (…, codes)."""
        by_block, starts = self._order
        sums: Floats = np.add.reduceat(weights[..., by_block], starts, axis=-1)
        return sums

    def values(self, weights: Floats) -> Floats:
        """Return the weights of the blocks, shape (…, blocks), of weights of the codes that are the same in a block."""
        by_block, starts = self._order
        values: Floats = weights[..., by_block[starts]]
        return values

    @cached_property
    def tells_all(self) -> bool:
        """Whether every code is a block of one."""
        return self.size == len(self.blocks)

    @cached_property
    def _order(self) -> tuple[Integers, Integers]:
        """Codes in the order of their blocks, and where each block begins there."""
        sizes = np.bincount(self.blocks)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        return np.argsort(self.blocks, kind="stable"), starts


@dataclass(frozen=True, kw_only=True, eq=False)
class PartTable:
    """Noisy counts over parts of axes, which linear algebra adds up; an observation is over codes, with levels of its own.

    One axis for each of `parts`, numbers of parts in `PartTables.parts`, which increase: tables that divide an axis alike have
    the same one. `variance` is that of the noise of a cell, rounding included. `chosen` is that of the observation.
    """

    parts: tuple[int, ...]
    counts: Floats
    variance: float
    chosen: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class PartTables:
    """Observations of a release, but those in coarser bins, as tables over parts of axes.

    `sizes` are the numbers of codes of each axis. `full_parts` has for each axis the number of the part that tells all of its
    codes apart, in which a table of this axis alone was measured. `total` is the number of records where it is public. `tails`
    are the kinds of noise in the tables whose tails are not normal.

    `merged_below` has by axis and code the multiple of the standard deviation of its own count's noise below which it is
    measured together with other codes, -inf where it never is.
    """

    sizes: dict[int, int]
    parts: tuple[Part, ...]
    full_parts: dict[int, int]
    tables: tuple[PartTable, ...]
    total: float | None = None
    tails: frozenset[NoiseName] = frozenset()
    merged_below: Mapping[int, Floats] = field(default_factory=dict)

    def is_chosen(self, axes: Iterable[int]) -> bool:
        """Return whether several axes are together only in tables that the rows have chosen.

        They are chosen by how much the axes depend on each other in these rows, which is more than in the population where
        chance makes them depend. So what such tables say of the axes together covers the rows, and not the population.
        """
        asked_axes = set(axes)
        if len(asked_axes) < 2:
            return False
        holding = [table for table in self.tables if asked_axes <= self._axes(table)]
        return bool(holding) and all(table.chosen for table in holding)

    def _axes(self, table: PartTable) -> set[int]:
        """Return the axes of a table."""
        return {self.parts[number].axis for number in table.parts}


def part_tables(
    marginals: Marginals,
    configuration: Configuration,
    earlier: Iterable[Observation] = (),
    total: float | None = None,
) -> PartTables:
    """Return the tables of a release, as they were drawn.

    Args:
        marginals: as they were drawn, not made consistent.
        configuration: what is declared, bounds resolved.
        earlier: tables of earlier releases of the same rows.
        total: the number of records, where it is public.
    """
    codes = drawn_compression_of(marginals, configuration).codes
    larger = [m.unmerged(codes) for m in marginals.larger]
    sizes = [m.counts.size for m in marginals.one_way]
    earlier = [*earlier]
    tables = tables_of([*marginals.one_way, *larger, *earlier], sizes, total)
    return replace(tables, merged_below=_merged_below(marginals, configuration, earlier))


def _merged_below(
    marginals: Marginals,
    configuration: Configuration,
    earlier: Sequence[Observation],
) -> dict[int, Floats]:
    """Return by axis and code the multiple of the sigma of its noise below which a code is merged.

    Earlier releases may have left out the default.
    """
    compress = configuration.marginal_settings.compress
    multiple = -math.inf if compress == "none" else compress
    if any(_merges_codes(m) for m in earlier):
        multiple = max(multiple, COMPRESS)
    if multiple == -math.inf:
        return {}
    never = ignored_attributes(
        configuration.with_undeclared(()), marginals.domain.labels, marginals.one_way
    )
    multiples = [np.full(m.counts.size, float(multiple)) for m in marginals.one_way]
    for axis in never:
        multiples[axis][-1] = -math.inf  # the code of cells that are not as declared
    return dict(enumerate(multiples))


def _merges_codes(m: Observation) -> bool:
    """Return whether an observation counts several codes of an attribute together."""
    return any(len(np.unique(codes)) < len(codes) for codes in m.codes)


def _public_total(marginals: Marginals, resolved: Configuration) -> float | None:
    """Return the number of records where it is public: of a resized table, or by a known table that no count contradicts.

    A known table without the cells that are not as declared adds up to fewer records than there are. Where single columns, each
    of which counts every record, have a mean total that is more than `_CONTRADICTED` standard deviations away, the
    number is not the table's.
    """
    if resolved.resize is not None:
        return float(resolved.resize.records)
    total = total_of_rows(resolved)
    complete = [m for m in marginals.one_way if m.complete]
    if total is None or not complete:
        return total
    precision = sum(1 / (m.counts.size * m.deviation**2) for m in complete)
    deviations = abs(estimate_total(complete) - total) * math.sqrt(precision)
    return total if deviations <= _CONTRADICTED else None


def released_tables(
    marginals: Marginals,
    declared: Configuration,
    resolved: Configuration,
    read: Read,
    *,
    as_drawn: bool = True,
) -> tuple[PartTables, list[Observation]]:
    """Return all tables of a release, and those among them that earlier releases measured.

    `marginals` are as they were drawn; the other arguments as of `with_earlier`. Tables are as they were drawn as well, or
    without the codes that estimates ignore.

    Raises:
        StageError: a file of an earlier release is missing or was changed.
    """
    earlier = earlier_tables(declared, read)
    total = _public_total(marginals, resolved)
    if not as_drawn:
        ignored = ignored_codes(marginals, resolved)
        earlier = [table.without_last(ignored) for table in earlier]
        marginals = estimated_marginals(marginals, resolved)
    return part_tables(marginals, resolved, earlier, total), earlier


def tables_of(
    measured: Sequence[Observation], sizes: Sequence[int], total: float | None = None
) -> PartTables:
    """Return observations, each with the levels by which its codes are counted, as tables over parts of axes."""
    parts = _Parts()
    tables = [parts.table_of(m) for m in measured]
    full_parts = {}
    for axis, size in enumerate(sizes):
        full_parts[axis], _ = parts.number_of(axis, np.arange(size))
    return PartTables(
        sizes=dict(enumerate(sizes)),
        parts=tuple(parts.parts),
        full_parts=full_parts,
        tables=tuple(tables),
        total=total,
        tails=frozenset(m.noise for m in measured if not count_noise(m.noise).is_normal),
    )


class _Parts:
    """Parts and their numbers. Parts that divide the codes of an axis alike have the same number."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._numbers: dict[tuple[int, bytes], int] = {}

    def number_of(self, axis: int, codes: Integers) -> tuple[int, Integers]:
        """Return the number of the part whose blocks are the equal values of `codes`, and the value of each block."""
        kinds, first, kind_of_code = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        blocks = np.argsort(order)[kind_of_code.reshape(-1)]
        number = self._numbers.setdefault((axis, blocks.tobytes()), len(self.parts))
        if number == len(self.parts):
            self.parts.append(Part(axis=axis, blocks=blocks))
        return number, kinds[order]

    def table_of(self, m: Observation) -> PartTable:
        """Return an observation over parts. Cells of codes that its axes do not have hold noise alone: left out."""
        counts = np.asarray(m.counts, np.float64)
        numbers: list[int] = []
        for place, (attribute, codes) in enumerate(zip(m.attributes, m.codes, strict=True)):
            number, blocks = self.number_of(attribute, codes)
            numbers.append(number)
            counts = np.take(counts, blocks, axis=place)
        order = sorted(range(len(numbers)), key=lambda place: numbers[place])
        return PartTable(
            parts=tuple(numbers[place] for place in order),
            counts=np.ascontiguousarray(counts.transpose(order)),
            variance=m.deviation**2 + count_noise(m.noise).rounding_variance,
            chosen=m.chosen,
        )
