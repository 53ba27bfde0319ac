"""Reads the first and the last rows of a text or a sheet, whatever they hold, to see where the table begins and ends.

DP: none. This is a look, for the draft of a configuration alone: no release reads a source by it.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from marginweave.configuration.execution import SourceFile
from marginweave.sources.kinds import delimiter_of, kind_of
from marginweave.sources.parts import Part, parts_of, reading
from marginweave.sources.sheet import Row, sheet_rows, sheet_texts
from marginweave.sources.text_source import byte_stream, sample_of

_MOST_ROWS = 60
_TAIL = 1 << 16
_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileRow:
    """A row with its trimmed cells, and the number of its lines in the file, all of them and those that are not empty.

    A row of a text `has_ends`: its number of cells is that of its delimiters, and must be that of the header. A sheet's row has
    any number of empty cells, of which those at its end are left out.
    """

    cells: tuple[str, ...]
    lines: int = 1
    filled_lines: int = 1
    has_ends: bool = False

    @property
    def filled(self) -> int:
        """Number of cells that are not empty."""
        return sum(map(bool, self.cells))


@dataclass(frozen=True)
class Edges:
    """The first rows of a file, empty ones too, and the last rows, without empty lines.

    They are whole where `last` has all rows of the file, those of its header among them.
    """

    first: Sequence[FileRow] = ()
    last: Sequence[FileRow] = ()
    are_whole: bool = False


def read_edges(source: str, form: SourceFile) -> Edges:
    """Return the first and the last rows; nothing of a source that is neither text nor sheet, or a text without delimiter.

    Raises:
        InputError: the source cannot be read.
    """
    kind = kind_of(source, form)
    delimiter = delimiter_of(source, form)
    with reading(source):
        if kind == "sheet":
            return _sheet_edges(source, parts_of(source)[0], form)
        if delimiter is not None:
            return _text_edges(source, parts_of(source)[0], delimiter, form)
    return Edges()


def filled_cells(source: str, form: SourceFile) -> int:
    """Return the number of filled cells in the first rows of a sheet; raises InputError if the workbook cannot be read."""
    with reading(source):
        rows = sheet_rows(source, parts_of(source)[0], form)
        return sum(_sheet_row(row).filled for row in islice(rows, _MOST_ROWS))


def _sheet_edges(source: str, part: Part, form: SourceFile) -> Edges:
    first: list[FileRow] = []
    last: deque[Row] = deque(maxlen=_MOST_ROWS)
    rows = 0
    for row in sheet_rows(source, part, form):
        if len(first) < _MOST_ROWS:
            first.append(_sheet_row(row))
        if any(cell is not None for cell in row):
            last.append(row)
            rows += 1
    return Edges(first, tuple(map(_sheet_row, last)), rows == len(last))


def _sheet_row(row: Row) -> FileRow:
    """Return the texts of a row without the empty cells at its end, of which sheets have any number."""
    cells = [text.strip() for text in sheet_texts(row)]
    while cells and not cells[-1]:
        cells.pop()
    return FileRow(tuple(cells))


def _text_edges(source: str, part: Part, delimiter: str, form: SourceFile) -> Edges:
    try:
        head, is_complete = sample_of(source, part, form)
        tail = head if is_complete else _tail_of(source, part, form)
        first = list(islice(_text_rows(head, delimiter), _MOST_ROWS + 1))
        last = [row for row in _text_rows(tail, delimiter) if row.cells]
    except (UnicodeError, csv.Error):
        return Edges()
    if not is_complete and len(first) <= _MOST_ROWS:
        first = first[:-1]  # it may be cut
    are_whole = is_complete and len(last) <= _MOST_ROWS
    return Edges(first[:_MOST_ROWS], last[-_MOST_ROWS:], are_whole)


def _tail_of(source: str, part: Part, form: SourceFile) -> str:
    """Return the end of a text file, from the beginning of a line on."""
    tail = b""
    with byte_stream(source, part, form) as file:
        while chunk := file.read(_CHUNK):
            tail = chunk[-_TAIL:] if len(chunk) >= _TAIL else (tail + chunk)[-_TAIL:]
    _, _, lines = tail.decode("utf-8", "ignore").partition("\n")
    return lines


def _text_rows(text: str, delimiter: str) -> Iterator[FileRow]:
    """Yield the rows of a text; a quoted cell may have several lines. Raises csv.Error."""
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=delimiter)
    start = 0
    for cells in reader:
        row_lines = lines[start : reader.line_num]
        filled = sum(bool(line.strip("\r\n")) for line in row_lines)
        texts = tuple(cell.strip() for cell in cells)
        yield FileRow(texts, len(row_lines), filled, has_ends=True)
        start = reader.line_num
