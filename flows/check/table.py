"""Reads a table once, block by block, and holds it against everything that is declared of it. DP: none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from marginweave.base.errors import MarginweaveError, printable
from marginweave.configuration.columns import IdentifierColumn, MeasuredColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.structure import Structure
from marginweave.drafts.look import ColumnLook, Repetition, count_missing
from marginweave.drafts.subjects import are_subjects, names_subjects
from marginweave.drafts.tally import handled, judge_cells
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.linked.derivations import LinkedRows
from marginweave.linked.source import ReleaseSource
from marginweave.linked.tallies import NestedTally
from marginweave.released.evaluation import BrokenRule
from marginweave.runs.looks import record_look
from marginweave.runs.request import Request

from ...schemas.expectations import Suite
from .advice import (
    NO_ROWS,
    SIZE,
    Remark,
    beyond_finding,
    check_sentence,
    column_findings,
    id_finding,
    linked_findings,
    long_cells_finding,
    ownerless_finding,
    rule_finding,
    suite_finding,
    unlinked_finding,
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
    """Return what a steward should know of the table before a release, worst first; nothing of a column that is as declared.

    That somebody looked is written down before the first row is read.

    Raises:
        InputError: the source cannot be read, lacks a column, or is changed meanwhile.
    """
    configuration = request.configuration
    linked = LinkedInspection(configuration)
    source = replace(ReleaseSource.of(request.places, configuration), watch=linked.add)
    source.check_columns()
    inspection = Inspection(
        configuration,
        _with_text(source),
        None if request.suites[0] is None else Suite(request.suites[0], raw_input=True),
    )
    tables = configuration.tables or {}
    tallies = {
        nested: NestedTally(tables[name])
        for name, nested in zip(
            configuration.counted_tables, configuration.nested_names, strict=True
        )
    }
    record_look(
        request.folder.home, "check", configuration.dataset, request.source, configuration.written
    )
    with source.unchanged("the source was changed while it was read; check it again"):
        columns = (*inspection.columns, *configuration.undeclared_flags, *tallies)
        for block in source.tables(columns):
            inspection.add(block.drop_columns(list(tallies)))
            for name, tally in tallies.items():
                tally.add(block.column(name))
            pa.default_memory_pool().release_unused()
        long_cells = source.long_cells()
    rows = inspection.rows()
    if long_cells is not None:
        rows.append(CheckedRow(subject="table", findings=(long_cells_finding(long_cells),)))
    rows += linked.rows()
    rows += unlinked_rows(source)
    for name, tally in zip(configuration.counted_tables, tallies.values(), strict=True):
        rows += _counted_rows(name, tally)
    return sorted(rows, key=lambda row: row.order)


@dataclass
class LinkedInspection:
    """Findings about the columns of linked tables, in the rows that belong to somebody; summed over blocks. Private."""

    configuration: Configuration
    looks: dict[tuple[str, str], ColumnLook] = field(default_factory=dict)

    def add(self, table: str, rows: LinkedRows) -> None:
        """Take in some rows of a linked table."""
        linked = (self.configuration.tables or {})[table]
        for name, kind in rows.values.items():
            look = self.looks.setdefault((table, name), ColumnLook(numbers=linked.source.numbers))
            look.add(kind.judge(rows.cells(name)))

    def rows(self) -> Iterator[CheckedRow]:
        """Yield a row for each column that has missing cells, or findings."""
        for (table, name), look in self.looks.items():
            linked = (self.configuration.tables or {})[table]
            column = linked.columns[name]
            assert isinstance(column, MeasuredColumn)
            if name not in linked.clamped_names:
                look.beyond = 0
            findings = tuple(
                linked_findings(
                    column,
                    look,
                    counted=table in self.configuration.counted_tables,
                    on_purpose=name in handled(self.configuration.written, table),
                )
            )
            if findings or look.missing:
                share = look.missing / max(look.cells, 1)
                subject = f"tables.{table}.{name}"
                yield CheckedRow(subject=subject, missing=share, findings=findings)


def unlinked_rows(source: ReleaseSource) -> Iterator[CheckedRow]:
    """Yield a row for each linked table that has no rows, or rows without an id or with the id of no row of the source."""
    for linked in source.linked:
        unlinked = source.unlinked.get(linked.name)
        finding = None if unlinked is None else unlinked_finding(linked.by, unlinked)
        if finding is not None:
            yield CheckedRow(subject=f"tables.{linked.name}", findings=(finding,))


def _counted_rows(name: str, tally: NestedTally) -> Iterator[CheckedRow]:
    """Yield how many rows of a counted table are beyond `at_most`, if any is."""
    if tally.rows_beyond:
        yield CheckedRow(subject=f"tables.{name}", findings=(beyond_finding(tally),))


def _with_text(source: ReleaseSource) -> list[str]:
    """Return the names of the table without those of columns whose type has no text, such as durations: ids have one."""
    present = source.columns()
    named_once = [name for name in present if name and present.count(name) == 1]
    without_text = source.without_text(named_once)
    return [name for name in present if name not in without_text]


def id_warnings(request: Request) -> list[str]:
    """Return warnings of ids that repeat under `unit: row`: for the person at a terminal, and for no log. Private.

    Where there are columns to look at, the look is recorded before the first row is read. A file that cannot be read has no
    warnings: the run refuses it.

    Raises:
        MachineError: the look cannot be recorded; then nobody looks.
        StageError: the file of looks is damaged.
    """
    configuration = request.configuration
    try:
        source = ReleaseSource.of(request.places, configuration)
        inspection = Inspection(configuration, _with_text(source))
    except MarginweaveError:
        return []
    if not inspection.ids:
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
    """Findings about a table, summed over its blocks. Private."""

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
        self.looks = {
            name: ColumnLook(numbers=configuration.source.numbers)
            for name in configuration.raw_names
        }
        if configuration.privacy.subject is None:
            self.ids = {
                name: Repetition(self._missing(name)) for name in self.present if self._is_id(name)
            }

    def _missing(self, name: str) -> tuple[str, ...]:
        declared = name in self.configuration.columns
        return self.configuration.missing_texts(name) if declared else self.configuration.missing

    def _is_id(self, name: str) -> bool:
        """Return whether a column is expected to hold ids: by its type, or by its name if it has no declared values."""
        if self.present.count(name) != 1:
            return False
        column = self.configuration.columns.get(name)
        if isinstance(column, IdentifierColumn):
            return True
        has_no_values = column is None or column.private
        return has_no_values and names_subjects(name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read: those of a release, ids, and computed columns that the table has."""
        return tuple(dict.fromkeys((*self.configuration.source_names, *self.ids, *self._computed)))

    @property
    def _computed(self) -> tuple[str, ...]:
        return (self.configuration.structure or Structure()).computed_among(self.present)

    def add(self, block: pa.Table) -> None:
        """Take in a block of the raw table."""
        configuration = self.configuration
        for name, look in self.looks.items():
            look.add(judge_cells(block, configuration, name))
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
        """Return the columns whose ids repeat as those of people do, or that are declared to be ids and repeat."""
        checked = []
        for name, repetition in self.ids.items():
            rows, repeated, ids = repetition.counted()
            is_declared = name in self.configuration.columns
            if repeated and (is_declared or are_subjects(ids, rows)):
                finding = id_finding(name, repeated / rows)
                checked.append(CheckedRow(subject=name, findings=(finding,)))
        return checked

    def rows(self) -> list[CheckedRow]:
        """Return all findings, a row for each subject."""
        if not any(look.cells for look in self.looks.values()):
            return [CheckedRow(subject="table", findings=(NO_ROWS,))]
        return [
            *self._size_rows(),
            *self._column_rows(),
            *self.id_rows(),
            *self._ownerless_rows(),
            *self._rule_rows(),
            *(
                CheckedRow(subject="suite", findings=(suite_finding(expectation),))
                for expectation in self.unmet
            ),
        ]

    def _size_rows(self) -> Iterator[CheckedRow]:
        """Yield a row where `rows` is less than a third, or more than three times, of the rows that there are."""
        declared = self.configuration.rows
        if declared is None or self.configuration.privacy.subject is not None:
            return
        rows = max(look.cells for look in self.looks.values())
        if not declared <= 3 * rows <= 9 * declared:
            yield CheckedRow(subject="rows", findings=(SIZE,))

    def _column_rows(self) -> Iterator[CheckedRow]:
        """Yield a row for each column that has missing cells, or findings."""
        configuration = self.configuration
        on_purpose = handled(configuration.written)
        structure = configuration.structure
        conditional = structure.conditional_columns if structure else ()
        for name, look in self.looks.items():
            column = configuration.columns[name]
            assert isinstance(column, MeasuredColumn)
            is_counted = (
                configuration.may_be_undeclared(name) or name in configuration.indicated_sets
            )
            findings = tuple(
                column_findings(
                    column,
                    look,
                    on_purpose=name in on_purpose,
                    undeclared=is_counted,
                    conditional=name in conditional,
                    table=configuration.linked_table_of(name),
                )
            )
            if findings or look.missing:
                share = look.missing / look.cells
                yield CheckedRow(subject=name, missing=share, findings=findings)

    def _ownerless_rows(self) -> Iterator[CheckedRow]:
        """Yield a row where rows without an id are left out."""
        subject = self.configuration.privacy.subject
        if subject is not None and self.ownerless:
            finding = ownerless_finding(
                subject.column,
                self.ownerless / self.table_rows,
                is_linked=bool(self.configuration.tables),
            )
            yield CheckedRow(subject=subject.column, findings=(finding,))

    def _rule_rows(self) -> Iterator[CheckedRow]:
        """Yield a row for each rule that rows break; missing cells are findings of their column."""
        for rule in add_rules(self.rules) if self.rules else ():
            if rule.records and rule.rule != "never missing":
                subject, finding = rule_finding(rule)
                yield CheckedRow(subject=subject, findings=(finding,))
