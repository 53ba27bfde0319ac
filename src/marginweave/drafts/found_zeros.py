"""Finds numbers that are above 0 only where a category has certain values: no cost of a canceled visit. Private. DP: none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from marginweave.configuration.columns import NumberColumn
from marginweave.drafts.chance import needed_evidence
from marginweave.drafts.column_draft import ColumnDraft, plain
from marginweave.drafts.declared_cells import DeclaredCells, DeclaredTable
from marginweave.drafts.found_brackets import with_edges
from marginweave.drafts.found_gaps import LISTED, GapCondition, GapSearch, on_values
from marginweave.drafts.relations import Relation, SampledTable, quoted


@dataclass(frozen=True)
class _ZerosAsGaps(DeclaredTable):
    """A table in which a 0 of certain numbers is no value."""

    numbers: Collection[str] = ()

    def read(self, name: str) -> DeclaredCells:
        """Return the cells of a column."""
        cells = super().read(name)
        if name not in self.numbers:
            return cells
        return replace(cells, filled=cells.filled & (cells.values != 0))

    @classmethod
    def read_so(cls, table: DeclaredTable, numbers: Collection[str]) -> _ZerosAsGaps:
        """Return a table in which a 0 of these numbers is no value."""
        return cls(table.table, table.columns, table.form, numbers=numbers)


def find_zeros(
    tables: SampledTable, drafts: Mapping[str, ColumnDraft], computed: Collection[str]
) -> list[Relation]:
    """Return numbers from 0 on that are above 0 only beside certain values, or also always there; a bin holds 0 alone then.

    Of numbers that are not `computed` and are in all rows, none of which may break it: a person would see it as a definition.
    """
    public = [
        name
        for name, column in tables.table.columns.items()
        if column.public_cells and name not in computed
    ]
    numbers = [name for name in public if _begins_with_zeros(tables, name)]
    listed = [name for name in public if tables.table.columns[name].type in LISTED]
    zeros = SampledTable(
        *(
            _ZerosAsGaps.read_so(table, numbers)
            for table in (tables.table, tables.sample, tables.first)
        )
    )
    least_evidence = needed_evidence(2 * len(numbers) * len(listed))
    relations: list[Relation] = []
    for name in numbers:
        for both_ways in (True, False):
            search = GapSearch(zeros, least_evidence, both_ways)
            condition = search.best((on_values(zeros, column) for column in listed), name)
            if condition is None or search.broken(condition, name):
                continue
            changed = _with_bin_of_zero(tables, drafts, name)
            if changed is not None:
                relations.append(_relation(search, condition, name, changed))
                break
    return relations


def _begins_with_zeros(tables: SampledTable, name: str) -> bool:
    column = tables.table.columns[name]
    if not isinstance(column, NumberColumn) or column.clamp[0] != 0:
        return False
    cells = tables.sample.read(name)
    are_zeros = cells.values == 0
    return bool(cells.filled.all()) and bool(are_zeros.any()) and not bool(are_zeros.all())


def _with_bin_of_zero(
    tables: SampledTable, drafts: Mapping[str, ColumnDraft], name: str
) -> ColumnDraft | None:
    column = tables.table.columns[name]
    assert isinstance(column, NumberColumn)
    return with_edges(drafts[name], [plain(10.0 ** -(column.decimals or 0))])


def _relation(
    search: GapSearch, condition: GapCondition, name: str, changed: ColumnDraft
) -> Relation:
    entries: list[Mapping[str, Any]] = [{**condition.elsewhere, name: {"above": 0}}]
    verb = "can be above 0 only"
    if search.both_ways:
        entries.append({**condition.where, name: {"to": 0}})
        verb = "is above 0"
    end = ", and nowhere else" if search.both_ways else ""
    return Relation(
        key="forbidden",
        entries=entries,
        columns=(name, condition.column),
        words=f"{quoted(name)} {verb} where {condition.words}{end}",
        summary=f"{quoted(name)} {verb} where {condition.summary}{end}",
        broken=search.broken(condition, name),
        rows=search.tables.table.rows,
        changes={name: changed},
    )
