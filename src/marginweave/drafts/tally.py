"""How many cells of each column can be used, and what a person is stopped by: exact, private, for the operator alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from marginweave.base.errors import UnusableTableError
from marginweave.columns import values_of
from marginweave.columns.base import Judged
from marginweave.configuration.columns.base import RULE_DECLARED, MeasuredColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import mapping_of

MOST_UNUSABLE = 0.5
"""The largest share of the cells with content that may be lost without a word in the configuration about it."""


class Unusable(StrEnum):
    """Why a column can hardly be meant as it is."""

    NOTHING = "no cell can be read as {value}"
    MOST = "more than half of the cells not declared missing are outside what is declared, or cannot be read as {value}"

    def of(self, column: MeasuredColumn) -> str:
        """The same in words about a column."""
        return self.value.format(value=value_words(column))


def unusable(filled: float, unread: float, beyond: float, *, on_purpose: bool) -> Unusable | None:
    """The rule by which a column is unusable.

    It takes any numbers: a person's run is held against the exact ones, before the first draw. A run without a person is not:
    that it stopped would tell. What it released can be held against the rule by its noisy counts, as post-processing.

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
    """What a cell of the column should be, in words: a number, a declared value."""
    if column.input_rule == RULE_DECLARED:
        return "a declared value"
    return column.input_rule.removeprefix("every value is ")


def handled(written: str) -> frozenset[str]:
    """The columns whose `outside` is written out, on purpose."""
    columns = mapping_of(written)["columns"]
    return frozenset(name for name, column in columns.items() if isinstance(column, Mapping) and "outside" in column)


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
        """Why the column can hardly be meant as it is."""
        return unusable(self.cells - self.missing, self.unread, self.beyond, on_purpose=on_purpose)


def judge(values: pa.ChunkedArray, configuration: Configuration, name: str) -> Judged:
    """What the cells of a counted column are."""
    kind = values_of(configuration.columns[name], configuration.missing_texts(name))
    return kind.judge(values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())


@dataclass
class Usability:
    """Whether a table can be used as it is declared; private until it stops a run, of which only the operator is told why."""

    configuration: Configuration
    tallies: dict[str, CellTally] = field(default_factory=dict)

    def add(self, raw: pa.Table) -> None:
        """Count the cells of a block of the raw table."""
        for name in self.configuration.raw_names:
            self.tallies.setdefault(name, CellTally()).add(judge(raw.column(name), self.configuration, name))

    def check(self, written: str) -> None:
        """Stop a run that no person can mean; `written` is the configuration as it was written.

        Raises:
            UnusableTableError: no rows, a column in which nothing was read, or most of it lost without a word about that.
        """
        if not any(tally.cells for tally in self.tallies.values()):
            raise _stop(_NO_ROWS, "", "Give fit a frame that has rows")
        on_purpose, faults = handled(written), {}
        for name, tally in self.tallies.items():
            fault = tally.unusable(on_purpose=name in on_purpose)
            if fault is not None:
                column = self.configuration.columns[name]
                assert isinstance(column, MeasuredColumn)
                faults[f"column {name!r}: {fault.of(column)}"] = fault
        if faults:
            beyond_alone = set(faults.values()) == {Unusable.MOST}
            column = 'config["columns"][NAME]'
            in_python = _IN_PYTHON.format(meant=f'{column}["outside"] = "null"' if beyond_alone else f"del {column}")
            raise _stop("; ".join(faults), _MEANT if beyond_alone else "", in_python)


def _stop(why: str, meant: str, in_python: str) -> UnusableTableError:
    """The error of a table that nobody can mean, with what to write where it `meant`, and what to do in Python."""
    happened = f"validate: {why}. Nothing was charged."
    return UnusableTableError(f"{happened} {_ADVICE.format(meant=meant)}", f"{happened} {in_python}")


_NO_ROWS = "the table has no rows"
_ADVICE = (
    "See what is wrong: marginweave check CONFIG. Where it is meant, {meant}run it with --yes and without `check: stop`"
)
_MEANT = "write `outside: null` to the column; or "
_IN_PYTHON = (
    'Compare frame[NAME].value_counts() with config["columns"][NAME]. Correct one of them or, where it '
    "is meant, write {meant}"
)
