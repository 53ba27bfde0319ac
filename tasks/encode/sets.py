"""Codes of cells that hold several values, cut to a public cap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.tasks.mechanisms.randomness import CellWords

Whole = NDArray[np.int64]
_COLUMN = 32  # bits of a slot that a value has


@dataclass(frozen=True)
class ColumnWords:
    """The words of one of several columns: none is that of another column."""

    words: CellWords
    column: int

    def words_of(self, records: Whole, slots: Whole | int = 0) -> NDArray[np.uint64]:
        """The word of each record and value."""
        return self.words.words_of(records, np.asarray(slots) + (self.column << _COLUMN))


def set_codes(values: pa.ListArray, size: int, cap: int | None, words: CellWords | None) -> Whole:
    """Codes of sets, shape (records, width), the values of a cell in increasing order and then the missing code `size`.

    The width is `cap`; of a cell with more values a uniformly chosen subset of `cap` is kept: those with the smallest words,
    which are one for each row and value, independent of all other cells. Without a cap the width is that of the longest cell.
    DP: 1-stable preprocessing; row-local under coupled words.
    """
    lengths = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = values.flatten().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    if cap is not None and words is not None:
        owners, codes, lengths = cut_sets(owners, codes, lengths, cap, words)
    return pad_sets(owners, codes, lengths, int(lengths.max(initial=1)) if cap is None else cap, size)


def pad_sets(owners: Whole, codes: Whole, lengths: Whole, width: int, size: int) -> Whole:
    """Values, one after the other, as rows of `width` codes, filled up with `size`; `owners` has the row of each value."""
    places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    padded = np.full((len(lengths), width), size, np.int64)
    padded[owners, places] = codes
    return padded


def cut_sets(owners: Whole, codes: Whole, lengths: Whole, cap: int, words: CellWords) -> tuple[Whole, Whole, Whole]:
    """The same with at most `cap` values a row: of more, a uniformly chosen subset, those with the smallest words."""
    over = np.flatnonzero(lengths[owners] > cap)
    if not len(over):
        return owners, codes, lengths
    mine = owners[over]
    order = np.lexsort((words.words_of(mine, codes[over]), mine))
    first = np.flatnonzero(np.concatenate([[True], np.diff(mine[order]) > 0]))
    rank = np.arange(len(over)) - np.repeat(first, np.diff(np.append(first, len(over))))
    kept = np.ones(len(owners), np.bool_)
    kept[over[order[rank >= cap]]] = False
    return owners[kept], codes[kept], np.minimum(lengths, cap)
