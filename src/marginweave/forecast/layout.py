"""Lay out tables and lines of a plan such that they fit a width, and no word is broken."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 100
"""Columns of a terminal that a plan is laid out for."""
_GAP = "  "


def aligned(rows: Sequence[Sequence[str]], *, labels: int = 1, width: int = WIDTH) -> list[str]:
    """Return a table as lines of at most `width` characters, its columns one below the other.

    The first `labels` columns say what a row is of. Columns that do not fit follow in another table, which begins with these
    again and has the rows with a cell in it. A first column that takes more than half of the width has its cells on lines of
    their own, which alone can be longer: a name is not broken.
    """
    columns = list(zip(*rows, strict=True))
    names = columns[0]
    has_long_names = max(map(len, names)) > width // 2
    shown_names = ("",) * len(names) if has_long_names else names
    label_columns: list[Sequence[str]] = [shown_names, *columns[1:labels]]
    lines: list[str] = []
    parts: list[list[Sequence[str]]] = [[*label_columns]]
    for column in columns[labels:]:
        if _width([*parts[-1], column]) > width and len(parts[-1]) > labels:
            parts.append([*label_columns])
        parts[-1].append(column)
    for part in parts:
        filled = [any(cells) for cells in zip(*part[labels:], strict=True)]
        for name, line, is_filled in zip(names, _lines(part), filled, strict=True):
            if not is_filled and part is not parts[0]:
                continue
            lines += [name, line] if has_long_names else [line]
    return lines


def _width(columns: Sequence[Sequence[str]]) -> int:
    """Return the width of a table of these columns."""
    return sum(max(map(len, column)) for column in columns) + len(_GAP) * (len(columns) - 1)


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of these columns."""
    widths = [max(map(len, column)) for column in columns]
    return [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in zip(*columns, strict=True)]


def folded(line: str, width: int) -> list[str]:
    """Return a line as lines of at most `width` characters, broken between words; those after the first are indented.

    A word that is longer than a line, such as a path, stays whole.
    """
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=_GAP,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]
