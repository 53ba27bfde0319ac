"""Cells as people spell them: other spellings of a value, and moments with a zone or a fraction of a second."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.arrow import compute as pc
from marginweave.columns import values_of
from marginweave.configuration.columns.periods import ISO_PATTERN, moment_of, parse_instant
from tests.support.configurations import configuration

SEX = {
    "type": "category",
    "values": ["f", "m", "1"],
    "same": {"F": "f", "Female": "f", "one": "1", "2": "m"},
}
SEEN = {
    "type": "datetime",
    "bounds": ["0001-01-01", "9999-12-31"],
    "bins": ["0001-01-01", "2000-01-01", "9999-12-31"],
}


def test_every_spelling_counts_as_its_value() -> None:
    """Each cell by itself; a declared number is known in all its spellings, and any other text is no value."""
    texts = ["f", " F ", "Female", "female", "m", "2", "2.0", "1", "01", "one", "Two", None]
    read = values_of(configuration(columns={"x": SEX}).columns["x"], ()).clean(pa.array(texts))
    assert read.to_pylist() == ["f", "f", "f", None, "m", "m", "m", "1", "1", "1", None, None]
    assert read.dictionary.to_pylist() == ["f", "m", "1"]


MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 30))  # noqa: DTZ001
ZONES = st.integers(-23 * 60 - 59, 23 * 60 + 59)


@given(MOMENTS, ZONES, st.sampled_from(["{:+03d}:{:02d}", "{:+03d}{:02d}"]))
def test_a_moment_of_a_zone_is_the_moment_in_utc(moment: datetime, minutes: int, form: str) -> None:
    """As Python reads it; and a column reads many at once as it reads one."""
    sign = "-" if minutes < 0 else "+"
    zone = form.format(abs(minutes) // 60, abs(minutes) % 60).replace("+", sign)
    local = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = f"{moment.isoformat()}{zone}"
    expected = int(local.astimezone(UTC).timestamp() // 1)
    assert parse_instant(text, None) == expected
    column = configuration(columns={"x": SEEN}).columns["x"]
    read = values_of(column, ()).clean(pa.array([text, "2019-05-01"]))
    assert read.to_pylist() == [moment_of(expected), datetime(2019, 5, 1)]  # noqa: DTZ001


@given(MOMENTS, ZONES)
def test_a_date_is_the_one_that_is_written_whatever_its_zone(
    moment: datetime, minutes: int
) -> None:
    """Nobody has to be told that Saturday evening counts as Sunday."""
    local = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    column = configuration(columns={"x": {**SEEN, "type": "date"}}).columns["x"]
    read = values_of(column, ()).clean(pa.array([local.isoformat()]))
    assert read.to_pylist() == [moment.date()]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC", "+02:00"])
@given(moments=st.lists(st.integers(-(10**9), 10**9), min_size=1))
def test_a_date_of_a_zone_is_that_of_its_clocks_and_so_is_the_record(
    moments: list[int], zone: str
) -> None:
    """Who reads the records in the zone has the dates that were counted."""
    column = configuration(columns={"x": {**SEEN, "type": "date"}}).columns["x"]
    kind = pa.timestamp("s", zone)
    read = values_of(column, ()).clean(pa.array(moments, kind))
    in_zone = pc.local_timestamp(pa.array(moments, kind)).to_pylist()
    assert read.to_pylist() == [moment.date() for moment in in_zone]
    written = values_of(column, ())._cells(read, kind)
    assert written.type == kind
    dates = [moment.date() for moment in pc.local_timestamp(written).to_pylist()]
    assert dates == read.to_pylist()


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-04-01T16:07:39Z", "2024-04-01T16:07:39"),
        ("2024-04-01T16:07:39+02:00", "2024-04-01T14:07:39"),
        ("2024-04-01T16:07:39.123456Z", "2024-04-01T16:07:39"),
        ("2024-04-01 00:07:39.5 -0130", "2024-04-01T01:37:39"),
        ("2024-04-01T16:07+02", "2024-04-01T14:07:00"),
        ("2024-04-01T16:07:39,9", "2024-04-01T16:07:39"),
        ("2024-04-01Z", None),
        ("2024-04-01T16:07:39+24:00", None),
        ("2024-04-01T16:07:39+01:60", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-01:00", None),
    ],
)
def test_how_a_moment_of_iso_8601_is_read(text: str, utc: str | None) -> None:
    column = configuration(columns={"x": SEEN}).columns["x"]
    expected = None if utc is None else datetime.fromisoformat(utc)
    assert values_of(column, ()).clean(pa.array([text])).to_pylist() == [expected]
    instant = parse_instant(text, None)
    assert (None if instant is None else moment_of(instant)) == expected
    assert re.fullmatch(ISO_PATTERN, text) or utc is None
