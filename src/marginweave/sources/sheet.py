"""Reads one sheet of an .xlsx workbook, row by row, each cell as the text that a file of texts would have.

openpyxl's own messages may quote cells, so none of them is ever passed on.
"""

from __future__ import annotations

import io
import warnings
from collections import deque
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.number_texts import MARKS, NumberForm
from marginweave.sources.header import most_places, names_of, renamed
from marginweave.sources.parts import Part

_ROWS = 1 << 15
_MOST_KEPT = 1 << 25
"""Bytes of a workbook whose rows are kept: some 6,000,000 cells."""
_INEXACT = (
    "source ({source}) has the column {column!r} with a number in row {row} that is not stored as a whole number, or a "
    "Boolean, of which one id or value can have several spellings; write the column as texts"
)
Row = tuple[Any, ...]


def sheet_header(source: str, part: Part, form: SourceFile) -> tuple[str, ...]:
    """Return the column names in the rows of the header, after the changes of `rename`.

    Raises:
        InputError: they are empty, `rename` names a column that is not there, or the workbook cannot be read.
    """
    with _rows(source, part, form) as rows:
        return _header(source, rows, form)


def read_sheet(
    source: str,
    part: Part,
    columns: Sequence[str],
    form: SourceFile,
    exact_text_columns: Container[str] = (),
) -> Iterator[pa.Table]:
    """Yield the named columns as texts behind dictionaries, in that order, some rows at a time; at least one table.

    Rows without any value are left out. A number is spelled in the form of the source's numbers, a date in ISO 8601. The
    `exact_text_columns`, of ids and of private domains, take whole numbers and no Booleans: of a person 7, 7.0 and TRUE
    would be three.

    Raises:
        InputError: the workbook cannot be read or has several sheets, or a row has a value beyond the last column's name, or
            a cell of an exact column that is a number with a fraction or a Boolean; the message has its row and no value.
    """
    with _rows(source, part, form) as rows:
        header = _header(source, rows, form)
        places = [header.index(name) for name in columns]
        block = []
        for line, row in _before_footer(rows, form):
            if any(cell is not None for cell in row[len(header) :]):
                raise InputError(
                    f"source ({source}) has a value in row {line} beyond the last column that has a name"
                )
            cells = [row[place] if place < len(row) else None for place in places]
            for name, cell in zip(columns, cells, strict=True):
                if isinstance(cell, float | bool) and name in exact_text_columns:
                    raise InputError(_INEXACT.format(source=source, column=name, row=line))
            block.append([_text(cell, form.numbers) for cell in cells])
            if len(block) == _ROWS:
                yield _table(block, columns)
                block = []
        yield _table(block, columns)


def _table(block: list[list[str]], columns: Sequence[str]) -> pa.Table:
    texts_of_columns = zip(*block, strict=True) if block else ((),) * len(columns)
    arrays = {}
    for name, texts in zip(columns, texts_of_columns, strict=True):
        arrays[name] = pa.array(texts, pa.string()).dictionary_encode()
    return pa.table(arrays)


def _header(source: str, rows: Iterator[Row], form: SourceFile) -> tuple[str, ...]:
    """Return the column names in the first rows, and move `rows` on to the first row of data; raises InputError."""
    texts = [sheet_texts(row) for row in islice(rows, form.header.rows)]
    width = max(most_places(form.new_names), *map(len, texts), 0) if texts else 0
    padded = [[*row, *[""] * (width - len(row))] for row in texts]
    names = list(renamed(names_of(padded, form.header), form.new_names)) if padded else []
    while names and not names[-1]:
        names.pop()
    if len(texts) < form.header.rows or not names:
        where = "the row after those of skip" if form.skip else "its first row"
        raise InputError(f"source ({source}) has no header: {where} must hold the column names")
    return tuple(names)


def sheet_rows(source: str, part: Part, form: SourceFile) -> Iterator[Row]:
    """Yield the cells of all rows that are not skipped, empty ones too; raises InputError if the sheet cannot be read."""
    with _rows(source, part, form) as rows:
        yield from rows


def sheet_texts(row: Row) -> list[str]:
    """Return the texts of the cells of a row, as `read_sheet` spells them with decimal points."""
    return [_text(cell, NumberForm()) for cell in row]


