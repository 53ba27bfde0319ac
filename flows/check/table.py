"""Reads a table once, block by block, and holds it against everything that is declared of it. DP: none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from marginweave.base.errors import MarginweaveError, printable
from marginweave.configuration.columns import IdentifierColumn, MeasuredColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.structure import Structure
from marginweave.drafts.look import ColumnLook, Repetition, count_missing
from marginweave.drafts.subjects import are_subjects, names_subjects
from marginweave.drafts.tally import handled, judge
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.released.evaluation import BrokenRule
from marginweave.runs.looks import record_look
from marginweave.runs.request import Request
from marginweave.sources.source import TableSource, advice_on_header, source_columns
from marginweave.sources.text_source import check_columns

from ...schemas.expectations import Suite
from .advice import (
    NO_ROWS,
    SIZE,
    Remark,
    check_sentence,
    column_findings,
    id_finding,
    long_cells_finding,
    ownerless_finding,
    rule_finding,
    suite_finding,
)


@dataclass(frozen=True, kw_only=True)
class CheckedRow:
    """What was found of one column, or of the table; `missing` is a share of cells. Private."""

    subject: str
    missing: float | None = None
    findings: tuple[Remark, ...] = ()

    @property
    def order(self) -> tuple[int, float]:
        """Worst first."""
        found = [(int(each.severity), -each.share) for each in self.findings]
        return min(found, default=(9, -(self.missing or 0.0)))


def check_table(request: Request) -> list[CheckedRow]:
    """What a steward should know of the table before a release, worst first; nothing of a column that is as declared.

    That somebody looked is written down before the first row is read.

    Raises:
        InputError: the source cannot be read, lacks a column, or is changed meanwhile.
    """
    configuration = request.configuration
    source = TableSource.of(request.source, configuration)
    present = source_columns(request.source, configuration.source)
    check_columns(
        present,
        configuration.source_names,
        lambda: advice_on_header(request.source, configuration.source),
    )
    inspection = Inspection(
        configuration,
        present,
        None if request.suites[0] is None else Suite(request.suites[0], raw_input=True),
    )
    record_look(
        request.folder.home, "check", configuration.dataset, request.source, configuration.written
    )
    with source.unchanged("the source was changed while it was read; check it again"):
        for block in source.tables(inspection.columns):
            inspection.add(block)
            pa.default_memory_pool().release_unused()
        long_cells = source.long_cells()
    rows = inspection.rows()
    if long_cells is not None:
        rows.append(CheckedRow(subject="table", findings=(long_cells_finding(long_cells),)))
    return sorted(rows, key=lambda row: row.order)


def id_warnings(request: Request) -> list[str]:
    """What to tell the person at a terminal, and no log, of ids that repeat under `unit: row`. Private.

    Where there are columns to look at, that somebody looked is written down before the first row is read. Empty for a file
    that cannot be read, which the run refuses.

    Raises:
        MachineError: the look cannot be written down; then nobody looks.
        StageError: what is known of looks is damaged.
    """
    configuration, inspection, source = request.configuration, None, None
    with suppress(MarginweaveError):
        inspection = Inspection(configuration, source_columns(request.source, configuration.source))
        source = TableSource.of(request.source, configuration)
    if inspection is None or source is None or not inspection.ids:
        return []
    record_look(
        request.folder.home, "run", configuration.dataset, request.source, configuration.written
    )
    with suppress(MarginweaveError):
        for block in source.tables(tuple(inspection.ids)):
            for name, repetition in inspection.ids.items():
                repetition.add(block.column(name))
        return [
            printable(str(check_sentence("table.ids-warning", name=row.subject)))
            for row in inspection.id_rows()
        ]
    return []


@dataclass
class Inspection:
    """What is found of a table, summed over its blocks. Private."""

    configuration: Configuration
    present: Sequence[str]
    suite: Suite | None = None
    looks: dict[str, ColumnLook] = field(default_factory=dict)
    ids: dict[str, Repetition] = field(default_factory=dict)
    ownerless: int = 0
    """Rows without an id of the unit of privacy, which are left out."""
    table_rows: int = 0
    rules: list[tuple[tuple[BrokenRule, ...], int]] = field(default_factory=list)
    unmet: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        configuration = self.configuration
        self.looks = {name: ColumnLook() for name in configuration.raw_names}
        if configuration.privacy.subject is None:
            self.ids = {
                name: Repetition(self._missing(name)) for name in self.present if self._is_id(name)
            }

    def _missing(self, name: str) -> tuple[str, ...]:
        declared = name in self.configuration.columns
        return self.configuration.missing_texts(name) if declared else self.configuration.missing

    def _is_id(self, name: str) -> bool:
        """Whether ids are to be expected: of an identifier, or by the name of a column without declared values."""
        column = self.configuration.columns.get(name)
        if isinstance(column, IdentifierColumn):
            return self.present.count(name) == 1
        free = column is None or column.private
        return free and names_subjects(name) and self.present.count(name) == 1

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read: what a release reads, ids, and computed columns that the table has."""
        return tuple(dict.fromkeys((*self.configuration.source_names, *self.ids, *self._computed)))

    @property
    def _computed(self) -> tuple[str, ...]:
        return (self.configuration.structure or Structure()).computed_among(self.present)

    def add(self, block: pa.Table) -> None:
        """Take in a block of the raw table."""
        configuration = self.configuration
        for name, look in self.looks.items():
            look.add(judge(block.column(name), configuration, name))
        for name, repetition in self.ids.items():
            repetition.add(block.column(name))
        subject = configuration.privacy.subject
        self.table_rows += block.num_rows
        if subject is not None and subject.missing_subject == "drop":
            self.ownerless += count_missing(
                block.column(subject.column), self._missing(subject.column)
            )
        if configuration.structure is not None or any(
            column.is_set for column in configuration.columns.values()
        ):
            table = block.select(list(dict.fromkeys((*configuration.raw_names, *self._computed))))
            self.rules.append((broken_rules(table, configuration), block.num_rows))
        if self.suite is not None and block.num_rows:
            self.unmet |= dict.fromkeys(self.suite.broken(block.select(configuration.source_names)))

    def id_rows(self) -> list[CheckedRow]:
        """The columns whose ids repeat as those of people do, or that are declared to be ids and repeat."""
        found = []
        for name, repetition in self.ids.items():
            rows, repeated, ids = repetition.counted()
            if repeated and (name in self.configuration.columns or are_subjects(ids, rows)):
                found.append(
                    CheckedRow(subject=name, findings=(id_finding(name, repeated / rows),))
                )
        return found

    def rows(self) -> list[CheckedRow]:
        """What there is to say."""
        configuration = self.configuration
        if not any(look.cells for look in self.looks.values()):
            return [CheckedRow(subject="table", findings=(NO_ROWS,))]
        on_purpose, found = handled(configuration.written), list[CheckedRow]()
        size, cells = configuration.rows, max(look.cells for look in self.looks.values())
        if (
            size is not None
            and configuration.privacy.subject is None
            and not size <= 3 * cells <= 9 * size
        ):
            found.append(CheckedRow(subject="rows", findings=(SIZE,)))
        for name, look in self.looks.items():
            column = configuration.columns[name]
            assert isinstance(column, MeasuredColumn)
            undeclared = (
                configuration.may_be_undeclared(name) or name in configuration.indicated_sets
            )
            findings = tuple(
                column_findings(column, look, on_purpose=name in on_purpose, undeclared=undeclared)
            )
            if findings or look.missing:
                found.append(
                    CheckedRow(subject=name, missing=look.missing / look.cells, findings=findings)
                )
        found += self.id_rows()
        subject = configuration.privacy.subject
        if subject is not None and self.ownerless:
            finding = ownerless_finding(subject.column, self.ownerless / self.table_rows)
            found.append(CheckedRow(subject=subject.column, findings=(finding,)))
        for rule in add_rules(self.rules) if self.rules else ():
            if rule.records and rule.rule != "never missing":  # told of the column
                subject, finding = rule_finding(rule)
                found.append(CheckedRow(subject=subject, findings=(finding,)))
        return [
            *found,
            *(CheckedRow(subject="suite", findings=(suite_finding(each),)) for each in self.unmet),
        ]
