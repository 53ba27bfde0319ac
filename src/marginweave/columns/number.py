"""Numbers: float64 inside the bounds, codes of bins, and samples on the grid of a bin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Floats
from marginweave.base.arrow import cell_type, is_text, to_numpy
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
        numbers, is_missing_code = self._read(values)
        numbers[is_missing_code] = np.nan
        column = self.column
        lower, upper = column.clamp
        bounded = np.clip(self._rounded(numbers), lower, upper)
        if column.special:
            # A number that is rounded to a code is no code and keeps its decimals.
            unrounded = np.clip(numbers, lower, upper)
            is_code = np.isin(bounded, column.special)
            bounded = np.where(is_code, unrounded, bounded)
            # A number that is clamped to a code remains inside by the smallest step.
            middle = np.mean(column.clamp)
            inside = np.nextafter(bounded, middle)
            is_code = np.isin(bounded, column.special)
            bounded = np.where(is_code, inside, bounded)
        is_special = np.isin(numbers, column.special)
        clean = np.where(is_special, numbers, bounded)
        return pa.array(clean, mask=np.isnan(numbers))

    def _rounded(self, numbers: Floats) -> Floats:
        """Return numbers of the declared decimals."""
        if self.column.decimals is None:
            return numbers
        with np.errstate(over="ignore"):  # a number that is too large is clamped
            rounded: Floats = np.round(numbers, self.column.decimals)
        return rounded

    def judge(self, values: pa.Array) -> Judged:
        """Return the judgement of `ColumnValues.judge`; values beyond the bounds are those that `clean` clamps. Private."""
        if _is_number(values.type):
            numbers, is_missing_code = self._read(values)
            is_gap = np.isnan(numbers)
            # a cell without a text counts as the empty text
            gap_is_missing = ValueMatcher(self.missing).index("") >= 0
            missing = is_missing_code | (is_gap & gap_is_missing)
            unread = is_gap & ~missing
            beyond = self._beyond(numbers, missing)
            return Judged.of_cells(values, missing, unread, beyond)
        texts, positions = distinct_texts(values)
        numbers, is_missing_code = self._read(texts)
        trimmed = pc.utf8_trim_whitespace(texts)
        is_missing_text = _among(trimmed, self.missing)
        missing = is_missing_code | to_numpy(is_missing_text)
        unread = np.isnan(numbers) & ~missing
        beyond = self._beyond(numbers, missing)
        return Judged(texts, positions, missing, unread, beyond)

    def _beyond(self, numbers: Floats, missing: Flags) -> Flags:
        """Return which numbers are outside the bounds; none where the bins are open."""
        column = self.column
        if column.outer == "open":
            return np.zeros(len(numbers), np.bool_)
        low, high = column.clamp
        is_outside = (numbers < low) | (numbers > high)
        is_special = np.isin(numbers, column.special)
        return is_outside & ~is_special & ~missing

    def _read(self, values: pa.Array) -> tuple[Floats, Flags]:
        """Return the number of each cell, NaN where there is none; and which of them are codes of missing values."""
        is_number = _is_number(values.type)
        cells = values if is_number else _parse(values, self.missing)
        doubles = pc.cast(cells, pa.float64(), safe=False)
        numbers = to_numpy(doubles).astype(np.float64)
        if not is_text(values.type):  # a text beyond the range of doubles is clamped like any other
            is_finite = np.isfinite(numbers)
            numbers[~is_finite] = np.nan
        missing_codes = []
        for text in self.missing:
            code = declared_number(text.strip())
            if code is not None:
                missing_codes.append(float(code))
        if not missing_codes:
            return numbers, np.zeros(len(numbers), np.bool_)
        return numbers, np.isin(numbers, missing_codes)

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """Return the bin of each number, i with e_i <= x < e_i+1, the last bin closed above; special codes follow the bins."""
        edges = self.column.edges
        filled = values.fill_null(edges[0])
        points = to_numpy(filled)
        codes = binned(values, points, edges)
        special = np.array(self.column.special)
        if not len(special):
            return codes
        bins = len(edges) - 1
        missing = bins + len(special)
        place = np.searchsorted(special, points)
        place = np.minimum(place, len(special) - 1)
        is_special = special[place] == points
        codes = np.where(is_special, bins + place, codes)
        return np.where(nulls(values), missing, codes)

    def decode(
        self,
        codes: Codes,
        labels: tuple[str, ...],
        uniform: Uniform,
    ) -> pa.Array:
        """Return samples of {g / 10^resolution : first <= g <= last}, the bin's grid: the float64 closest to the decimal."""
        column = self.column
        number_of_bins = len(column.bin_labels)
        is_bin = codes < number_of_bins
        bins = np.where(is_bin, codes, 0)
        first, last = self._grids()
        points = self._drawn(first, last, bins, uniform)
        # The quotient of two integers below 2^53 is the correctly rounded decimal; beyond, doubles are coarser than the grid,
        # and the clip keeps a rounded number inside the bin.
        scale = 10**self.resolution
        lowest = first / scale
        highest = last / scale
        numbers = np.clip(points / scale, lowest[bins], highest[bins])
        if column.special:
            place = codes.astype(np.int64) - number_of_bins
            place = np.clip(place, 0, len(column.special) - 1)
            special = np.array(column.special)
            numbers = np.where(is_bin, numbers, special[place])
        is_missing = codes == len(labels)
        return pa.array(numbers + 0.0, mask=is_missing)  # a negative zero is 0

    def _grids(self) -> tuple[Floats, Floats]:
        """Return the first and the last point of the grid of each bin, shape (bins,), in units of 10^-resolution."""
        column = self.column
        bins = range(len(column.bin_labels))
        grids = [column.grid(i, self.resolution) for i in bins]
        first, last = np.array(grids, np.float64).T
        return first, last

    def _drawn(
        self,
        first: Floats,
        last: Floats,
        bins: Codes,
        uniform: Uniform,
    ) -> Floats:
        """Return a sample of the grid of each of these bins; `first` and `last` are those of `_grids`."""
        column = self.column
        runs = column.runs(self.missing, self.resolution)
        shape = number_shape(column, self.counts, self.resolution)
        if runs is None:
            return draw_inside(first, last, bins, shape, uniform)
        middle = np.floor((first + last) / 2)
        return draw_among(runs, middle, bins, shape, uniform)

    def typed(self, values: pa.Array, labels: tuple[str, ...]) -> pa.Array:
        """Return numbers in the type of the source; as declared where that is texts and `text` says how these spell numbers."""
        is_of_texts = self.kind is not None and is_text(cell_type(self.kind))
        if is_of_texts and self.column.text is not None:
            return values
        return super().typed(values, labels)

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
        decimals_of_kind = getattr(kind, "scale", 0)
        resolution = min(decimals_of_kind, column.resolution)
        bins = range(len(column.bin_labels))
        runs = column.runs(self.missing, resolution)
        if not runs:
            runs = [(i, *column.grid(i, resolution)) for i in bins]
        bins_with_value = {i for i, first, last in runs if first <= last}
        every_bin_has_value = len(bins_with_value) == len(bins)
        return resolution if every_bin_has_value else column.resolution

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """Return the same number; as float32 the closest one inside the bin."""
        cells = super()._cells(values, cell)
        if not pa.types.is_float32(cell):
            return cells
        numbers = to_numpy(values)
        single = to_numpy(cells)
        bins = self.encode(values.cast(pa.float64()), None)
        bins_of_single = self.encode(cells.cast(pa.float64()), None)
        is_moved = bins_of_single != bins
        # the next single inside the bin is toward the number
        toward = np.where(single < numbers, np.inf, -np.inf)
        inside = np.nextafter(single, toward.astype(np.float32))
        closest = np.where(is_moved, inside, single)
        return pa.array(closest, mask=nulls(values))

    def spelled(self, values: pa.Array) -> pa.Array:
        """Return numbers with as many decimals as are declared."""
        decimals = self.column.decimals
        if not decimals:
            return values
        decimal = pa.decimal128(_DIGITS, decimals)
        return values.cast(pa.float64()).cast(decimal)


def _parse(values: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return the numbers of texts; null for a text that is missing or no number."""
    if pa.types.is_dictionary(values.type):
        numbers = _parse(values.dictionary, missing)
        return numbers.take(values.indices)
    texts = pc.cast(values, pa.string())
    trimmed = pc.utf8_trim_whitespace(texts)
    is_numeric = pc.match_substring_regex(trimmed, _NUMBER)
    is_missing = _among(trimmed, missing)
    is_number = pc.and_not(is_numeric, is_missing)
    texts_of_numbers = pc.if_else(is_number, trimmed, None)
    return pc.cast(texts_of_numbers, pa.float64())


def _among(texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return which of the trimmed texts are those of missing values."""
    trimmed = [text.strip() for text in missing]
    missing_texts = pa.array(trimmed, pa.string())
    return pc.is_in(texts, value_set=missing_texts)


def _is_number(kind: pa.DataType) -> bool:
    """Return whether cells of this type are numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
