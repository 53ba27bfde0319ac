"""Finds columns that follow from finer ones: the borough from the zone, the chapter from the code. Private. DP: none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

from marginweave.base.arrays import Counts, Integers
from marginweave.configuration.columns import NumberColumn
from marginweave.drafts.chance import MOST_BROKEN, are_exceptions, draws_evidence, needed_evidence
from marginweave.drafts.declared_cells import DeclaredCells, DeclaredTable
from marginweave.drafts.relations import Relation, SampledTable, quoted

_MOST_VALUES = 1000
"""Most values of the finer column: a line of the draft lists all of them."""
_FINER = 1.5
"""The finer column has this many times the values of the coarser one, at least."""
_ROWS_A_VALUE = 2
_MOST_COMMON = 0.9
"""Largest share of the most frequent value of the coarser column: another column guesses that without any relation."""
_MOST_CELLS = 1 << 22


def find_determined(tables: SampledTable, computed: Collection[str]) -> list[Relation]:
    """Return the columns that follow from finer ones, each by the coarsest of these that is determined by none itself."""
    finer = [name for name in tables.kinds("category", "boolean", "number") if name not in computed]
    pairs = []
    for by, name in permutations(finer, 2):
        if _can_determine(tables, by) and _can_follow(tables, name):
            pairs.append((by, name))
    least_evidence = needed_evidence(len(pairs))
    mappings: dict[tuple[str, str], _Mapped] = {}
    for by, name in pairs:
        if _is_no_chance(tables, by, name, least_evidence):
            mapped = _Mapped.of(tables.table, by, name)
            if are_exceptions(mapped.broken, mapped.rows):
                mappings[by, name] = mapped
    following = {name for _, name in mappings}
    relations = []
    for name in tables.kinds("category", "boolean"):
        sources = [by for by, coarser in mappings if coarser == name and by not in following]
        if sources:
            by = min(sources, key=lambda source: mappings[source, name].finer_values)
            relations.append(_relation(tables, by, name, mappings[by, name]))
    return relations


def _can_determine(tables: SampledTable, name: str) -> bool:
    """Return whether the column can be the finer one; of numbers, all within the bounds have a line in the mapping.

    A column with a private domain cannot: a rule would list its values, also one that a single row has, and publish them.
    """
    column = tables.table.columns[name]
    if column.private:
        return False
    if not isinstance(column, NumberColumn):
        return True
    first, last = column.clamp
    return column.decimals == 0 and last - first < _MOST_VALUES


def _can_follow(tables: SampledTable, name: str) -> bool:
    column = tables.table.columns[name]
    return column.type != "number" and column.public_cells


def _is_no_chance(tables: SampledTable, by: str, name: str, least_evidence: float) -> bool:
    """Return whether rows with the same value of `by` have the same value of the other column far too often for chance.

    Rows with the same value of `by` are taken two by two. Of independent columns two have the same other value with the
    chance that any two rows have it.
    """
    first = _Mapped.of(tables.first, by, name)
    if first.broken > 2 * MOST_BROKEN * first.rows:
        return False
    sample = _Mapped.of(tables.sample, by, name)
    is_finer = sample.finer_values >= _FINER * sample.coarser_values > _FINER
    has_rows = (
        tables.table.rows >= _ROWS_A_VALUE * sample.finer_values <= _ROWS_A_VALUE * _MOST_VALUES
    )
    if not (is_finer and has_rows) or sample.broken > 2 * MOST_BROKEN * sample.rows:
        return False
    shares = sample.counts.sum(axis=0) / max(sample.rows, 1)
    if shares.max() > _MOST_COMMON:
        return False
    pairs = int((sample.counts.sum(axis=1) // 2).sum())
    differ = 1 - float((shares**2).sum())
    return draws_evidence(sample.broken, pairs, differ) >= least_evidence


@dataclass(frozen=True)
class _Mapped:
    """Counts of rows, shape (values of the finer column, values of the coarser one), each without rows of other values.

    The coarser column has one more value behind the others where cells have none. Rows in which the finer column has no value
    are left out.
    """

    counts: Counts
    finer: Integers
    """Places of the values of the finer column, shape (values,): its numbers or the places of its labels."""
    coarser: Integers
    """Places of the values of the coarser column among its labels."""

    @classmethod
    def of(cls, table: DeclaredTable, by: str, name: str) -> _Mapped:
        """Count the rows of a table; no counts where they would be too many."""
        source = table.read(by)
        target = table.read(name)
        finer, finer_places = _distinct(source)
        width = len(target.labels) + 1
        if len(finer) * width > _MOST_CELLS:
            return cls(np.zeros((0, 1), np.int64), finer[:0], finer[:0])
        cells = finer_places * width + target.places[source.filled]
        counts = np.bincount(cells, minlength=len(finer) * width).reshape(-1, width)
        present = np.flatnonzero(counts.any(axis=0))
        return cls(counts[:, present], finer, present)

    @property
    def rows(self) -> int:
        """Number of rows in which the finer column has a value."""
        return int(self.counts.sum())

    @cached_property
    def broken(self) -> int:
        """Number of rows whose other value is not the most frequent one for their value of the finer column."""
        return self.rows - int(self.counts.max(axis=1, initial=0).sum())

    @property
    def finer_values(self) -> int:
        """Number of values of the finer column."""
        return self.counts.shape[0]

    @property
    def coarser_values(self) -> int:
        """Number of values of the coarser column; a cell without a value is one more."""
        return self.counts.shape[1]


def _distinct(cells: DeclaredCells) -> tuple[Integers, Integers]:
    """Return the distinct values in order, and for each cell that has one its place among them."""
    values = cells.values[cells.filled]
    if not cells.labels:
        return np.unique(values, return_inverse=True)
    used = np.bincount(values, minlength=len(cells.labels)) > 0
    return np.flatnonzero(used), (np.cumsum(used) - 1)[values]


def _relation(tables: SampledTable, by: str, name: str, mapped: _Mapped) -> Relation:
    """Return the rule: a mapping from the values of the finer column."""
    source = tables.table.read(by)
    target = tables.table.read(name)
    labels = [*target.labels, None]
    places = mapped.finer
    most = mapped.coarser[mapped.counts.argmax(axis=1)]
    column = tables.table.columns[by]
    if isinstance(column, NumberColumn):
        places, most = _without_holes(column, places, most)
    names: Sequence[str] = source.labels
    values = [str(names[place] if names else place) for place in places.tolist()]
    mapping = {value: labels[label] for value, label in zip(values, most, strict=True)}
    return Relation(
        key="determined",
        entries=_computed(by, name, mapping),
        columns=(name, by),
        words=f"{quoted(name)} follows from {quoted(by)}",
        broken=mapped.broken,
        rows=mapped.rows,
        computed=(name,),
    )


def _without_holes(
    column: NumberColumn, numbers: Integers, labels: Integers
) -> tuple[Integers, Integers]:
    """Return all numbers within the bounds; one that no row has follows the next one below it, or the first."""
    first, last = map(int, column.clamp)
    every_number = np.arange(first, last + 1)
    below = np.searchsorted(numbers, every_number, side="right") - 1
    return every_number, labels[np.maximum(below, 0)]


def _computed(by: str, name: str, mapping: Mapping[str, str | None]) -> Sequence[Mapping[str, Any]]:
    with_value = {value: label for value, label in mapping.items() if label is not None}
    return ({"column": name, "by": by, "mapping": with_value},)
