"""A close look at one column for its operator: shares, whether all is one value, the form of what cannot be read, ids.

Everything here is exact and private: it is shown on a terminal and kept nowhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import is_text
from marginweave.columns.base import Judged, distinct_texts
from marginweave.configuration.columns import DateColumn, MeasuredColumn, NumberColumn
from marginweave.configuration.columns.periods import parse_instant
from marginweave.drafts.draft_columns import CURRENCY, FORMATS, mostly
from marginweave.drafts.special_codes import special_codes
from marginweave.drafts.tally import CellTally

_SAMPLE = 100
_PARTS = 256
_FORMS: dict[str, str | re.Pattern[str]] = {  # the first that fits most
    "currency": CURRENCY,
    "thousands": r"[+-]?\d{1,3}([, '\u00a0\u202f]\d{3})+(\.\d+)?",
    "decimal": r"[+-]?(\d{1,3}([. '\u00a0\u202f]\d{3})+|\d+),\d+",
}


@dataclass
class Look(CellTally):
    """The cells of a column, and what a steward can be advised by."""

    blank: int = 0
    """Unread cells that are empty."""
    values: set[str] = field(default_factory=set)
    """Two of its values, or one where there is no other."""
    unread_texts: dict[str, None] = field(default_factory=dict)
    beyond_texts: Counter[str] = field(default_factory=Counter)

    def add(self, judged: Judged) -> None:
        """Count the cells of a block, and keep a few of those that are no values, or beyond bounds."""
        super().add(judged)
        entries, used = judged.entries, judged.cells > 0
        if judged.unread.any():
            empty = _empty(entries) & judged.unread
            self.blank += int(judged.cells[empty].sum())
            _keep(self.unread_texts, entries, judged.unread & ~empty & used)
        if judged.beyond.any():
            texts = entries.filter(pa.array(judged.beyond & used)).slice(0, _SAMPLE).cast(pa.string()).to_pylist()
            cells = judged.cells[judged.beyond & used].tolist()
            self.beyond_texts.update(dict(zip(map(str.strip, texts), cells, strict=False)))
        if len(self.values) < 2:
            values = entries.filter(pa.array(used & ~judged.missing & ~judged.unread))
            self.values |= {str(value).strip() for value in pc.unique(values).slice(0, 2).to_pylist()}
            self.values = set(sorted(self.values)[:2])

    @property
    def is_constant(self) -> bool:
        """Whether all cells that have a value have the same."""
        return len(self.values) == 1 and not self.unread

    def are_codes(self, column: MeasuredColumn) -> bool:
        """Whether most of the cells beyond the bounds, as far as they were kept, look like special codes."""
        if not isinstance(column, NumberColumn):
            return False
        low, high = map(Decimal, column.clamp)
        numbers = {Decimal(text): cells for text, cells in self.beyond_texts.items()}
        return 2 * sum(special_codes(numbers, (low, high)).values()) > self.beyond_texts.total()

    def form(self, column: MeasuredColumn) -> str | None:
        """What most unread texts look like: `currency`, `decimal` or `thousands` of numbers, a format of dates, or None."""
        texts = list(self.unread_texts)
        if isinstance(column, NumberColumn):
            return next((form for form, shape in _FORMS.items() if mostly(re.fullmatch(shape, t) for t in texts)), None)
        if isinstance(column, DateColumn):
            layouts = (layout for layout in FORMATS if layout != column.format)
            return next((form for form in layouts if mostly(parse_instant(t, form) is not None for t in texts)), None)
        return None


def _empty(entries: pa.Array) -> np.ndarray:
    if is_text(entries.type):
        return np.asarray(pc.equal(pc.utf8_trim_whitespace(entries), ""))
    return np.asarray(entries.is_null(nan_is_null=True))


def _keep(kept: dict[str, None], entries: pa.Array, which: np.ndarray) -> None:
    if len(kept) < _SAMPLE:
        texts = entries.filter(pa.array(which)).slice(0, _SAMPLE).to_pylist()
        kept.update(dict.fromkeys(str(text).strip() for text in texts))


def count_missing(ids: pa.ChunkedArray, missing: Sequence[str]) -> int:
    """Return in how many cells there is no id. Private."""
    _, positions, absent = _trimmed_ids(ids, missing)
    return int(absent[positions].sum())


def _trimmed_ids(ids: pa.ChunkedArray, missing: Sequence[str]) -> tuple[pa.Array, Integers, Flags]:
    """Return the distinct trimmed texts of ids, the place of each cell among them, and which of them are no id."""
    texts, positions = distinct_texts(ids.combine_chunks())
    trimmed = pc.utf8_trim_whitespace(texts)
    no_ids = pa.array(["", *(text.strip() for text in missing)], pa.string())
    absent = np.asarray(pc.is_in(trimmed, value_set=no_ids), np.bool_)
    return trimmed, positions.astype(np.int64), absent


@dataclass
class Repetition:
    """Whether the ids of a column stand in several rows, by digests of 56 bits. Private.

    Any two of n ids share a digest with probability n^2 / 2^57 at most, .003 of 20 million.
    """

    missing: Sequence[str]
    blocks: list[tuple[Integers, NDArray[np.uint32], NDArray[np.uint16]]] = field(default_factory=list)
    """Of each block, sorted, the edges by the first eight bits of the digests, and the others in two parts."""

    def add(self, values: pa.ChunkedArray) -> None:
        """Take in the ids of a block; a row without one is nobody's."""
        trimmed, positions, absent = _trimmed_ids(values, self.missing)
        digests = np.fromiter(map(hash, trimmed.to_pylist()), np.int64, len(trimmed)).view(np.uint64)
        own = np.sort(digests[positions[~absent[positions]]])
        edges = np.append(np.searchsorted(own, np.arange(_PARTS, dtype=np.uint64) << np.uint64(56)), len(own))
        self.blocks.append((edges, own.astype(np.uint32), (own >> np.uint64(32)).astype(np.uint16)))

    def counted(self) -> tuple[int, int, int]:
        """Rows with an id, those of them whose id stands in another row as well, and different ids."""
        rows = repeated = ids = 0
        for part in range(_PARTS):  # of the ids a part at a time
            pieces = [
                low[edges[part] : edges[part + 1]]
                | (middle[edges[part] : edges[part + 1]].astype(np.uint64) << np.uint64(32))
                for edges, low, middle in self.blocks
            ]
            counts = np.unique(np.concatenate(pieces), return_counts=True)[1] if pieces else np.zeros(0, np.int64)
            rows, ids = rows + int(counts.sum()), ids + len(counts)
            repeated += int(counts[counts > 1].sum())
        return rows, repeated, ids
