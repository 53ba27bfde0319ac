"""Cells that have no text: null columns, and moments that no calendar writes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from marginweave.prepare.clean import clean_table
from tests.support.configurations import PRIVATE, configuration


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_moments_outside_the_calendar_are_missing(unit: str) -> None:
    """No label is made of a moment before the year 1 or after 9999; the first and the last moment have their texts."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6}[unit]
    first, last = -62135596800 * per_second, 253402300800 * per_second - 1
    values = pa.array([first, last, first - 1, last + 1, 2**62, -(2**62), None], pa.timestamp(unit))
    clean = (
        clean_table(pa.table({"x": values}), configuration(columns={"x": PRIVATE}))
        .column("x")
        .to_pylist()
    )
    assert clean[2:] == [None] * 5
    assert clean[0].startswith("0001-01-01 00:00:00")
    assert clean[1].startswith("9999-12-31 23:59:59")


def test_dates_outside_the_calendar_are_missing() -> None:
    """The same of days, in both of Arrow's types."""
    for values in (
        pa.array([0, 2**31 - 1, -(2**31), None], pa.int32()).cast(pa.date32()),
        pa.array([0, 10**9 * 86_400_000, -(10**9) * 86_400_000, None], pa.int64()).cast(
            pa.date64()
        ),
    ):
        clean = clean_table(pa.table({"x": values}), configuration(columns={"x": PRIVATE})).column(
            "x"
        )
        assert clean.to_pylist() == ["1970-01-01", None, None, None]


def test_moments_of_nanoseconds_keep_their_texts() -> None:
    """They reach from 1677 to 2262 only."""
    values = pa.array([1_577_847_600 * 10**9, None], pa.timestamp("ns"))
    clean = clean_table(pa.table({"x": values}), configuration(columns={"x": PRIVATE})).column("x")
    assert clean.to_pylist() == ["2020-01-01 03:00:00.000000000", None]
