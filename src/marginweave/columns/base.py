"""Steps from a source's cells to codes and back, for the values of a column: texts become clean values, these become codes.

Every distinct text is examined once, however many cells have it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Codes, Flags, Floats, Integers
from marginweave.base.arrow import cell_type, is_text, to_numpy
from marginweave.base.arrow import compute as pc
from marginweave.checkpoints.codecs import used_texts
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.columns.periods import DAY, day_number
from marginweave.configuration.values import ValueMatcher
from marginweave.mechanisms.randomness import CellWords

Kind = TypeVar("Kind", bound=MeasuredColumn)
LABELED = pa.dictionary(pa.int32(), pa.string())
"""The type of clean values that are labels."""
Uniform: TypeAlias = Callable[[int], Floats]
"""Returns as many independent uniform samples of [0, 1) as asked for: of a public generator, for post-processing alone."""


@dataclass(frozen=True)
class Judged:
    """Entries of a column's cells, with flags. At most one of the three flags holds for an entry. Private.

    Texts are distinct; numbers and dates that are no texts have one entry for each cell.
    """

    entries: pa.Array
    positions: NDArray[np.integer]
    """Place among the entries of that of every cell, shape (cells,)."""
    missing: Flags
    unread: Flags
    beyond: Flags

    @classmethod
    def of_cells(cls, cells: pa.Array, missing: Flags, unread: Flags, beyond: Flags) -> Judged:
        """Return the judgement of cells that are entries themselves."""
        return cls(cells, np.arange(len(cells)), missing, unread, beyond)

    @cached_property
    def cells(self) -> Integers:
        """Number of cells with the entry, shape (entries,)."""
        return np.bincount(self.positions, minlength=len(self.entries)).astype(np.int64)

    @property
    def unread_cells(self) -> Flags:
        """Which cells are unread, shape (cells,)."""
        return self.unread[self.positions]

    def with_unread(self, cells: pa.Array, is_unread: Flags) -> Judged:
        """Return the judgement of the same `cells` in which those of `is_unread` are unread, too, and none of them missing."""
        missing = self.missing[self.positions] & ~is_unread
        beyond = self.beyond[self.positions] & ~is_unread
        return Judged.of_cells(cells, missing, self.unread_cells | is_unread, beyond)


@dataclass(frozen=True)
class ColumnValues(ABC, Generic[Kind]):
    """The values of one column on their way from the source to a release; `missing` are the texts that mean "no value".

    `counts` are the released counts of its labels, for `decode` alone; None where none are known. `kind` is the type of the
    column in the schema of the source, for `decode` and `typed`; None where the source has texts alone.
    The code of a value is the position of its label, and that of a missing value the number of labels.
    DP: `clean` and `encode` are 1-stable, they look at one cell and public constants; `decode`, `declare`, `typed` and
    `spelled` are post-processing; what `judge` finds is for the operator, before anything is drawn.
    """

    column: Kind
    missing: Sequence[str]
    counts: Floats | None = None
    kind: pa.DataType | None = None

    @property
    @abstractmethod
    def clean_type(self) -> pa.DataType:
        """Type of the values that `clean` returns, in the contract of the clean table."""

    @property
    @abstractmethod
    def declared_type(self) -> pa.DataType:
        """Type of the values that `declare` returns, in the contract of the records."""

    @abstractmethod
    def clean(self, values: pa.Array) -> pa.Array:
        """Return cells of the source as clean values; missing is null."""

    def judge(self, values: pa.Array) -> Judged:
        """Return which cells of the source are missing, no value of the column, or a value beyond its bounds. Private.

        A text is examined once. A text that is neither missing nor accepted is `unread`, whatever `outside` says.
        """
        texts, positions = distinct_texts(values)
        matcher = ValueMatcher(self.missing)
        trimmed = [text.strip() for text in texts.to_pylist()]
        is_missing = [matcher.index(text) >= 0 for text in trimmed]
        missing = np.array(is_missing, np.bool_)
        unread = ~(missing | self._accepted(trimmed))
        return Judged(texts, positions, missing, unread, np.zeros(len(texts), np.bool_))

    def _accepted(self, texts: Sequence[str]) -> Flags:
        """Return which trimmed texts are values of the column, missing or not."""
        accepted = [self.column.accepts(text) for text in texts]
        return np.array(accepted, np.bool_)

    @abstractmethod
    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:
        """Return codes of clean values; where a cell can have several, `words` choose which ones it keeps."""

    def labels(self, values: pa.Array) -> tuple[str, ...]:  # noqa: ARG002 - private domains alone look at them
        """Return names of the codes of clean values: public, but for a private domain."""
        return self.column.labels

    @abstractmethod
    def decode(
        self,
        codes: Codes,
        labels: tuple[str, ...],
        uniform: Uniform,
    ) -> pa.Array:
        """Return clean values that are encoded into `codes`, none of which is read back as missing."""

    @abstractmethod
    def declare(self, values: pa.Array) -> pa.Array:
        """Return clean values in the declared type and format; null remains null."""

    def typed(self, values: pa.Array, labels: tuple[str, ...]) -> pa.Array:
        """Return declared values in the type of the source; as they are where that type cannot hold every value of the column.

        Whether it can follows from the declared or released domain (`labels`), never from the values that were drawn.
        """
        if self.kind is None:
            return values
        cell = cell_type(self.kind)
        if self.column.is_set and not is_text(cell):
            return values
        if is_text(cell):
            texts = self.spelled(values).cast(pa.string())
            return texts.cast(cell)
        ends = self._ends(labels)
        try:
            cells = self._cells(ends, cell)
            codes_of_cells = self.encode(self.clean(cells), None)
        except pa.ArrowException:
            return values
        codes = self.encode(self.clean(ends), None)
        is_exact = np.array_equal(codes_of_cells, codes)
        return self._cells(values, cell) if is_exact else values

    def _ends(self, labels: tuple[str, ...]) -> pa.Array:
        """Return declared values of every label: the first sample of each, and then the last."""
        codes = np.arange(len(labels))
        first = self.decode(codes, labels, np.zeros)
        last = self.decode(codes, labels, _largest_samples)
        return pa.concat_arrays([self.declare(first), self.declare(last)])

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """Return declared values as cells of a type; raises ArrowException where the type cannot hold them."""
        return values.cast(pa.string()).cast(cell)

    def spelled(self, values: pa.Array) -> pa.Array:
        """Return values of any type in the spelling of a source of texts, where a text file would spell them differently."""
        return values


def _largest_samples(number: int) -> Floats:
    """Return the largest double below 1, so many times: an `Uniform` that draws the end of every bin."""
    return np.full(number, 1 - 2**-53)


def nulls(values: pa.Array) -> Flags:
    """Return which values are null."""
    is_null: Flags = to_numpy(values.is_null())
    return is_null


def binned(
    values: pa.Array,
    points: np.ndarray,
    edges: Sequence[float],
) -> Codes:
    """Return the bin [edges[i], edges[i+1]) of each point, the last one closed; null becomes the number of bins."""
    bins = len(edges) - 1
    # edges at most a point: one more than its bin
    reached = np.searchsorted(np.asarray(edges), points, side="right")
    codes = np.clip(reached - 1, 0, bins - 1)
    return np.where(nulls(values), bins, codes)


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks per second of each unit of Arrow's timestamps."""


