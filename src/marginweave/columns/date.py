"""Dates and moments: days or seconds inside the bounds, codes of calendar bins, and samples inside a bin."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Floats, Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.base.errors import InputError
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


_NO_ZONE = (
    "this machine does not know the time zone {zone} of a column: install its time zones (tzdata)"
)


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
        (`outside: error` stopped before). Fractions of a second are cut; moments of a time zone count in UTC, and a date is the
        one that is written, whatever its zone.
        """
        units, absent = self._read(values)
        first = self.column.edges[0]
        last = self.column.edges[-1] - 1
        bounded = np.clip(units, first, last)
        return self._array(bounded, absent)

    def days_or_seconds(self, values: pa.Array) -> tuple[Integers, Flags]:
        """Return the day, or second, of every cell from 1970-01-01, and which cells have one in the years 1 to 9999.

        A value beyond the bounds is the one that is written, and not moved to them. DP: 1-stable, cell by cell, as `clean`.
        """
        units, absent = self._read(values)
        first = _FIRST_SECOND // self.column.seconds
        last = _LAST_SECOND // self.column.seconds
        return units, ~absent & (units >= first) & (units <= last)

    def _read(self, values: pa.Array) -> tuple[Integers, Flags]:
        """Return the day, or second, of every cell, and which cells have none."""
        if _is_moment(values.type):
            seconds, absent = _native(self._in_zone(values))
            absent |= self._is_missing_code(seconds)
        else:
            texts, positions = distinct_texts(values)
            seconds_of_text, has_no_date = _parse(texts, self.column, self.missing)
            seconds = seconds_of_text[positions]
            absent = has_no_date[positions]
        return seconds // self.column.seconds, absent

    def judge(self, values: pa.Array) -> Judged:
        """Return the judgement of `ColumnValues.judge`; values beyond the bounds are those that `clean` clamps. Private."""
        matcher = ValueMatcher(self.missing)
        if _is_moment(values.type):
            seconds, is_gap = _native(self._in_zone(values))
            # a cell without a text counts as the empty text
            gap_is_missing = matcher.index("") >= 0
            is_missing_code = self._is_missing_code(seconds) & ~is_gap
            missing = is_missing_code | (is_gap & gap_is_missing)
            unread = is_gap & ~missing
            beyond = self._beyond(seconds, missing | is_gap)
            return Judged.of_cells(values, missing, unread, beyond)
        texts, positions = distinct_texts(values)
        seconds, has_no_date = _parse(texts, self.column, self.missing)
        missing = np.zeros(len(texts), np.bool_)
        texts_without_date = texts.filter(pa.array(has_no_date)).to_pylist()
        missing[has_no_date] = [matcher.index(text) >= 0 for text in texts_without_date]
        unread = has_no_date & ~missing
        beyond = self._beyond(seconds, has_no_date)
        return Judged(texts, positions, missing, unread, beyond)

    def _in_zone(self, values: pa.Array) -> pa.Array:
        """Return moments of a zone as its clocks show them where the column is of dates; other values as they are.

        Raises:
            InputError: this machine does not know the zone.
        """
        zone = values.type.tz if pa.types.is_timestamp(values.type) else None
        if zone is None or self.column.type != "date":
            return values
        with suppress(pa.ArrowException):
            return pc.local_timestamp(values)
        raise InputError(_NO_ZONE.format(zone=zone))

    def _is_missing_code(self, seconds: Integers) -> Flags:
        """Return which native moments are codes of missing values."""
        missing_codes = []
        for text in self.missing:
            moment = parse_instant(text.strip(), self.column.format)
            if moment is not None:
                missing_codes.append(moment)
        return np.isin(seconds, missing_codes)

    def _beyond(self, seconds: Integers, absent: Flags) -> Flags:
        """Return which moments are outside the bounds; none of those that are `absent`."""
        units = seconds // self.column.seconds
        first = self.column.edges[0]
        end = self.column.edges[-1]
        is_outside = (units < first) | (units >= end)
        return ~absent & is_outside

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """Return the bin of each date, or its weekday."""
        edges = self.column.edges
        filled = self._units(values).fill_null(edges[0])
        units = to_numpy(filled).astype(np.int64)
        if self.column.bins != "weekday":
            return binned(values, units, edges)
        days = units // self.column.per_day
        weekday = (days + EPOCH_WEEKDAY) % 7
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
        is_missing = codes == len(labels)
        bins = np.where(is_missing, 0, codes)
        shape: Shape = "midpoint" if column.draw == "midpoint" else None
        if runs is None:
            units = self._drawn(bins, shape, uniform)
        else:
            every_bin = np.arange(len(labels))
            middle = self._drawn(every_bin, "midpoint", uniform)
            units = draw_among(runs, middle, bins, shape, uniform)
        return self._array(units, is_missing)

    def declare(self, values: pa.Array) -> pa.Array:
        """Return texts of the format; without one, date32 or timestamp[s]."""
        if self.column.format is None:
            return values
        encoded = values.dictionary_encode()
        units = self._units(encoded.dictionary).to_pylist()
        spellings = []
        for unit in units:
            moment = moment_of(unit * self.column.seconds)
            spellings.append(moment.strftime(self.column.format))
        texts = pa.array(spellings, pa.string())
        return texts.take(encoded.indices)

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """Return dates and moments in their type; dates at midnight of its zone; numbers that are texts of the format."""
        column = self.column
        if pa.types.is_timestamp(cell):
            moments = self.clean(values).cast(pa.timestamp(cell.unit))
            if cell.tz is None or column.type != "date":
                return moments.cast(cell)
            # midnight there; the first moment of a day that begins later
            with suppress(pa.ArrowException):
                return pc.assume_timezone(
                    moments, cell.tz, ambiguous="earliest", nonexistent="latest"
                )
            raise InputError(_NO_ZONE.format(zone=cell.tz))
        if pa.types.is_date(cell) and column.type == "date":
            return self.clean(values).cast(cell)
        has_year_first = column.format is not None and column.format.startswith("%Y")
        return super()._cells(values, cell) if has_year_first else values

    def spelled(self, values: pa.Array) -> pa.Array:
        """Return texts in the format of the column, or in ISO 8601."""
        if pa.types.is_string(values.type):
            return values
        return self.declare(self.clean(values))

    def _units(self, values: pa.Array) -> pa.Array:
        """Return clean values as integers: days or seconds from 1970-01-01."""
        kind = pa.int32() if self.column.type == "date" else pa.int64()
        return values.cast(kind)

    def _array(self, units: Floats | Integers, missing: Flags) -> pa.Array:
        """Return days or seconds from 1970-01-01 as clean values; null where they are missing."""
        width = np.int32 if self.column.type == "date" else np.int64
        integers = pa.array(units.astype(width), mask=missing)
        return integers.cast(self.clean_type)

    def _drawn(
        self,
        codes: Codes,
        shape: Shape,
        uniform: Uniform,
    ) -> Floats:
        """Return a sample of each bin, in days or seconds from 1970-01-01."""
        column = self.column
        edges = np.array(column.edges, np.float64)
        if column.bins != "weekday":
            last_of_bin = edges[1:] - 1
            return draw_inside(edges[:-1], last_of_bin, codes, shape, uniform)
        per_day = column.per_day
        first = column.edges[0]
        last = column.edges[-1] - 1
        # first day of each weekday, and the number of further weeks within the bounds
        first_day = first // per_day
        last_day = last // per_day
        days_until = (np.arange(7) - first_day - EPOCH_WEEKDAY) % 7
        start = first_day + days_until
        weeks = (last_day - start) // 7
        zeros = np.zeros(7)
        week = draw_inside(zeros, weeks.astype(np.float64), codes, shape, uniform)
        last_second = np.full(7, per_day - 1.0)
        second = draw_inside(zeros, last_second, codes, shape, uniform)
        day = start[codes] + 7 * week
        return np.clip(day * per_day + second, first, last)


