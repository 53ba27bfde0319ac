"""Measured tables over the parts of columns that they tell apart: rare values merged, coarser bins, or all of its values.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import NoiseName
from marginweave.configuration.marginals import COMPRESS
from marginweave.configuration.release import Configuration
from marginweave.estimate.earlier import Read, earlier_tables
from marginweave.estimate.known import total_of_rows
from marginweave.estimate.marginals import drawn_compression_of, estimated_marginals, ignored_codes
from marginweave.mechanisms.catalogue import count_noise
from marginweave.observations.tables import Marginals, Observation
from marginweave.observations.undeclared import ignored_attributes

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
        """How many blocks there are."""
        return int(self.blocks.max()) + 1

    def sums(self, weights: Floats) -> Floats:
        """Of weights of the codes, shape (..., codes), the sum in each block: shape (..., blocks)."""
        starts = np.concatenate(([0], np.cumsum(np.bincount(self.blocks))[:-1]))
        found: Floats = np.add.reduceat(weights[..., np.argsort(self.blocks, kind="stable")], starts, axis=-1)
        return found

    def values(self, weights: Floats) -> Floats:
        """Of weights of the codes that are the same in a block, shape (..., codes), those of the blocks."""
        first: Floats = weights[..., np.unique(self.blocks, return_index=True)[1]]
        return first


@dataclass(frozen=True, kw_only=True, eq=False)
class PartTable:
    """Noisy counts over parts of axes, which linear algebra adds up; an observation is over codes, with levels of its own.

    One axis for each of `parts`, numbers of parts in `PartTables.parts`, which increase: tables that divide an axis alike have
    the same one. `variance` is that of the noise of a cell, rounding included.
    """

    parts: tuple[int, ...]
    counts: Floats
    variance: float


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


def part_tables(
    marginals: Marginals, configuration: Configuration, earlier: Iterable[Observation] = (), total: float | None = None
) -> PartTables:
    """The tables of a release, as they were drawn.

    Args:
        marginals: as they were drawn, not made consistent.
        configuration: what is declared, bounds resolved.
        earlier: tables of earlier releases of the same rows.
        total: the number of records, where it is public.
    """
    codes = drawn_compression_of(marginals, configuration).codes
    larger = [m.unmerged(codes) for m in marginals.larger]
    sizes, earlier = [m.counts.size for m in marginals.one_way], [*earlier]
    found = tables_of([*marginals.one_way, *larger, *earlier], sizes, total)
    return replace(found, merged_below=_merged_below(marginals, configuration, earlier))


def _merged_below(
    marginals: Marginals, configuration: Configuration, earlier: Sequence[Observation]
) -> dict[int, Floats]:
    """By axis, below how many deviations of its noise each code is merged; earlier releases may have left out the default."""
    own = configuration.marginal_settings.compress
    multiple = -math.inf if own == "none" else own
    if any(len(np.unique(codes)) < len(codes) for m in earlier for codes in m.codes):
        multiple = max(multiple, COMPRESS)
    if multiple == -math.inf:
        return {}
    never = ignored_attributes(configuration.with_undeclared(()), marginals.domain.labels, marginals.one_way)
    found = [np.full(m.counts.size, float(multiple)) for m in marginals.one_way]
    for axis in never:
        found[axis][-1] = -math.inf  # the code of cells that are not as declared
    return dict(enumerate(found))


def released_tables(
    marginals: Marginals, declared: Configuration, resolved: Configuration, read: Read, *, as_drawn: bool = True
) -> tuple[PartTables, list[Observation]]:
    """Return all tables of a release, and those among them that earlier releases measured.

    `marginals` are as they were drawn; the other arguments as of `with_earlier`. Tables are as they were drawn as well, or
    without the codes that estimates ignore.

    Raises:
        StageError: a file of an earlier release is missing or was changed.
    """
    earlier = earlier_tables(declared, read)
    if not as_drawn:
        ignored = ignored_codes(marginals, resolved)
        earlier = [table.without_last(ignored) for table in earlier]
        marginals = estimated_marginals(marginals, resolved)
    total = total_of_rows(resolved) if resolved.resize is None else float(resolved.resize.records)
    return part_tables(marginals, resolved, earlier, total), earlier


def tables_of(measured: Sequence[Observation], sizes: Sequence[int], total: float | None = None) -> PartTables:
    """Observations, each with the levels by which the codes of its attributes are counted, as tables over parts of axes."""
    parts = _Parts()
    tables = [parts.table(m) for m in measured]
    whole = {axis: parts.number(axis, np.arange(size))[0] for axis, size in enumerate(sizes)}
    return PartTables(
        sizes=dict(enumerate(sizes)),
        parts=tuple(parts.found),
        full_parts=whole,
        tables=tuple(tables),
        total=total,
        tails=frozenset(m.noise for m in measured if not count_noise(m.noise).is_normal),
    )


class _Parts:
    """Numbers of parts; those that divide the codes of an axis alike are one."""

    def __init__(self) -> None:
        self.found: list[Part] = []
        self._numbers: dict[tuple[int, bytes], int] = {}

    def number(self, axis: int, codes: Integers) -> tuple[int, Integers]:
        """The number of the part that has codes of the axis together as `codes` do, and the code of each of its blocks."""
        kinds, first, blocks = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        blocks = np.argsort(order)[blocks.reshape(-1)]
        number = self._numbers.setdefault((axis, blocks.tobytes()), len(self.found))
        if number == len(self.found):
            self.found.append(Part(axis=axis, blocks=blocks))
        return number, kinds[order]

    def table(self, m: Observation) -> PartTable:
        """An observation over parts. Cells of codes that its axes do not have hold noise alone: left out."""
        counts, numbers = np.asarray(m.counts, np.float64), list[int]()
        for place, (attribute, codes) in enumerate(zip(m.attributes, m.codes, strict=True)):
            number, blocks = self.number(attribute, codes)
            numbers.append(number)
            counts = np.take(counts, blocks, axis=place)
        order = sorted(range(len(numbers)), key=lambda place: numbers[place])
        return PartTable(
            parts=tuple(numbers[place] for place in order),
            counts=np.ascontiguousarray(counts.transpose(order)),
            variance=m.deviation**2 + count_noise(m.noise).rounding_variance,
        )
