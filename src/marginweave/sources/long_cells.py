"""Finds cells of a text file that may hold rows: a quote that opens by mistake takes rows for a part of its cell.

Such a file has as many fields in every row as its header, so that nothing else is wrong with it.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from marginweave.configuration.execution import SourceFile
from marginweave.sources.parts import Part
from marginweave.sources.text_source import LINE_END, byte_stream
from marginweave.texts.sentences import Sentence, sentence

MANY_BREAKS = 20
"""Line breaks of a cell that is worth a look: few cells of free text have more."""

MANY_DELIMITERS = 6
"""Delimiters from which on it is no chance that a cell has as many as the rows that it would hold."""


@dataclass(frozen=True, kw_only=True)
class LongCells:
    """The `number` of cells that may hold rows; the first of them begins in `line` and has `breaks`. Private."""

    number: int
    line: int
    breaks: int

    @property
    def words(self) -> Sentence:
        """What there is to say of them: where the first is, and nothing of what it holds."""
        key = "table.long-cell" if self.number == 1 else "table.long-cells"
        last = self.line + self.breaks
        return sentence("check", key, number=self.number, line=self.line, last=last)

    @property
    def advice(self) -> Sentence:
        """What to do about them."""
        return sentence("check", "table.long-cell-advice")


def find_long_cells(source: str, part: Part, delimiter: str, form: SourceFile) -> LongCells | None:
    """Return the cells that may hold rows of a text file that can be read; None where it has none.

    Lines count from 1, the first of the file. DP: none, for the operator alone.
    """
    number = 0
    first_line = 0
    first_breaks = 0
    with byte_stream(source, part, form) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        rows = csv.reader(text, delimiter=delimiter)
        line = form.skip + 1
        for row in rows:
            next_line = form.skip + rows.line_num + 1
            if next_line - line > 1:
                for cell in row:
                    breaks = len(LINE_END.findall(cell))
                    if _may_hold_rows(breaks, cell.count(delimiter), len(row)):
                        number += 1
                        if number == 1:
                            first_line = line
                            first_breaks = breaks
                    line += breaks
            line = next_line
    if not number:
        return None
    return LongCells(number=number, line=first_line, breaks=first_breaks)


def _may_hold_rows(breaks: int, delimiters: int, width: int) -> bool:
    """Tell whether a cell of a row of `width` cells has many line breaks, or as many delimiters as the rows it would hold.

    A cell that takes the end of one row, whole rows and the beginning of another one leaves a row of the usual width, so that
    it has `width - 1` delimiters for each line break.
    """
    if breaks >= MANY_BREAKS:
        return True
    return delimiters == breaks * (width - 1) >= MANY_DELIMITERS