def _before_footer(rows: Iterator[Row], form: SourceFile) -> Iterator[tuple[int, Row]]:
    """Yield the rows that have a value, with their numbers in the sheet, but for the last `footer` of them."""
    held_back: deque[tuple[int, Row]] = deque()
    for line, row in enumerate(rows, form.skip + form.header.rows + 1):
        if any(cell is not None for cell in row):
            held_back.append((line, row))
            if len(held_back) > form.footer:
                yield held_back.popleft()


@contextmanager
def _rows(source: str, part: Part, form: SourceFile) -> Iterator[Iterator[Row]]:
    """Open the sheet and give an iterator of its rows, from the first that is not skipped."""
    with _visible_sheets(source, part) as visible:
        sheets = [
            sheet for sheet in visible if form.sheet is None or sheet.title.strip() == form.sheet
        ]
        if form.sheet is not None and not sheets:
            raise InputError(f"source ({source}) has no visible sheet {form.sheet!r}")
        if len(sheets) != 1:
            raise InputError(
                f"source ({source}) has {len(sheets)} visible sheets; say which has the table: source: {{file: …, sheet: NAME}}"
            )
        yield islice(_parsed_rows(source, sheets[0].rows()), form.skip, None)


def sheet_names(source: str, part: Part) -> list[str]:
    """Return the trimmed names of the visible sheets; raises InputError if the workbook cannot be read."""
    with _visible_sheets(source, part) as sheets:
        return [sheet.title.strip() for sheet in sheets]


@dataclass
class _Sheet:
    """A sheet of a workbook that is open; its rows are parsed again each time, or once where they are `kept`."""

    worksheet: Any
    kept: list[Row] | None = None
    parsing: Iterator[Row] | None = None

    @property
    def title(self) -> str:
        """Name of the sheet."""
        return str(self.worksheet.title)

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the first on."""
        if self.kept is None:
            yield from self._parsed()
            return
        if self.parsing is None:
            self.parsing = self._parsed()
        place = 0
        while True:
            if place == len(self.kept):
                row = next(self.parsing, None)
                if row is None:
                    return
                self.kept.append(row)
            yield self.kept[place]
            place += 1

    def _parsed(self) -> Iterator[Row]:
        self.worksheet.reset_dimensions()  # some programs write wrong ones
        yield from self.worksheet.iter_rows(values_only=True)


_OPEN: ContextVar[dict[str, list[_Sheet]] | None] = ContextVar("open workbooks", default=None)


@contextmanager
def workbooks_in_memory() -> Iterator[None]:
    """Inside, a workbook that is read several times is parsed once, and its rows are kept; but for large ones.

    For a draft, which looks at where the table is, how numbers are spelled, and then at the cells.
    """
    token = _OPEN.set({})
    try:
        yield
    finally:
        _OPEN.reset(token)


@contextmanager
def _visible_sheets(source: str, part: Part) -> Iterator[list[_Sheet]]:
    """Open the workbook and give its visible sheets; raises InputError if it cannot be read."""
    kept = _OPEN.get()
    if kept is not None and source in kept:
        yield kept[source]
    elif kept is not None and part.size <= _MOST_KEPT:
        # The bytes outlive this look at the file.
        with part.open() as file:
            content = file.read()
        kept[source] = [_Sheet(sheet, []) for sheet in _worksheets(source, io.BytesIO(content))]
        yield kept[source]
    else:
        with part.open() as file:
            yield [_Sheet(sheet) for sheet in _worksheets(source, file)]


def _worksheets(source: str, file: BinaryIO) -> list[Any]:
    from openpyxl import load_workbook

    warnings.filterwarnings("ignore", module="openpyxl")  # its warnings name cells
    try:
        book = load_workbook(file, read_only=True, data_only=True)
        return [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
    except Exception:  # of many kinds, whose texts may quote cells
        raise InputError(f"source ({source}) cannot be read as an .xlsx workbook") from None


def _parsed_rows(source: str, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the rows; raises InputError where they cannot be parsed."""
    try:
        yield from rows
    except Exception:
        raise InputError(f"source ({source}) has a sheet that cannot be parsed") from None


def _text(cell: Any, numbers: NumberForm) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return repr(cell).replace(".", MARKS[numbers.decimal])
    if isinstance(cell, datetime):
        return (
            cell.date().isoformat() if cell.time() == time() else cell.isoformat(timespec="seconds")
        )
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)
