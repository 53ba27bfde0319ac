"""Counts rows and cells of linked tables that can be used, and stops a person's run where they cannot. Exact and private."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from marginweave.configuration.columns import MeasuredColumn
from marginweave.drafts.tally import MOST_UNUSABLE, CellTally, Unusable, Usability, handled
from marginweave.linked.derivations import LinkedRows
from marginweave.linked.source import UnlinkedRows


class Unlinked(StrEnum):
    """Reasons why a linked table is unusable: its units would be counted as units without rows."""

    EMPTY = "the table has no rows"
    NOTHING = "no row has the id of a row of the source"
    MOST = "fewer than half of the rows have the id of a row of the source"

    @classmethod
    def of(cls, rows: UnlinkedRows) -> Unlinked | None:
        """Return why a linked table is unusable, or None where it is not. Private."""
        if not rows.rows:
            return cls.EMPTY
        lost = rows.without_id + rows.orphans
        if lost == rows.rows:
            return cls.NOTHING
        return cls.MOST if lost > MOST_UNUSABLE * rows.rows else None


@dataclass
class LinkedUsability(Usability):
    """Tallies of a table and its linked ones, by which these can be used as declared or not.

    `linked` are the tallies of columns of counted linked tables, by the names of both. `unlinked` has, by linked tables, how
    many rows belong to nobody (`ReleaseSource.unlinked`). Private until they stop a run; only the operator learns why.
    """

    linked: dict[tuple[str, str], CellTally] = field(default_factory=dict)
    unlinked: dict[str, UnlinkedRows] = field(default_factory=dict)

    def add_linked(self, table: str, rows: LinkedRows) -> None:
        """Count the cells of some rows of a linked table, if it is counted; else what follows from it is judged."""
        if table in self.configuration.counted_tables:
            for name, kind in rows.values.items():
                tally = self.linked.setdefault((table, name), CellTally())
                tally.add(kind.judge(rows.cells(name)))

    def _lost_linked_columns(self, written: str) -> dict[str, Unusable]:
        """Return the faults of columns of counted linked tables, by what is said of each."""
        faults: dict[str, Unusable] = {}
        for (table, name), tally in self.linked.items():
            fault = tally.unusable(on_purpose=name in handled(written, table))
            if fault is not None:
                column = (self.configuration.tables or {})[table].columns[name]
                assert isinstance(column, MeasuredColumn)
                faults[f"column {name!r} of tables.{table}: {fault.of(column)}"] = fault
        return faults

    def _lost_tables(self) -> list[str]:
        """Return what is said of each linked table that has no rows, or of which too few belong to somebody."""
        faults = {name: Unlinked.of(rows) for name, rows in self.unlinked.items()}
        return [
            f"tables.{name}: {fault.value}" for name, fault in faults.items() if fault is not None
        ]
