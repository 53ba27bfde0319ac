"""Counts the cells of each column that can be used, and stops a person's run of an unusable table. Exact and private."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from marginweave.base.arrow import to_numpy
from marginweave.base.errors import UnusableTableError
from marginweave.columns import values_of
from marginweave.columns.base import Judged
from marginweave.configuration.columns.base import MeasuredColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import mapping_of

MOST_UNUSABLE = 0.5
"""Largest share of the filled cells that may be lost where the configuration does not say so."""


class Unusable(StrEnum):
    """Reasons why a column is unusable: nobody can mean it as it is."""

    NOTHING = "no cell can be read as {value}"
    MOST = "more than half of the cells not declared missing are outside what is declared, or cannot be read as {value}"

    def of(self, column: MeasuredColumn) -> str:
        """Return the reason in words about a column."""
        return self.value.format(value=value_words(column))


def unusable(filled: float, unread: float, beyond: float, *, on_purpose: bool) -> Unusable | None:
    """Return why a column is unusable, or None where it is not.

    The rule takes any numbers. A person's run is judged by the exact ones, before the first draw. A run without a person is
    not: that it stopped would reveal them. What it released can be judged by its noisy counts, as post-processing.

    Args:
        filled: Cells that are not declared missing; an empty one is where nothing declares it.
        unread: Those of them that are no value of the column.
        beyond: Those that lie beyond its bounds.
        on_purpose: The configuration says what happens to values outside (`handled`).
    """
    if filled > 0 and unread >= filled:
        return Unusable.NOTHING
    return Unusable.MOST if unread + beyond > MOST_UNUSABLE * filled and not on_purpose else None


def value_words(column: MeasuredColumn) -> str:
    """Return in words what a cell of the column should be: a number, a declared value."""
    return column.value_form or "a declared value"


def handled(written: str, table: str = "") -> frozenset[str]:
    """Return the columns of the source, or of a linked table, whose `outside` is written in the configuration, on purpose."""
    configuration = mapping_of(written)
    columns = configuration["tables"][table]["columns"] if table else configuration["columns"]
    with_outside = []
    for name, column in columns.items():
        if isinstance(column, Mapping) and "outside" in column:
            with_outside.append(name)
    return frozenset(with_outside)


@dataclass
class CellTally:
    """Cells of a column, counted block by block. Private."""

    cells: int = 0
    missing: int = 0
    unread: int = 0
    beyond: int = 0

    def add(self, judged: Judged) -> None:
        """Count the cells of a block."""
        self.cells += int(judged.cells.sum())
        self.missing += int(judged.cells[judged.missing].sum())
        self.unread += int(judged.cells[judged.unread].sum())
        self.beyond += int(judged.cells[judged.beyond].sum())

    def unusable(self, *, on_purpose: bool) -> Unusable | None:
        """Return why the column is unusable, or None where it is not."""
        return unusable(self.cells - self.missing, self.unread, self.beyond, on_purpose=on_purpose)


def judge(values: pa.ChunkedArray, configuration: Configuration, name: str) -> Judged:
    """Return for the cells of a counted column which are missing, unread or beyond its bounds."""
    kind = values_of(configuration.columns[name], configuration.missing_texts(name))
    return kind.judge(values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())


def judge_cells(table: pa.Table, configuration: Configuration, name: str) -> Judged:
    """Return `judge` of a column of a raw table; derived cells that are flagged as not as declared are unread."""
    judged = judge(table.column(name), configuration, name)
    flags = [flag for flag in configuration.flags_of(name) if flag in table.column_names]
    if not flags:
        return judged
    is_unread = to_numpy(table.column(flags[0]).combine_chunks())
    return judged.with_unread(table.column(name).combine_chunks(), is_unread)


@dataclass
class Usability:
    """Tallies of a table, by which it can be used as declared or not.

    Private until they stop a run; only the operator learns why.
    """

    configuration: Configuration
    tallies: dict[str, CellTally] = field(default_factory=dict)

    def add(self, raw: pa.Table) -> None:
        """Count the cells of a block of the raw table."""
        for name in self.configuration.raw_names:
            tally = self.tallies.setdefault(name, CellTally())
            tally.add(judge_cells(raw, self.configuration, name))

    def check(self, written: str) -> None:
        """Stop a run whose table is unusable; `written` is the configuration as it was written.

        Raises:
            UnusableTableError: no rows, a column in which nothing was read, or most of it lost without a word about that.
        """
        if not any(tally.cells for tally in self.tallies.values()):
            raise _unusable_table(_NO_ROWS, "", "Give fit a table that has rows")
        lost = self._lost_columns(written)
        linked = self._lost_linked_columns(written)
        lost_tables = self._lost_tables()
        if not (lost or linked or lost_tables):
            return
        reasons = "; ".join((*lost_tables, *lost, *linked))
        place = "config" if lost else 'config["tables"][TABLE]'
        is_most = not lost_tables and {*lost.values(), *linked.values()} == {Unusable.MOST}
        meant = f'{place}["columns"][NAME]["outside"] = "null"'
        if not is_most:
            meant = f'del {place}["columns"][NAME]'
        in_python = _IN_PYTHON.format(meant=meant) if lost or linked else _IDS_IN_PYTHON
        raise _unusable_table(reasons, _MEANT if is_most else "", in_python)

    def _lost_columns(self, written: str) -> dict[str, Unusable]:
        """Return the faults of columns of the source, by what is said of each."""
        on_purpose = handled(written)
        faults: dict[str, Unusable] = {}
        for name, tally in self.tallies.items():
            fault = tally.unusable(on_purpose=name in on_purpose)
            if fault is not None:
                column = self.configuration.columns[name]
                assert isinstance(column, MeasuredColumn)
                table = self.configuration.linked_table_of(name)
                source = f", which follows from rows of tables.{table}" if table else ""
                faults[f"column {name!r}{source}: {fault.of(column)}"] = fault
        return faults

    def _lost_linked_columns(self, written: str) -> dict[str, Unusable]:  # noqa: ARG002 - none here
        """Return the faults of columns of linked tables, by what is said of each."""
        return {}

    def _lost_tables(self) -> list[str]:
        """Return what is said of each linked table that is lost."""
        return []


def _unusable_table(why: str, meant: str, in_python: str) -> UnusableTableError:
    """Return the error of an unusable table, with what to write where it is `meant`, and what to do in Python."""
    happened = f"validate: {why}. Nothing was charged."
    return UnusableTableError(
        f"{happened} {_ADVICE.format(meant=meant)}", f"{happened} {in_python}"
    )


_NO_ROWS = "the table has no rows"
_ADVICE = "See what is wrong: marginweave check CONFIG. Where it is meant, {meant}run it with --yes and without `check: stop`"
_MEANT = "write `outside: null` to the column; or "
_IN_PYTHON = (
    'Compare the values of the column, frame[NAME].value_counts(), with config["columns"][NAME]. Correct one of them or, '
    "where it is meant, write {meant}"
)
_IDS_IN_PYTHON = (
    'Compare the ids of both frames, and correct config["tables"][TABLE]["by"] or one of the frames'
)
