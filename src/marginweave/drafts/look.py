"""Looks closely at one column for its operator: shares, a single value, the notation of unread texts, repeated ids.

Everything here is exact and private: it is shown on a terminal and written nowhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import is_text
from marginweave.columns.base import Judged, distinct_texts
from marginweave.configuration.columns import DateColumn, MeasuredColumn, NumberColumn
from marginweave.configuration.columns.periods import parse_instant
from marginweave.configuration.number_texts import USUAL, NumberForm
from marginweave.drafts.distinct_numbers import DistinctNumbers
from marginweave.drafts.number_spelling import recognise_spelling
from marginweave.drafts.special_codes import special_codes
from marginweave.drafts.table_facts import CURRENCY, FORMATS, mostly
from marginweave.drafts.tally import CellTally

_SAMPLE = 100
_PARTS = 256
_NOTATIONS: dict[str, str | re.Pattern[str]] = {  # the first that fits most
    "currency": CURRENCY,
    "thousands": r"[+-]?\d{1,3}([, '\u00a0\u202f]\d{3})+(\.\d+)?",
    "decimal": r"[+-]?(\d{1,3}([. '\u00a0\u202f]\d{3})+|\d+),\d+",
}


@dataclass
class ColumnLook(CellTally):
    """Cells of a column, counted block by block, with a few of their texts for the advice to a steward."""

    numbers: NumberForm = USUAL
    """How numbers of the source are spelled."""
    blank: int = 0
    """Unread cells that are empty."""
    values: set[str] = field(default_factory=set)
    """Two of its values, or fewer where it has fewer."""
    unread_texts: dict[str, None] = field(default_factory=dict)
    """Some of the unread texts, in the order of the cells."""
    beyond_texts: Counter[str] = field(default_factory=Counter)
    """Some of the texts beyond the bounds, with the number of their cells."""

    def add(self, judged: Judged) -> None:
        """Count the cells of a block, and keep a few of those that are no values, or beyond bounds."""
        super().add(judged)
        entries = judged.entries
        used = judged.cells > 0
        if judged.unread.any():
            empty = _empty(entries) & judged.unread
            self.blank += int(judged.cells[empty].sum())
            _add_sample(self.unread_texts, entries, judged.unread & ~empty & used)
        if judged.beyond.any():
            beyond = judged.beyond & used
            sample = entries.filter(pa.array(beyond)).slice(0, _SAMPLE)
            cells = judged.cells[beyond].tolist()
            # Several entries can have the same text: those of a column of numbers are one a cell.
            for text, count in zip(sample.cast(pa.string()).to_pylist(), cells, strict=False):
                self.beyond_texts[text.strip()] += count
        if len(self.values) < 2:
            values = entries.filter(pa.array(used & ~judged.missing & ~judged.unread))
            first_two = pc.unique(values).slice(0, 2)
            self.values |= {str(value).strip() for value in first_two.to_pylist()}
            self.values = set(sorted(self.values)[:2])

    @property
    def is_constant(self) -> bool:
        """Return whether all cells that have a value have the same."""
        return len(self.values) == 1 and not self.unread

    def are_codes(self, column: MeasuredColumn) -> bool:
        """Return whether most of the sampled cells beyond the bounds look like special codes."""
        if not isinstance(column, NumberColumn):
            return False
        low, high = map(Decimal, column.clamp)
        numbers = DistinctNumbers.of_texts(self.beyond_texts)  # 999 and 999.0 are one number
        codes = special_codes(numbers, (low, high))
        return 2 * sum(codes.values()) > self.beyond_texts.total()

    def spelling(self, column: MeasuredColumn) -> dict[str, Any]:
        """Return `number.text` by which the unread texts are numbers; nothing where there is none, or one is declared.

        Texts that can be read already, without brackets, may be numbers beside unread ones in brackets.
        """
        if not isinstance(column, NumberColumn) or column.text is not None:
            return {}
        texts = list(self.unread_texts)
        readable = [self.numbers.spelled(text) for text in sorted(self.values)]
        return recognise_spelling(texts, self.numbers) or recognise_spelling(
            [*texts, *readable], self.numbers
        )

    def notation(self, column: MeasuredColumn) -> str | None:
        """Return the notation of most unread texts: `currency`, `decimal` or `thousands`, a format of dates, or None."""
        texts = self.unread_texts
        if isinstance(column, NumberColumn):
            for notation, pattern in _NOTATIONS.items():
                if mostly(re.fullmatch(pattern, text) for text in texts):
                    return notation
        if isinstance(column, DateColumn):
            for layout in FORMATS:
                if layout != column.format and mostly(
                    parse_instant(text, layout) is not None for text in texts
                ):
                    return layout
        return None


def _empty(entries: pa.Array) -> np.ndarray:
    if is_text(entries.type):
        return np.asarray(pc.equal(pc.utf8_trim_whitespace(entries), ""))
    return np.asarray(entries.is_null(nan_is_null=True))


def _add_sample(sample: dict[str, None], entries: pa.Array, chosen: np.ndarray) -> None:
    """Add the first texts among the `chosen` entries to the sample, unless it is large already."""
    if len(sample) < _SAMPLE:
        texts = entries.filter(pa.array(chosen)).slice(0, _SAMPLE)
        sample |= dict.fromkeys(str(text).strip() for text in texts.to_pylist())


def count_missing(ids: pa.ChunkedArray, missing: Sequence[str]) -> int:
    """Return the number of cells without an id. Private."""
    _, positions, absent = _trimmed_ids(ids, missing)
    return int(absent[positions].sum())


def _trimmed_ids(ids: pa.ChunkedArray, missing: Sequence[str]) -> tuple[pa.Array, Integers, Flags]:
    """Return the distinct trimmed texts of ids, the place of each cell among them, and which of them are no id."""
    texts, positions = distinct_texts(ids.combine_chunks())
    trimmed = pc.utf8_trim_whitespace(texts)
    missing_texts = [text.strip() for text in missing]
    no_ids = pa.array(["", *missing_texts], pa.string())
    absent = np.asarray(pc.is_in(trimmed, value_set=no_ids), np.bool_)
    return trimmed, positions.astype(np.int64), absent


@dataclass
class Repetition:
    """Ids of a column, taken in block by block to count those that occur in several rows, by digests of 56 bits. Private.

    Any two of n ids share a digest with probability n^2 / 2^57 at most, .003 of 20 million.
    """

    missing: Sequence[str]
    blocks: list[tuple[Integers, NDArray[np.uint32], NDArray[np.uint16]]] = field(
        default_factory=list
    )
    """For each block its sorted digests: where each leading byte starts, then their lowest 32 bits, and the 16 bits above."""

    def add(self, values: pa.ChunkedArray) -> None:
        """Take in the ids of a block; a row without one is not counted."""
        trimmed, positions, absent = _trimmed_ids(values, self.missing)
        hashes = np.fromiter(map(hash, trimmed.to_pylist()), np.int64, len(trimmed))
        digests_of_ids = hashes.view(np.uint64)
        digests = np.sort(digests_of_ids[positions[~absent[positions]]])
        starts = np.searchsorted(digests, np.arange(_PARTS, dtype=np.uint64) << np.uint64(56))
        starts = np.append(starts, len(digests))  # also where the last leading byte ends
        low = digests.astype(np.uint32)
        middle = (digests >> np.uint64(32)).astype(np.uint16)
        self.blocks.append((starts, low, middle))

    def counted(self) -> tuple[int, int, int]:
        """Return the rows with an id, those of them whose id is in another row as well, and the distinct ids."""
        rows = 0
        repeated = 0
        ids = 0
        for part in range(_PARTS):  # a part of the ids at a time, to save memory
            counts = self._rows_of_ids(part)
            rows += int(counts.sum())
            repeated += int(counts[counts > 1].sum())
            ids += len(counts)
        return rows, repeated, ids

    def _rows_of_ids(self, part: int) -> Integers:
        """Return for each distinct id whose digest begins with the byte `part` in how many rows it is."""
        pieces = []
        for starts, low, middle in self.blocks:
            within = slice(starts[part], starts[part + 1])
            shifted_middle = middle[within].astype(np.uint64) << np.uint64(32)
            pieces.append(low[within] | shifted_middle)
        if not pieces:
            return np.zeros(0, np.int64)
        _, counts = np.unique(np.concatenate(pieces), return_counts=True)
        return counts
