"""Reads the one sheet of an .xlsx workbook, row by row, each cell as the text that a file of texts would have.

openpyxl's own messages may quote cells, so none of them is ever passed on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from marginweave.base.errors import InputError
from marginweave.configuration.number_texts import MARKS, NumberForm
from marginweave.sources.parts import Part

_ROWS = 1 << 15
Row = tuple[Any, ...]


def sheet_header(source: str, part: Part) -> tuple[str, ...]:
    """Trimmed column names in the first row; raises InputError if it is empty, or the workbook cannot be read."""
    with _rows(source, part) as rows:
        return _header(source, rows)


def read_sheet(source: str, part: Part, columns: Sequence[str], numbers: NumberForm) -> Iterator[pa.Table]:
    """The named columns as texts behind dictionaries, in that order, some rows at a time; at least one table.

    Rows without any value are none. A number is spelled in the form of the source's numbers, a date in ISO 8601.

    Raises:
        InputError: the workbook cannot be read or has several sheets, or a row has a value beyond the last column's name.
    """
    with _rows(source, part) as rows:
        header = _header(source, rows)
        places, block = [header.index(name) for name in columns], []
        for line, row in enumerate(rows, 2):
            if any(cell is not None for cell in row[len(header) :]):
                raise InputError(f"source ({source}) has a value in row {line} beyond the last column that has a name")
            if any(cell is not None for cell in row):
                block.append([_text(row[i] if i < len(row) else None, numbers) for i in places])
            if len(block) == _ROWS:
                yield _table(block, columns)
                block = []
        yield _table(block, columns)


def _table(block: list[list[str]], columns: Sequence[str]) -> pa.Table:
    cells = zip(*block, strict=True) if block else ((),) * len(columns)
    return pa.table(
        {name: pa.array(c, pa.string()).dictionary_encode() for name, c in zip(columns, cells, strict=True)}
    )


def _header(source: str, rows: Iterator[Row]) -> tuple[str, ...]:
    names = [_text(cell, NumberForm()).strip() for cell in next(rows, ())]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise InputError(f"source ({source}) has no header: its first row must hold the column names")
    return tuple(names)


@contextmanager
def _rows(source: str, part: Part) -> Iterator[Iterator[Row]]:
    """The rows of the sheet, from its first one, as they are asked for."""
    from openpyxl import load_workbook

    warnings.filterwarnings("ignore", module="openpyxl")  # its warnings name cells
    with part.open() as file:
        try:
            book = load_workbook(file, read_only=True, data_only=True)
            sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
        except Exception:  # of many kinds, whose texts are for nobody
            raise InputError(f"source ({source}) cannot be read as an .xlsx workbook") from None
        if len(sheets) != 1:
            raise InputError(
                f"source ({source}) has {len(sheets)} visible sheets; keep the table alone in a workbook, or save it as .csv"
            )
        sheets[0].reset_dimensions()  # some programs write wrong ones
        yield _careful(source, sheets[0].iter_rows(values_only=True))


def _careful(source: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows, and a sentence where they cannot be parsed."""
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
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(timespec="seconds")
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)
