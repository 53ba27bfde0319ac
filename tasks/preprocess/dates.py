"""Cleaning of dates and moments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marginweave.schemas.configuration.columns import DateColumn
from marginweave.schemas.configuration.columns.periods import DAY, ISO_PATTERN, parse_instant
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.tasks.preprocess.texts import UNITS, distinct_texts

_ISO = f"^{ISO_PATTERN}$"


def clean_date(values: pa.Array, column: DateColumn, missing: Sequence[str]) -> pa.Array:
    """Texts or native dates to date32, or timestamp[s] for moments, inside the bounds (as numbers: Algorithm 1).

    A text that is no date in the declared format is missing (`outside: error` stopped before). Fractions of a second are cut;
    native moments of a time zone count in UTC.
    """
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        seconds, absent = _native(values)
        declared = [parse_instant(text.strip(), column.format) for text in missing]
        absent |= np.isin(seconds, [moment for moment in declared if moment is not None])
    else:
        distinct, positions = distinct_texts(values)
        parsed, unknown = _parse(distinct, column.format, missing)
        seconds, absent = parsed[positions], unknown[positions]
    units = np.clip(seconds // column.seconds, column.edges[0], column.edges[-1] - 1)
    if column.type == "date":
        return pa.array(units.astype(np.int32), mask=absent).cast(pa.date32())
    return pa.array(units, mask=absent).cast(pa.timestamp("s"))


def _native(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Seconds from 1970-01-01 of native dates, and where there is none."""
    absent = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_date(values.type):
        days = pc.fill_null(pc.cast(values, pa.date32()).cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
        return days.astype(np.int64) * DAY, absent
    ticks = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return ticks // UNITS[values.type.unit], absent


def _parse(
    distinct: pa.Array, format_: str | None, missing: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Seconds from 1970-01-01 of distinct texts, and which of them are missing or no date."""
    if format_ is None:
        texts = pc.utf8_trim_whitespace(distinct)
        seconds, absent = _parse_iso(texts)
        given = pa.array([text.strip() for text in missing], pa.string())
        return seconds, absent | pc.is_in(texts, value_set=given).to_numpy(zero_copy_only=False)
    matcher = ValueMatcher(missing)
    trimmed = [text.strip() for text in distinct.to_pylist()]
    found = [None if matcher.index(text) >= 0 else parse_instant(text, format_) for text in trimmed]
    absent = np.array([moment is None for moment in found], np.bool_)
    return np.array([moment or 0 for moment in found], np.int64), absent


def _parse_iso(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`parse_instant` without a format, for many texts at once."""
    parts = pc.extract_regex(texts, _ISO)
    unmatched = parts.is_null().to_numpy(zero_copy_only=False)
    year, month, day, hour, minute, second = (_whole(parts, place) for place in range(6))
    start = (np.clip(year, 1, 9999) - 1970) * 12 + np.clip(month, 1, 12) - 1
    first = start.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (start + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    wrong = (year < 1) | (month < 1) | (month > 12) | (day < 1) | (day > following - first)
    wrong |= (hour > 23) | (minute > 59) | (second > 59)
    return (first + day - 1) * DAY + hour * 3600 + minute * 60 + second, unmatched | wrong


def _whole(parts: pa.StructArray, place: int) -> NDArray[np.int64]:
    digits = parts.field(place)
    digits = pc.if_else(pc.equal(digits, ""), "0", digits)
    whole: NDArray[np.int64] = pc.fill_null(pc.cast(digits, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return whole
