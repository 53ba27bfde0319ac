"""Facts of a table that a draft is made from: its header, its rows, and the distinct cells of each column.

Everything here is read from the data, and private: `drafted_columns` proposes what to declare by it. DP: none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.base.arrow import cell_type, to_numpy
from marginweave.base.arrow import compute as pc
from marginweave.base.errors import InputError
from marginweave.configuration.columns.base import RESERVED
from marginweave.configuration.values import ValueMatcher, number
from marginweave.drafts.subjects import Subject, subject_of

GAPS = RESERVED | {
    "",
    "na",
    "n/a",
    "#n/a",
    "n.a.",
    "nan",
    "null",
    "?",
    ".",
    "-",
    "--",
    "k.a.",
    "k. a.",
}
"""Texts that mean "no value", in lower case."""
_LONGEST_GAP = max(map(len, GAPS))
CURRENCY = re.compile(r"[+-]?[€$£¥] ?[+-]?[0-9].*|[+-]?[0-9].*[€$£¥]")
FORMATS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d"),
    *("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M", "%Y/%m/%d %H:%M"),
    *("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d %H:%M:%S"),
    *("%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M:%S %p", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y"),
    *("%a %d %b %Y", "%a, %d %b %Y", "%A, %d %B %Y", "%A, %B %d, %Y"),
    *(
        "%d/%m/%y",
        "%m/%d/%y",
        "%d.%m.%y",
        "%d-%b-%y",
        "%d %b %y",
        "%m/%d/%y %H:%M",
        "%d.%m.%y %H:%M",
    ),
    *("%Y%m%d", "%Y-%m", "%m/%Y", "%b %Y", "%B %Y", "%b-%Y", "%b-%y"),
)
"""Formats of dates besides ISO 8601, which is tried first and needs no format."""
_NEGATIVE_ZERO = r"^-(0+([.,]0*)?)$"
_LONGEST_NAME = 256
_LAST = " (a delimiter at the end of each line makes such a column)"
_NA = "NA"
_LEAST_CODES = 5
_FEW_CODES = 2
_NEARLY_ALL = 0.9


@dataclass(frozen=True, eq=False)
class ColumnCells:
    """The cells of one column: each distinct trimmed text, in order, with the number of cells that hold it.

    An empty cell is the empty text, a negative zero is 0.
    """

    name: str
    texts: pa.Array
    counts: Integers
    are_floats: bool = False
    """The table's own type is a floating-point number."""

    @cached_property
    def cells(self) -> Mapping[str, int]:
        """Number of cells of each text: of a long column much memory."""
        return dict(zip(self.texts.to_pylist(), self.counts.tolist(), strict=True))

    @cached_property
    def present(self) -> list[str]:
        """Distinct texts that are values."""
        return cast("list[str]", self.values[0].to_pylist())

    @cached_property
    def values(self) -> tuple[pa.Array, Integers]:
        """Distinct texts that are values, and the number of cells of each."""
        if not self.gaps:
            return self.texts, self.counts
        are_gaps = pc.is_in(self.texts, value_set=pa.array(self.gaps, pa.string()))
        return self.texts.filter(pc.invert(are_gaps)), self.counts[~to_numpy(are_gaps)]

    @cached_property
    def gaps(self) -> list[str]:
        """Distinct texts that mean "no value"."""
        are_short = pc.less_equal(pc.utf8_length(self.texts), _LONGEST_GAP)
        return [text for text in self.texts.filter(are_short).to_pylist() if self._is_gap(text)]

    def _is_gap(self, text: str) -> bool:
        return text.casefold() in GAPS and not (text == _NA and self.has_code_na)

    @cached_property
    def has_code_na(self) -> bool:
        """Whether NA is a code, as of Namibia: at least five other values, nearly all of two capital letters."""
        return self._codes_beside_na >= _LEAST_CODES

    @property
    def na_may_be_code(self) -> bool:
        """Whether NA is taken for no value, and is among a few codes of two capital letters, so that somebody has to say."""
        return not self.has_code_na and self._codes_beside_na >= _FEW_CODES

    @cached_property
    def _codes_beside_na(self) -> int:
        """How many values are of two capital letters; 0 where there is no NA, or where others are not of that form."""
        if _NA not in self.cells:
            return 0
        values = [text for text in self.cells if text.casefold() not in GAPS]
        codes = sum(bool(re.fullmatch("[A-Z]{2}", text)) for text in values)
        return codes if codes >= _NEARLY_ALL * len(values) else 0

    @property
    def filled(self) -> int:
        """Number of cells that are not empty."""
        are_filled = to_numpy(pc.not_equal(self.texts, ""))
        return int(self.counts[are_filled].sum())

    def are_codes(self, codes: Sequence[str]) -> bool:
        """Return whether at least half of the distinct values are among the `codes`."""
        matcher = ValueMatcher(codes)
        matches = sum(matcher.index(text) >= 0 for text in self.present)
        return 2 * matches >= len(self.present)


