"""Dates and moments: days or seconds inside the bounds, codes of calendar bins, and samples inside a bin."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Floats, Integers
from marginweave.base.arrow import compute as pc
from marginweave.columns.base import (
    UNITS,
    ColumnValues,
    Judged,
    Uniform,
    binned,
    distinct_texts,
    nulls,
)
from marginweave.columns.draws import Shape, draw_among, draw_inside
from marginweave.configuration.columns import DateColumn
from marginweave.configuration.columns.periods import (
    DAY,
    EPOCH_WEEKDAY,
    ISO_PATTERN,
    day_number,
    moment_of,
    parse_instant,
    zone_offset,
)
from marginweave.configuration.values import ValueMatcher
from marginweave.mechanisms.randomness import CellWords

_ISO = f"^{ISO_PATTERN}$"
_FIRST_SECOND = day_number(date.min) * DAY
_LAST_SECOND = (day_number(date.max) + 1) * DAY - 1


class DateValues(ColumnValues[DateColumn]):
    """Dates, or moments to the second, as whole units from 1970-01-01."""

    @property
    def clean_type(self) -> pa.DataType:
        """Type of dates, or of moments to the second."""
        return pa.date32() if self.column.type == "date" else pa.timestamp("s")

    @property
    def declared_type(self) -> pa.DataType:
        """Type of texts of the format; without one, the type of clean values."""
        return self.clean_type if self.column.format is None else pa.string()

    def clean(self, values: pa.Array) -> pa.Array:
        """Map texts or native dates to date32, or timestamp[s] for moments, inside the bounds.

        docs/sources/data-processing.md. A text that is no date in the declared format is missing
        (`outside: error` stopped before). Fractions of a second are cut; moments of a time zone count in UTC.
        """
        column = self.column
        if _is_moment(values.type):
            seconds, absent = _native(values)
            absent |= self._coded(seconds)
        else:
            distinct, positions = distinct_texts(values)
            parsed, unknown = _parse(distinct, column.format, self.missing)
            seconds = parsed[positions]
            absent = unknown[positions]
        units = seconds // column.seconds
        last = column.edges[-1] - 1
        bounded = np.clip(units, column.edges[0], last)
        return self._array(bounded, absent)

    def judge(self, values: pa.Array) -> Judged:
        """Return the judgement of `ColumnValues.judge`; values beyond the bounds are those that `clean` clamps. Private."""
        matcher = ValueMatcher(self.missing)
        if _is_moment(values.type):
            seconds, gaps = _native(values)
            has_code = matcher.index("") >= 0
            missing = self._coded(seconds) & ~gaps | (gaps & has_code)
            unread = gaps & ~missing
            beyond = self._beyond(seconds, missing | gaps)
            one_cell_each = np.ones(len(values), np.int64)
            return Judged(values, one_cell_each, missing, unread, beyond)
        distinct, positions = distinct_texts(values)
        seconds, unknown = _parse(distinct, self.column.format, self.missing)
        missing = np.zeros(len(distinct), np.bool_)
        unknown_texts = distinct.filter(pa.array(unknown)).to_pylist()
        missing[unknown] = [matcher.index(text) >= 0 for text in unknown_texts]
        unread = unknown & ~missing
        beyond = self._beyond(seconds, unknown)
        return Judged.of_texts(distinct, positions, missing, unread, beyond)

    def _coded(self, seconds: Integers) -> Flags:
        """Return which native moments are codes of missing values."""
        format_ = self.column.format
        declared = [parse_instant(text.strip(), format_) for text in self.missing]
        return np.isin(seconds, [moment for moment in declared if moment is not None])

    def _beyond(self, seconds: Integers, absent: Flags) -> Flags:
        units = seconds // self.column.seconds
        edges = self.column.edges
        is_outside = (units < edges[0]) | (units >= edges[-1])
        return ~absent & is_outside

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """Return the bin of each date, or its weekday."""
        edges = self.column.edges
        filled = self._units(values).fill_null(edges[0])
        units = filled.to_numpy(zero_copy_only=False).astype(np.int64)
        if self.column.bins != "weekday":
            return binned(values, units, edges)
        weekday = (units // self.column.per_day + EPOCH_WEEKDAY) % 7
        return np.where(nulls(values), 7, weekday)

    def decode(
        self,
        codes: Codes,
        labels: tuple[str, ...],
        uniform: Uniform,
    ) -> pa.Array:
        """Return days, or seconds, of the bin; of a weekday, those within the bounds."""
        column = self.column
        runs = column.runs(self.missing)
        missing = codes == len(labels)
        codes = np.where(missing, 0, codes)
        shape: Shape = "midpoint" if column.draw == "midpoint" else None
        if runs is None:
            return self._array(self._drawn(codes, shape, uniform), missing)
        middle = self._drawn(np.arange(len(labels)), "midpoint", uniform)
        return self._array(draw_among(runs, middle, codes, shape, uniform), missing)

    def declare(self, values: pa.Array) -> pa.Array:
        """Return texts of the format; without one, date32 or timestamp[s]."""
        if self.column.format is None:
            return values
        encoded = values.dictionary_encode()
        units = self._units(encoded.dictionary).to_pylist()
        moments = [moment_of(unit * self.column.seconds) for unit in units]
        texts = [moment.strftime(self.column.format) for moment in moments]
        return pa.array(texts, pa.string()).take(encoded.indices)

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """Return dates and moments, in UTC where the type has a zone; numbers that are texts of the format."""
        if pa.types.is_timestamp(cell):
            return self.clean(values).cast(pa.timestamp(cell.unit)).cast(cell)
        if pa.types.is_date(cell) and self.column.type == "date":
            return self.clean(values).cast(cell)
        has_year_first = (self.column.format or "").startswith("%Y")
        return super()._cells(values, cell) if has_year_first else values

    def spelled(self, values: pa.Array) -> pa.Array:
        """Return texts in the format of the column, or in ISO 8601."""
        if pa.types.is_string(values.type):
            return values
        return self.declare(self.clean(values))

    def _units(self, values: pa.Array) -> pa.Array:
        kind = pa.int32() if self.column.type == "date" else pa.int64()
        return values.cast(kind)

    def _array(self, units: Floats | Integers, missing: Flags) -> pa.Array:
        width = np.int32 if self.column.type == "date" else np.int64
        integers = pa.array(units.astype(width), mask=missing)
        return integers.cast(self.clean_type)

    def _drawn(
        self,
        codes: Codes,
        shape: Shape,
        uniform: Uniform,
    ) -> Floats:
        edges = np.array(self.column.edges, np.float64)
        if self.column.bins != "weekday":
            return draw_inside(edges[:-1], edges[1:] - 1, codes, shape, uniform)
        per_day = self.column.per_day
        first = self.column.edges[0]
        last = self.column.edges[-1] - 1
        # first day of each weekday, and the number of further weeks within the bounds
        first_day = first // per_day
        start = first_day + (np.arange(7) - first_day - EPOCH_WEEKDAY) % 7
        weeks = (last // per_day - start) // 7
        zeros = np.zeros(7)
        week = draw_inside(zeros, weeks.astype(np.float64), codes, shape, uniform)
        last_second = np.full(7, per_day - 1.0)
        second = draw_inside(zeros, last_second, codes, shape, uniform)
        day = start[codes] + 7 * week
        return np.clip(day * per_day + second, first, last)


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _native(values: pa.Array) -> tuple[Integers, Flags]:
    """Return seconds from 1970-01-01 of native dates, and where there is none."""
    absent = nulls(values)
    if pa.types.is_date(values.type):
        numbers = pc.cast(values, pa.date32()).cast(pa.int32())
        days = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
        return days.astype(np.int64) * DAY, absent
    filled = pc.fill_null(values.cast(pa.int64()), 0)
    ticks = filled.to_numpy(zero_copy_only=False)
    return ticks // UNITS[values.type.unit], absent


def _parse(
    distinct: pa.Array,
    format_: str | None,
    missing: Sequence[str],
) -> tuple[Integers, Flags]:
    """Return seconds from 1970-01-01 of distinct texts, and which of them are missing or no date."""
    if format_ is None:
        texts = pc.utf8_trim_whitespace(distinct)
        seconds, absent = _parse_iso(texts)
        trimmed_missing = [text.strip() for text in missing]
        is_missing = pc.is_in(texts, value_set=pa.array(trimmed_missing, pa.string()))
        return seconds, absent | is_missing.to_numpy(zero_copy_only=False)
    matcher = ValueMatcher(missing)
    trimmed = [text.strip() for text in distinct.to_pylist()]
    moments = [
        None if matcher.index(text) >= 0 else parse_instant(text, format_) for text in trimmed
    ]
    absent = np.array([moment is None for moment in moments], np.bool_)
    return np.array([moment or 0 for moment in moments], np.int64), absent


def _parse_iso(texts: pa.Array) -> tuple[Integers, Flags]:
    """Return `parse_instant` without a format, for many texts at once."""
    parts = pc.extract_regex(texts, _ISO)
    unmatched = parts.is_null().to_numpy(zero_copy_only=False)
    year, month, day, hour, minute, second = (_number_at(parts, place) for place in range(6))
    years = np.clip(year, 1, 9999) - 1970
    months = years * 12 + np.clip(month, 1, 12) - 1
    first_day = _first_day(months)
    days_of_month = _first_day(months + 1) - first_day
    wrong = (year < 1) | (month < 1) | (month > 12)
    wrong |= (day < 1) | (day > days_of_month)
    wrong |= (hour > 23) | (minute > 59) | (second > 59)
    seconds = (first_day + day - 1) * DAY + hour * 3600 + minute * 60 + second
    offsets, is_no_zone = _zone_offsets(parts.field("zone"))
    in_utc = seconds - offsets
    wrong |= (in_utc < _FIRST_SECOND) | (in_utc > _LAST_SECOND) | is_no_zone
    return in_utc, unmatched | wrong


def _zone_offsets(zones: pa.Array) -> tuple[Integers, Flags]:
    """Return how many seconds each zone is ahead of UTC, and which are no zone."""
    encoded = pc.fill_null(zones, "").dictionary_encode()
    offsets: list[int] = []
    is_no_zone: list[bool] = []
    for zone in encoded.dictionary.to_pylist():
        try:
            offset = zone_offset(zone)
        except ValueError:
            offset = None
        is_no_zone.append(offset is None)
        offsets.append(0 if offset is None else int(offset.total_seconds()))
    positions = encoded.indices.to_numpy(zero_copy_only=False)
    return np.array(offsets, np.int64)[positions], np.array(is_no_zone, np.bool_)[positions]


def _first_day(months: Integers) -> Integers:
    """Return days from 1970-01-01 of the first day of a month, from its number of months from 1970-01."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _number_at(parts: pa.StructArray, place: int) -> Integers:
    digits = parts.field(place)
    digits = pc.if_else(pc.equal(digits, ""), "0", digits)
    filled = pc.fill_null(pc.cast(digits, pa.int64()), 0)
    numbers: Integers = filled.to_numpy(zero_copy_only=False)
    return numbers