def _is_moment(kind: pa.DataType) -> bool:
    """Return whether cells of this type are dates or moments."""
    types = pa.types
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _native(values: pa.Array) -> tuple[Integers, Flags]:
    """Return seconds from 1970-01-01 of native dates, and where there is none."""
    absent = nulls(values)
    if pa.types.is_date(values.type):
        dates = pc.cast(values, pa.date32())
        filled = pc.fill_null(dates.cast(pa.int32()), 0)
        days = to_numpy(filled).astype(np.int64)
        return days * DAY, absent
    filled = pc.fill_null(values.cast(pa.int64()), 0)
    ticks = to_numpy(filled)
    ticks_of_second = UNITS[values.type.unit]
    return ticks // ticks_of_second, absent


def _parse(
    distinct: pa.Array,
    column: DateColumn,
    missing: Sequence[str],
) -> tuple[Integers, Flags]:
    """Return seconds from 1970-01-01 of distinct texts, and which of them are missing or no date."""
    if column.format is None:
        texts = pc.utf8_trim_whitespace(distinct)
        seconds, absent = _parse_iso(texts, in_utc=column.type == "datetime")
        trimmed_missing = [text.strip() for text in missing]
        missing_texts = pa.array(trimmed_missing, pa.string())
        is_missing = pc.is_in(texts, value_set=missing_texts)
        return seconds, absent | to_numpy(is_missing)
    matcher = ValueMatcher(missing)
    seconds = np.zeros(len(distinct), np.int64)
    absent = np.ones(len(distinct), np.bool_)
    for place, text in enumerate(distinct.to_pylist()):
        trimmed = text.strip()
        if matcher.index(trimmed) < 0:
            moment = parse_instant(trimmed, column.format)
            if moment is not None:
                seconds[place] = moment
                absent[place] = False
    return seconds, absent


