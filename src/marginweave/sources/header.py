"""Names the columns of a source by the rows of its header, and by the new names that are declared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from marginweave.base.errors import InputError
from marginweave.configuration.header_rows import HeaderRows

_PLACE = re.compile(r"column ([1-9][0-9]{0,5})")


def names_of(rows: Sequence[Sequence[str]], header: HeaderRows) -> tuple[str, ...]:
    """Return the trimmed names in the header's `rows`, one a column; empty texts where nothing names a column.

    Texts of several rows are joined by a space, from top to bottom. Above the last row, a text that has another below it also
    belongs to the empty cells on its right, as in a merged cell.
    """
    texts = [list(map(str.strip, row)) for row in rows]
    if header.names is not None:
        return tuple(texts[header.names - 1])
    columns = list(zip_longest(*texts, fillvalue=""))
    for row in range(len(texts) - 1):
        spread = ""
        for place, column in enumerate(columns):
            if column[row]:
                spread = column[row] if any(column[row + 1 :]) else ""
            elif spread:
                columns[place] = (*column[:row], spread, *column[row + 1 :])
    return tuple(" ".join(filter(None, column)) for column in columns)


def renamed(names: Sequence[str], changes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the `names` after the `changes`: a key is a name, or the place of a column, such as `column 3`.

    Raises:
        InputError: a key is no name or place of the source, or a name that several columns have.
    """
    changed = list(names)
    for key, name in changes.items():
        place = _PLACE.fullmatch(key)
        if names.count(key) > 1:
            raise InputError(
                f"source has the column {key!r} of rename more than once: write its place, such as column "
                f"{names.index(key) + 1}: {name}"
            )
        if key in names:
            changed[names.index(key)] = name
        elif place is not None and int(place[1]) <= len(names):
            changed[int(place[1]) - 1] = name
        else:
            raise InputError(f"source lacks the column {key!r} of rename")
    return tuple(changed)


def most_places(changes: Mapping[str, str]) -> int:
    """Return the last place that the `changes` name; 0 where they name none."""
    places = [match for match in map(_PLACE.fullmatch, changes) if match]
    return max((int(place[1]) for place in places), default=0)
