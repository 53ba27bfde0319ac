"""Recognises where a table begins and ends in its file: titles above it, rows of its header, totals and notes below it.

Everything here is a guess, which the draft asks about. A release reads by the numbers that its configuration declares, and
recognises nothing: what a row holds must never decide whether another row is read. DP: none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from marginweave.configuration.execution import SourceFile
from marginweave.configuration.header_rows import HeaderRows
from marginweave.sources.edges import Edges, FileRow, filled_cells, read_edges
from marginweave.sources.kinds import kind_of
from marginweave.sources.parts import parts_of, reading
from marginweave.sources.sheet import sheet_names

MOST_LINES = 20
"""Most lines above a table that are taken for titles."""
_TOTAL = re.compile(
    r"((grand |overall |sub)?totals?|sums?|summen?|(gesamt|end|zwischen)summe|(ins)?gesamt|somme|suma|totale?s?|"
    r"all|mean|average|avg|median|mittelwert|durchschnitt|moyenne|promedio|media|count|n|min(imum)?|max(imum)?|"
    r"общий итог|итого|合計|总计)(\W.*)?",
    re.IGNORECASE,
)
_NOTE = re.compile(
    r"#|\*|©|\(c\)|(data )?sources?\b|notes?\b|quellen?\b|hinweise?\b|anmerkung|stand\b|fuentes?\b|nota\b|fonte\b|export|"
    r"generated|created|erstellt|as of\b|downloaded|printed|page\b|seite\b",
    re.IGNORECASE,
)
_NO_NAME = re.compile(r"[-+]?[\d.,]*\d[\d.,:%/\-\s]*")
_JSON = '{"ImportId"'
"""Beginning of the cells in the third row of a table that Qualtrics has exported: names, questions, identifiers."""
_WIDE = 4
_MOST_NOTES = 5
_LEAST_EMPTY = 3


def recognise_layout(source: str, form: SourceFile) -> SourceFile:
    """Return the form with its sheet, the lines above and below the table, and the rows of its header, as they look.

    Raises:
        InputError: the source cannot be read.
    """
    if form.sheet is None:
        form = _with_sheet(source, form)
    edges = read_edges(source, form)
    skip, header, footer = layout_of(edges)
    return form.model_copy(update={"skip": skip, "header": header, "footer": footer})


def guesses(given: SourceFile, recognised: SourceFile) -> tuple[str, ...]:
    """Return a sentence on each key of the layout that was `recognised` and not `given`, without a cell of the table."""
    sentences = []
    if recognised.sheet != given.sheet:
        sentences.append(
            f"The workbook has several sheets: the draft is of {recognised.sheet!r}, which looks most like a table (`sheet`). "
            "For another: `marginweave init FILE --sheet NAME`"
        )
    if recognised.skip != given.skip:
        sentences.append(
            f"The header looks to be in line {recognised.skip + 1}: lines above it are left out (`skip: {recognised.skip}`)"
        )
    header = recognised.header
    if header != given.header:
        which = (
            "their texts are joined"
            if header.names is None
            else f"row {header.names} has the names"
        )
        sentences.append(f"The header looks to have {header.rows} rows: {which} (`header`)")
    if recognised.footer != given.footer:
        sentences.append(
            f"The last lines look like totals, notes or nothing: they are left out (`footer: {recognised.footer}`)"
        )
    return tuple(sentences)


def _with_sheet(source: str, form: SourceFile) -> SourceFile:
    """Return the form with the visible sheet whose first rows have the most filled cells; unchanged where there is only one."""
    if kind_of(source, form) != "sheet":
        return form
    with reading(source):
        names = sheet_names(source, parts_of(source)[0])
    if len(names) <= 1:
        return form
    forms = [form.model_copy(update={"sheet": name}) for name in names]
    return max(forms, key=lambda sheet: filled_cells(source, sheet))


def is_total_word(text: str) -> bool:
    """Return whether a text is a word for totals, such as Total or Insgesamt."""
    return bool(_TOTAL.fullmatch(text))


def layout_of(edges: Edges) -> tuple[int, HeaderRows, int]:
    """Return the lines above the header, the rows of the header, and the lines below the table, as they look."""
    widths = Counter(len(row.cells) for row in (*edges.first, *edges.last) if row.filled)
    width = max(widths, key=lambda cells: (widths[cells], cells), default=0)
    if width < 2:
        return 0, HeaderRows(), 0
    titles = _titles(edges.first, width)
    header = _header(edges.first[len(titles) :], width)
    rows_above = len(titles) + header.rows
    above = sum(bool(row.cells) for row in edges.first[:rows_above]) if edges.are_whole else 0
    footer = _footer(edges.last[above:], width)
    return sum(row.lines for row in titles), header, sum(row.filled_lines for row in footer)


def _is_title(row: FileRow, width: int) -> bool:
    """Return whether a row is empty or too short, or has one text in its first cell, or a few beside numbers or colons."""
    if _is_too_short(row, width):
        return True
    if row.filled <= 1:
        return not row.filled or bool(row.cells[0])
    is_remark = any(cell.endswith(":") or _NO_NAME.fullmatch(cell) for cell in row.cells)
    is_short = width >= _WIDE and row.filled <= max(2, width // 3)
    return is_remark and is_short and bool(row.cells[0])


def _is_too_short(row: FileRow, width: int) -> bool:
    """Return whether a row of a text has at most half as many cells as the table, so that it cannot be one of its rows."""
    return row.has_ends and 2 * len(row.cells) <= width


def _are_names(cells: Sequence[str]) -> bool:
    """Return whether the cells that are filled could name columns: there are two or more, and none is a number or a date."""
    texts = [cell for cell in cells if cell]
    return len(texts) >= 2 and not any(_NO_NAME.fullmatch(text) for text in texts)


def _titles(first: Sequence[FileRow], width: int) -> Sequence[FileRow]:
    """Return the rows above the header: titles and empty rows, where names follow, or the file cannot be read with them."""
    titles = list(takewhile(lambda row: _is_title(row, width), first[: MOST_LINES + 1]))
    if len(titles) == len(first) or len(titles) > MOST_LINES:
        return ()
    below = first[len(titles) : len(titles) + 2]
    names_follow = _are_names(below[0].cells) and any(
        _are_names(row.cells) and 2 * row.filled >= width for row in below
    )
    cannot_be_read = any(len(row.cells) != width for row in titles)
    return titles if names_follow or cannot_be_read else ()


def _header(below: Sequence[FileRow], width: int) -> HeaderRows:
    """Return the rows of the header, of which `below` has the first and all that follows it."""
    if len(below) < 3:
        return HeaderRows()
    groups, names, third = ([*row.cells, *[""] * (width - len(row.cells))] for row in below[:3])
    if any(cell.startswith(_JSON) for cell in third):
        return HeaderRows(rows=3, names=1)
    texts = [cell for cell in groups if cell]
    is_incomplete = len(texts) < len(groups) or len(set(texts)) < len(texts)
    # the last column may have no name at all, as where lines end in a separator or in remarks
    are_named = all(map(any, zip(groups[:-1], names[:-1], strict=False)))
    if not (is_incomplete and are_named and _are_names(names)):
        return HeaderRows()
    for place, name in enumerate(names):
        cells = [row.cells[place] for row in below[2:] if place < len(row.cells)]
        present = [cell for cell in cells if cell]
        numbers = sum(bool(_NO_NAME.fullmatch(cell)) for cell in present)
        if name and present and 2 * numbers > len(present):
            return HeaderRows(rows=2)
    return HeaderRows()


def _footer(rows: Sequence[FileRow], width: int) -> Sequence[FileRow]:
    """Return the last of the `rows` that are totals, notes, or empty; none where all are, or but two that are empty."""
    begins = _total_place(rows, width)
    while begins and _is_below_table(rows[begins - 1], rows[: begins - 1], width):
        begins -= 1
    below = rows[begins:]
    is_sure = any(row.filled for row in below) or len(below) >= _LEAST_EMPTY
    return below if begins and is_sure else ()


def _total_place(rows: Sequence[FileRow], width: int) -> int:
    """Return the place of the first total below which no row is filled for more than a third; the end where there is none."""
    total = len(rows)
    for place in reversed(range(max(0, len(rows) - MOST_LINES), len(rows))):
        if _is_total(rows[place], rows[:place], width):
            total = place
        elif rows[place].filled > max(1, width // 3):
            break
    return total


def _is_total(row: FileRow, above: Sequence[FileRow], width: int) -> bool:
    """Return whether the first text of a row is a word for totals, and no row `above` has the same text."""
    text = next(filter(None, row.cells), "")
    return is_total_word(text) and not any(text in row_above.cells[:width] for row_above in above)


def _is_below_table(row: FileRow, above: Sequence[FileRow], width: int) -> bool:
    """Return whether a row is empty or too short, has totals, or is a note."""
    if not row.filled or _is_too_short(row, width):
        return True
    if _is_total(row, above, width):
        return True
    if row.filled > max(1, width // 3):
        return False
    return _is_note(row, above, width) if row.cells[0] else _are_bare_totals(row, above)


def _are_bare_totals(row: FileRow, above: Sequence[FileRow]) -> bool:
    """Return whether a row has numbers alone, and fewer cells than any row `above`: sums that have no word beside them."""
    are_numbers = all(_NO_NAME.fullmatch(cell) for cell in row.cells if cell)
    return are_numbers and not any(row_above.filled <= row.filled for row_above in above)


def _is_note(row: FileRow, above: Sequence[FileRow], width: int) -> bool:
    """Return whether the first text of a row begins as notes do, or is its only one; it is none where a row `above` has it."""
    text = row.cells[0]
    if any(text in row_above.cells[:width] for row_above in above):
        return False
    if _NOTE.match(text):
        return True
    alike = sum(row_above.filled == 1 for row_above in above)
    return width >= _WIDE and row.filled == 1 and alike <= min(_MOST_NOTES, len(above) // 4)