def _parse_iso(texts: pa.Array, *, in_utc: bool) -> tuple[Integers, Flags]:
    """Return `parse_instant` without a format, for many texts at once; in the zone that is written, or `in_utc`."""
    parts = pc.extract_regex(texts, _ISO)
    unmatched = to_numpy(parts.is_null())
    year, month, day, hour, minute, second = (_number_at(parts, place) for place in range(6))
    years = np.clip(year, 1, 9999) - 1970
    months_of_year = np.clip(month, 1, 12) - 1
    months = years * 12 + months_of_year
    first_day = _first_day(months)
    days_of_month = _first_day(months + 1) - first_day
    wrong = (year < 1) | (month < 1) | (month > 12)
    wrong |= (day < 1) | (day > days_of_month)
    wrong |= (hour > 23) | (minute > 59) | (second > 59)
    days = first_day + day - 1
    second_of_day = hour * 3600 + minute * 60 + second
    seconds = days * DAY + second_of_day
    offsets, is_no_zone = _zone_offsets(parts.field("zone"))
    seconds_in_utc = seconds - offsets
    wrong |= (seconds_in_utc < _FIRST_SECOND) | (seconds_in_utc > _LAST_SECOND) | is_no_zone
    return seconds_in_utc if in_utc else seconds, unmatched | wrong


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
    positions = to_numpy(encoded.indices)
    offset_of_text = np.array(offsets, np.int64)
    no_zone_of_text = np.array(is_no_zone, np.bool_)
    return offset_of_text[positions], no_zone_of_text[positions]


def _first_day(months: Integers) -> Integers:
    """Return days from 1970-01-01 of the first day of a month, from its number of months from 1970-01."""
    months_since_1970 = months.astype("datetime64[M]")
    days_since_1970 = months_since_1970.astype("datetime64[D]")
    return days_since_1970.astype(np.int64)


def _number_at(parts: pa.StructArray, place: int) -> Integers:
    """Return the number in one group of the pattern, 0 where it is empty or nothing matched."""
    digits = parts.field(place)
    is_empty = pc.equal(digits, "")
    digits = pc.if_else(is_empty, "0", digits)
    filled = pc.fill_null(pc.cast(digits, pa.int64()), 0)
    numbers: Integers = to_numpy(filled)
    return numbers