def distinct_texts(values: pa.Array) -> tuple[pa.Array, NDArray[np.integer]]:
    """Return distinct texts of a column and, for each cell, its position among them; null counts as the empty text.

    A native number has its shortest spelling; NaN and infinity, which frames write for a gap, count as null, and so does a
    date or moment outside the years 1 to 9999, which has no spelling. A text may occur twice.
    DP: 1-stable preprocessing; the order of the texts is private, as they are.
    """
    if pa.types.is_dictionary(values.type):
        distinct, positions, null = used_texts(values)
    else:
        encoded = values.dictionary_encode()
        distinct = encoded.dictionary
        null = nulls(encoded.indices)
        positions = to_numpy(encoded.indices.fill_null(0))
    if pa.types.is_floating(distinct.type):
        distinct = pc.if_else(pc.is_finite(distinct), distinct, None)
    if pa.types.is_date(distinct.type) or pa.types.is_timestamp(distinct.type):
        distinct = pc.if_else(_has_year(distinct), distinct, None)
    texts = pc.fill_null(pc.cast(distinct, pa.string()), "")
    if not null.any():
        return texts, positions
    empty = pa.array([""], pa.string())
    texts_and_empty = pa.concat_arrays([texts, empty])
    return texts_and_empty, np.where(null, len(texts), positions)


def _has_year(values: pa.Array) -> pa.Array:
    """Return whether native dates or moments are in the years 1 to 9999."""
    if pa.types.is_timestamp(values.type):
        ticks_of_day = DAY * UNITS[values.type.unit]
    else:
        ticks_of_day = 1 if pa.types.is_date32(values.type) else DAY * UNITS["ms"]
    kind = pa.int32() if ticks_of_day == 1 else pa.int64()
    ticks = values.cast(kind).cast(pa.int64())
    days_to_end = day_number(date.max) + 1
    low = day_number(date.min) * ticks_of_day
    high = days_to_end * ticks_of_day - 1
    if high >= 2**63:  # 64 bits of nanoseconds end before the year 9999
        return values.is_valid()
    is_late_enough = pc.greater_equal(ticks, low)
    is_early_enough = pc.less_equal(ticks, high)
    return pc.and_(is_late_enough, is_early_enough)
