"""Numbers: float64 inside the bounds, codes of bins, and samples on the grid of a bin."""

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
_DIGITS = 38  # number of digits of a decimal128


class NumberValues(ColumnValues[NumberColumn]):
    """Numbers in bins."""

    @property
    def clean_type(self) -> pa.DataType:
        """Type of doubles."""
        return pa.float64()

    @property
    def declared_type(self) -> pa.DataType:
        """Type of whole numbers where the column has 0 decimals, of doubles otherwise."""
        return pa.int64() if self.column.decimals == 0 else pa.float64()

    def clean(self, values: pa.Array) -> pa.Array:
        """Map texts or numbers to float64 of the declared decimals, inside the bounds: x -> min(max(x, lower), upper).

        docs/sources/data-processing.md. A cell with more decimals is rounded, so that the numbers of a bin are within
        `NumberGrid.number_limits`. Nulls are preserved; NaN, infinity and a text that is no number are missing
        (`outside: error` stopped before). Private bounds clamp to their public range. Codes remain as they are.
        """
        array, coded = self._read(values)
        array[coded] = np.nan
        special = np.isin(array, self.column.special)
        bounded = np.clip(self._rounded(array), *self.column.clamp)
        if self.column.special:
            # A number that is rounded to a code is no code and keeps its decimals. A number that is clamped to a code remains
            # inside by the smallest step.
            unrounded = np.clip(array, *self.column.clamp)
            is_code = np.isin(bounded, self.column.special)
            bounded = np.where(is_code, unrounded, bounded)
            inside = np.nextafter(bounded, np.mean(self.column.clamp))
            is_code = np.isin(bounded, self.column.special)
            bounded = np.where(is_code, inside, bounded)
        numbers = np.where(special, array, bounded)
        return pa.array(numbers, mask=np.isnan(array))

    def _rounded(self, numbers: Floats) -> Floats:
        if self.column.decimals is None:
            return numbers
        with np.errstate(over="ignore"):  # a number that is too large is clamped
            rounded: Floats = np.round(numbers, self.column.decimals)
        return rounded

    def judge(self, values: pa.Array) -> Judged:
        """Return the judgement of `ColumnValues.judge`; values beyond the bounds are those that `clean` clamps. Private."""
        if _is_number(values.type):
            array, coded = self._read(values)
            gaps = np.isnan(array)
            # a cell without a text counts as the empty text
            has_code = ValueMatcher(self.missing).index("") >= 0
            missing = coded | (gaps & has_code)
            unread = gaps & ~missing
            one_cell_each = np.ones(len(values), np.int64)
            return Judged(values, one_cell_each, missing, unread, self._beyond(array, missing))
        texts, positions = distinct_texts(values)
        array, coded = self._read(texts)
        is_missing_text = _among(pc.utf8_trim_whitespace(texts), self.missing)
        missing = coded | is_missing_text.to_numpy(zero_copy_only=False)
        unread = np.isnan(array) & ~missing
        return Judged.of_texts(texts, positions, missing, unread, self._beyond(array, missing))

    def _beyond(self, numbers: Floats, missing: Flags) -> Flags:
        """Return which numbers are outside the bounds; none where the bins are open."""
        low, high = (-np.inf, np.inf) if self.column.outer == "open" else self.column.clamp
        is_special = np.isin(numbers, self.column.special)
        return ~missing & ~is_special & ((numbers < low) | (numbers > high))

    def _read(self, values: pa.Array) -> tuple[Floats, Flags]:
        """Return the number of each cell, NaN where there is none; and which of them are missing codes."""
        numbers = (
            pc.cast(values, pa.float64(), safe=False)
            if _is_number(values.type)
            else _parse(values, self.missing)
        )
        array = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
        if not is_text(values.type):  # a text beyond the range of doubles is clamped like any other
            array[~np.isfinite(array)] = np.nan
        codes = [declared_number(text.strip()) for text in self.missing]
        absent = [float(code) for code in codes if code is not None]
        if not absent:
            return array, np.zeros(len(array), np.bool_)
        return array, np.isin(array, absent)

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """Return the bin of each number, i with e_i <= x < e_i+1, the last bin closed above; special codes follow the bins."""
        edges = self.column.edges
        points = values.fill_null(edges[0]).to_numpy(zero_copy_only=False)
        codes = binned(values, points, edges)
        special = np.array(self.column.special)
        if not len(special):
            return codes
        bins = len(edges) - 1
        place = np.searchsorted(special, points)
        place = np.minimum(place, len(special) - 1)
        codes = np.where(special[place] == points, bins + place, codes)
        return np.where(nulls(values), bins + len(special), codes)

    def decode(
        self,
        codes: Codes,
        labels: tuple[str, ...],
        uniform: Uniform,
    ) -> pa.Array:
        """Return samples of {g / 10^resolution : first <= g <= last}, the bin's grid: the float64 closest to the decimal."""
        column = self.column
        runs = column.runs(self.missing, self.resolution)
        number = len(column.bin_labels)
        bins = np.where(codes < number, codes, 0)
        grids = [column.grid(i, self.resolution) for i in range(number)]
        first, last = np.array(grids, np.float64).T
        shape = number_shape(column, self.counts, self.resolution)
        if runs is None:
            points = draw_inside(first, last, bins, shape, uniform)
        else:
            middle = np.floor((first + last) / 2)
            points = draw_among(runs, middle, bins, shape, uniform)
        # The quotient of two integers below 2^53 is the correctly rounded decimal; beyond, doubles are coarser than the grid,
        # and the clip keeps a rounded number inside the bin.
        scale = 10**self.resolution
        lowest = (first / scale)[bins]
        highest = (last / scale)[bins]
        numbers = np.clip(points / scale, lowest, highest)
        if column.special:
            place = codes.astype(np.int64) - number
            place = np.clip(place, 0, len(column.special) - 1)
            special = np.array(column.special)[place]
            numbers = np.where(codes >= number, special, numbers)
        return pa.array(numbers + 0.0, mask=codes == len(labels))  # a negative zero is 0

    def declare(self, values: pa.Array) -> pa.Array:
        """Return numbers in the declared type."""
        return values.cast(self.declared_type)

    @cached_property
    def resolution(self) -> int:
        """Decimals of a sample: the column's, or as few as the source's type has if every bin has such a value."""
        column = self.column
        kind = pa.float64() if self.kind is None else cell_type(self.kind)
        is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
        if column.decimals is not None or not is_exact:
            return column.resolution
        resolution = min(getattr(kind, "scale", 0), column.resolution)
        bins = range(len(column.bin_labels))
        grids = [(i, *column.grid(i, resolution)) for i in bins]
        runs = column.runs(self.missing, resolution) or grids
        bins_with_value = {i for i, first, last in runs if first <= last}
        return resolution if len(bins_with_value) == len(grids) else column.resolution

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """Return the same number; as float32 the closest one inside the bin."""
        cells = super()._cells(values, cell)
        if not pa.types.is_float32(cell):
            return cells
        numbers = values.to_numpy(zero_copy_only=False)
        single = cells.to_numpy(zero_copy_only=False)
        bins = self.encode(values.cast(pa.float64()), None)
        moved = self.encode(cells.cast(pa.float64()), None) != bins
        toward = np.where(single < numbers, np.inf, -np.inf)
        inside = np.nextafter(single, toward.astype(np.float32))
        closest = np.where(moved, inside, single)
        return pa.array(closest, mask=nulls(values))

    def spelled(self, values: pa.Array) -> pa.Array:
        """Return numbers with as many decimals as are declared."""
        decimals = self.column.decimals
        if not decimals:
            return values
        return values.cast(pa.float64()).cast(pa.decimal128(_DIGITS, decimals))


def _parse(values: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return the numbers of texts; null for a text that is missing or no number."""
    if pa.types.is_dictionary(values.type):
        return _parse(values.dictionary, missing).take(values.indices)
    texts = pc.utf8_trim_whitespace(pc.cast(values, pa.string()))
    is_numeric = pc.match_substring_regex(texts, _NUMBER)
    is_number = pc.and_not(is_numeric, _among(texts, missing))
    numbers = pc.if_else(is_number, texts, None)
    return pc.cast(numbers, pa.float64())


def _among(texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return which of the trimmed texts are those of missing values."""
    trimmed = [text.strip() for text in missing]
    return pc.is_in(texts, value_set=pa.array(trimmed, pa.string()))


def _is_number(kind: pa.DataType) -> bool:
    is_whole = pa.types.is_integer(kind)
    return bool(is_whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