def column_cells(name: str, values: pa.ChunkedArray) -> ColumnCells:
    """Return the facts of one column of a table."""
    are_floats = pa.types.is_floating(cell_type(values.type))
    return ColumnCells(name, *_count_texts(values), are_floats)


def _count_texts(values: pa.ChunkedArray) -> tuple[pa.Array, Integers]:
    """Return the distinct trimmed texts, in order, and the number of cells of each."""
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_finite(values), values, None)
    # first, as most columns have few distinct cells
    counted = pc.value_counts(pc.cast(values, pa.string()))
    texts = pc.fill_null(counted.field("values"), "")
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.replace_substring_regex(texts, _NEGATIVE_ZERO, r"\1")
    order = pc.sort_indices(texts)
    ordered = texts.take(order)
    counts = to_numpy(counted.field("counts").take(order))
    encoded = pc.run_end_encode(ordered)  # several spellings can be one text
    ends = to_numpy(encoded.run_ends)
    cells = np.diff(np.cumsum(counts)[ends - 1], prepend=0)
    return encoded.values, cells


@dataclass(frozen=True)
class TableFacts:
    """A table below the header of its source, whose columns may have no name."""

    table: pa.Table
    header: Sequence[str]
    without_text: Sequence[str] = ()
    """Columns of the header that the table lacks, as their cells have no text."""
    key: str | None = None
    """Column whose ids the rows of linked tables have; then it tells the subjects apart."""

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns that have one; raises InputError as `usable_names`."""
        return usable_names(self.header)

    @property
    def left_out(self) -> dict[int, str]:
        """Places of the columns without a usable name, from 1 on, each with what is wrong with its name."""
        return unusable_names(self.header)

    @property
    def rows(self) -> int:
        """Number of rows below the header."""
        return int(self.table.num_rows)

    @cached_property
    def subject(self) -> Subject | None:
        """Column that tells the subjects apart, where they have several rows, here or in linked tables."""
        return subject_of(self.table) if self.key is None else Subject.of_key(self.key)

    def column(self, name: str) -> ColumnCells:
        """Compute the facts of a column: one column at a time is in memory as texts."""
        cells = column_cells(name, self.table.column(name))
        pa.default_memory_pool().release_unused()  # its own and the reader's: a third of the peak
        return cells


def usable_names(header: Sequence[str]) -> list[str]:
    """Return the names of the columns that have a usable one; raises InputError where none has."""
    faults = unusable_names(header)
    names = [name for place, name in enumerate(header, 1) if place not in faults]
    if not names:
        raise InputError(
            "source has no column with a name that no other has: add a line of names above the table"
        )
    return names


def unusable_names(header: Sequence[str]) -> dict[int, str]:
    """Return the places of the columns whose names a configuration cannot have, from 1 on, and why each is left out.

    No name is repeated, since a file without a header has data there.
    """
    counts = Counter(header)
    faults: dict[int, str] = {}
    for place, name in enumerate(header, 1):
        if not name:
            faults[place] = "has no name" + (_LAST if place == len(header) else "")
        elif counts[name] > 1:
            faults[place] = "has the name of another column"
        elif len(name) > _LONGEST_NAME:
            faults[place] = f"has a name of more than {_LONGEST_NAME} characters"
        elif name != name.strip() or not name.isprintable():
            faults[place] = "has a name that begins or ends with a space, or cannot be printed"
    return faults


def header_doubts(names: Iterable[str]) -> list[str]:
    """Return lines of warning where the header may be a row of data; they repeat no name, which may be a value."""
    if all(number(name) is None for name in names):
        return []
    return [
        "The header has numbers as names. If its line is data, add a line of names above it, and draft again"
    ]


def mostly(conditions: Iterable[object]) -> bool:
    """Return whether more than half of the conditions hold."""
    truths = [bool(condition) for condition in conditions]
    return sum(truths) > len(truths) / 2
