"""Reads the one sheet of an .xlsx workbook, row by row, each cell as the text that a file of texts would have.

openpyxl's own messages may quote cells, so none of them is ever passed on.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from marginweave.base.errors import InputError
from marginweave.configuration.number_texts import MARKS, NumberForm
from marginweave.sources.parts import Part

_ROWS = 1 << 15
_INEXACT = (
    "source ({source}) has the column {column!r} with a number in row {row} that is not stored as a whole number, or a "
    "Boolean, of which one id or value can have several spellings; write the column as texts"
)
Row = tuple[Any, ...]


def sheet_header(source: str, part: Part) -> tuple[str, ...]:
    """Return the trimmed column names in the first row; raises InputError if it is empty, or the workbook cannot be read."""
    with _rows(source, part) as rows:
        return _header(source, rows)


def read_sheet(
    source: str,
    part: Part,
    columns: Sequence[str],
    numbers: NumberForm,
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
    with _rows(source, part) as rows:
        header = _header(source, rows)
        places = [header.index(name) for name in columns]
        block = []
        for line, row in enumerate(rows, 2):
            if any(cell is not None for cell in row[len(header) :]):
                raise InputError(
                    f"source ({source}) has a value in row {line} beyond the last column that has a name"
                )
            if any(cell is not None for cell in row):
                cells = [row[place] if place < len(row) else None for place in places]
                for name, cell in zip(columns, cells, strict=True):
                    if isinstance(cell, float | bool) and name in exact_text_columns:
                        raise InputError(_INEXACT.format(source=source, column=name, row=line))
                block.append([_text(cell, numbers) for cell in cells])
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


def _header(source: str, rows: Iterator[Row]) -> tuple[str, ...]:
    names = [_text(cell, NumberForm()).strip() for cell in next(rows, ())]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise InputError(
            f"source ({source}) has no header: its first row must hold the column names"
        )
    return tuple(names)


@contextmanager
def _rows(source: str, part: Part) -> Iterator[Iterator[Row]]:
    """Open the sheet and give an iterator of its rows, from the first."""
    from openpyxl import load_workbook

    warnings.filterwarnings("ignore", module="openpyxl")  # its warnings name cells
    with part.open() as file:
        try:
            book = load_workbook(file, read_only=True, data_only=True)
            sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
        except Exception:  # of many kinds, whose texts may quote cells
            raise InputError(f"source ({source}) cannot be read as an .xlsx workbook") from None
        if len(sheets) != 1:
            raise InputError(
                f"source ({source}) has {len(sheets)} visible sheets; keep the table alone in a workbook, or save it as .csv"
            )
        sheets[0].reset_dimensions()  # some programs write wrong ones
        yield _parsed_rows(source, sheets[0].iter_rows(values_only=True))


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
