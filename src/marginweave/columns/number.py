"""Numbers: float64 inside the bounds, codes of bins, and draws on the grid of a bin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Floats
from marginweave.base.arrow import cell_type, is_text
from marginweave.base.arrow import compute as pc
from marginweave.columns.base import ColumnValues, Judged, Uniform, binned, distinct_texts, nulls
from marginweave.columns.draws import draw_among, draw_inside
from marginweave.columns.shapes import number_shape
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.values import NUMBER_PATTERN, ValueMatcher, declared_number
from marginweave.mechanisms.randomness import CellWords

_NUMBER = f"^{NUMBER_PATTERN}$"
_DIGITS = 38  # that a decimal128 has


class NumberValues(ColumnValues[NumberColumn]):
    """Numbers in bins."""

    @property
    def clean_type(self) -> pa.DataType:
        """Doubles."""
        return pa.float64()

    @property
    def declared_type(self) -> pa.DataType:
        """Whole numbers where the column has 0 decimals, doubles otherwise."""
        return pa.int64() if self.column.decimals == 0 else pa.float64()

    def clean(self, values: pa.Array) -> pa.Array:
        """Texts or numbers to float64 of the declared decimals, inside the bounds: x -> min(max(x, lower), upper).

        docs/sources/data-processing.md. A cell with more decimals is rounded, so that the numbers of a bin are within
        `NumberGrid.number_limits`. Nulls are preserved; NaN, infinity and a text that is no number are missing
        (`outside: error` stopped before). Private bounds clamp to their public range. Codes stay as they are.
        """
        array, coded = self._read(values)
        array[coded] = np.nan
        special, bounded = np.isin(array, self.column.special), np.clip(self._rounded(array), *self.column.clamp)
        if self.column.special:
            # A number that is rounded to a code is none and keeps its decimals; one that is clamped to a code stays inside by
            # the smallest step.
            bounded = np.where(np.isin(bounded, self.column.special), np.clip(array, *self.column.clamp), bounded)
            inside = np.nextafter(bounded, np.mean(self.column.clamp))
            bounded = np.where(np.isin(bounded, self.column.special), inside, bounded)
        return pa.array(np.where(special, array, bounded), mask=np.isnan(array))

    def _rounded(self, numbers: Floats) -> Floats:
        if self.column.decimals is None:
            return numbers
        with np.errstate(over="ignore"):  # what is too large is clamped
            found: Floats = np.round(numbers, self.column.decimals)
        return found

    def judge(self, values: pa.Array) -> Judged:
        """As of every column, for many cells at once; beyond the bounds is what `clean` clamps. Private."""
        if _is_number(values.type):
            array, coded = self._read(values)
            # what has no text is the empty one
            gaps, has_code = np.isnan(array), ValueMatcher(self.missing).index("") >= 0
            missing = coded | (gaps & has_code)
            return Judged(
                values, np.ones(len(values), np.int64), missing, gaps & ~missing, self._beyond(array, missing)
            )
        texts, positions = distinct_texts(values)
        array, coded = self._read(texts)
        missing = coded | _among(pc.utf8_trim_whitespace(texts), self.missing).to_numpy(zero_copy_only=False)
        return Judged.of_texts(texts, positions, missing, np.isnan(array) & ~missing, self._beyond(array, missing))

    def _beyond(self, numbers: Floats, missing: Flags) -> Flags:
        """Which numbers lie outside the bounds; none where the bins are open."""
        low, high = (-np.inf, np.inf) if self.column.outer == "open" else self.column.clamp
        return ~missing & ~np.isin(numbers, self.column.special) & ((numbers < low) | (numbers > high))

    def _read(self, values: pa.Array) -> tuple[Floats, Flags]:
        """The number of each cell, NaN where there is none; and which of them are missing codes."""
        numbers = pc.cast(values, pa.float64(), safe=False) if _is_number(values.type) else _parse(values, self.missing)
        array = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
        if not is_text(values.type):  # a text beyond the range of doubles is clamped like any other
            array[~np.isfinite(array)] = np.nan
        absent = [float(value) for text in self.missing if (value := declared_number(text.strip())) is not None]
        return array, np.isin(array, absent) if absent else np.zeros(len(array), np.bool_)

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """The bin of each number: x has the bin i with e_i <= x < e_i+1, the last bin closed above; codes come after them."""
        edges, special = self.column.edges, np.array(self.column.special)
        points = values.fill_null(edges[0]).to_numpy(zero_copy_only=False)
        codes = binned(values, points, edges)
        if not len(special):
            return codes
        place, bins = np.minimum(np.searchsorted(special, points), len(special) - 1), len(edges) - 1
        found: Codes = np.where(special[place] == points, bins + place, codes)
        return np.where(nulls(values), bins + len(special), found)

    def decode(self, codes: Codes, labels: tuple[str, ...], uniform: Uniform) -> pa.Array:
        """Draws on {g / 10^resolution : first <= g <= last}, the grid of the bin: the float64 nearest to the decimal."""
        column, runs = self.column, self.column.runs(self.missing, self.resolution)
        missing, given, bins = codes == len(labels), codes, len(column.bin_labels)
        codes, scale = np.where(codes < bins, codes, 0), 10**self.resolution
        first, last = np.array([column.grid(i, self.resolution) for i in range(bins)], np.float64).T
        # The quotient of two integers below 2^53 is the correctly rounded decimal; beyond, doubles are coarser than the grid,
        # and the clip keeps what is rounded inside the bin.
        shape = number_shape(column, self.counts, self.resolution)
        if runs is None:
            points = draw_inside(first, last, codes, shape, uniform)
        else:
            points = draw_among(runs, np.floor((first + last) / 2), codes, shape, uniform)
        numbers = np.clip(points / scale, (first / scale)[codes], (last / scale)[codes])
        if column.special:
            place = np.clip(given.astype(np.int64) - bins, 0, len(column.special) - 1)
            numbers = np.where(given >= bins, np.array(column.special)[place], numbers)
        return pa.array(numbers + 0.0, mask=missing)  # a negative zero is 0

    def declare(self, values: pa.Array) -> pa.Array:
        """Numbers in the declared type."""
        return values.cast(self.declared_type)

    @cached_property
    def resolution(self) -> int:
        """Decimals of a drawn value: the column's, or as few as the source's type has where every bin has such a value."""
        column, kind = self.column, pa.float64() if self.kind is None else cell_type(self.kind)
        if column.decimals is not None or not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            return column.resolution
        held = min(getattr(kind, "scale", 0), column.resolution)
        grids = [(i, *column.grid(i, held)) for i in range(len(column.bin_labels))]
        left = {i for i, first, last in column.runs(self.missing, held) or grids if first <= last}
        return held if len(left) == len(grids) else column.resolution

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """The same number; of a float32 the nearest one inside the bin."""
        cells = super()._cells(values, cell)
        if not pa.types.is_float32(cell):
            return cells
        numbers, single = (some.to_numpy(zero_copy_only=False) for some in (values, cells))
        moved = self.encode(cells.cast(pa.float64()), None) != self.encode(values.cast(pa.float64()), None)
        back = np.nextafter(single, np.where(single < numbers, np.inf, -np.inf).astype(np.float32))
        return pa.array(np.where(moved, back, single), mask=nulls(values))

    def spelled(self, values: pa.Array) -> pa.Array:
        """With as many decimals as are declared."""
        decimals = self.column.decimals
        return values.cast(pa.float64()).cast(pa.decimal128(_DIGITS, decimals)) if decimals else values


def _parse(values: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Texts to numbers; null for what is missing or no number."""
    if pa.types.is_dictionary(values.type):
        return _parse(values.dictionary, missing).take(values.indices)
    texts = pc.utf8_trim_whitespace(pc.cast(values, pa.string()))
    known = pc.and_not(pc.match_substring_regex(texts, _NUMBER), _among(texts, missing))
    return pc.cast(pc.if_else(known, texts, None), pa.float64())


def _among(texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Which of the trimmed texts are those of missing values."""
    return pc.is_in(texts, value_set=pa.array([text.strip() for text in missing], pa.string()))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
