"""A schedule's runs are named by its period: no two of its times have one name, and the name is no finer than that needs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.server.schemas import schedules as served

from marginweave.flows.prefect.periods import period_name

ZONES = ("UTC", "Europe/Oslo", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe")
CRONS = (
    "* * * * *",
    "*/7 * * * *",
    "30 * * * *",
    "30 1,13 * * *",
    "30 1 * * *",
    "0 9-17 * * 1-5",
    "0 0 * * 1",
    "0 0 1,29 * *",
    "0 5 2 * *",
    "0 5 2 1,4,7,10 *",
    "0 0 1 1 *",
)


def times_of(cron: str, zone: str, start: datetime, number: int = 15) -> list[datetime]:
    found = asyncio.run(
        served.CronSchedule(cron=cron, timezone=zone).get_dates(n=number, start=start)
    )
    return [time.astimezone(UTC) for time in found]


@settings(max_examples=3)
@given(
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from(ZONES),
    day=st.integers(0, 4000),
)
def test_no_two_times_of_a_schedule_have_one_name(cron: str, zone: str, day: int) -> None:
    """Across years, months and both changes of the clocks, from any day on."""
    schedule, start = (
        CronSchedule(cron=cron, timezone=zone),
        datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day),
    )
    times = times_of(cron, zone, start)
    assert len({period_name([schedule], zone, time) for time in times}) == len(times) == 15


def test_an_hour_that_clocks_show_twice_has_two_names() -> None:
    schedule = CronSchedule(cron="0 * * * *", timezone="Europe/Oslo")
    hours = [datetime(2026, 10, 25, hour, tzinfo=UTC) for hour in (0, 1, 2)]
    names = [period_name([schedule], "Europe/Oslo", hour) for hour in hours]
    assert names == ["2026-10-25-0200", "2026-10-25-0200b", "2026-10-25-0300"]


@pytest.mark.parametrize(
    ("cron", "name"),
    [
        ("30 1 * * *", "2026-11-20"),
        ("30 1,13 * * *", "2026-11-20-0130"),
        ("* * * * *", "2026-11-20-0130"),
        ("30 1 * * 5", "2026-w47"),
        ("30 1 20 * *", "2026-11"),
        ("30 1 20 2,5,8,11 *", "2026-q4"),
    ],
)
def test_the_name_is_that_of_the_period(cron: str, name: str) -> None:
    moment = datetime(2026, 11, 20, 0, 30, tzinfo=UTC)
    assert moment.astimezone(ZoneInfo("Europe/Oslo")).minute == 30
    assert (
        period_name([CronSchedule(cron=cron, timezone="Europe/Oslo")], "Europe/Oslo", moment)
        == name
    )


def test_schedules_of_one_deployment_are_looked_at_together() -> None:
    """Each alone is daily; together two fall on a day."""
    both = [CronSchedule(cron=f"0 {hour} * * *", timezone="UTC") for hour in (1, 13)]
    names = [period_name(both, "UTC", datetime(2026, 11, 20, hour, tzinfo=UTC)) for hour in (1, 13)]
    assert names == ["2026-11-20-0100", "2026-11-20-1300"]


def test_times_that_are_rare_are_seen_as_well() -> None:
    """Two on a day from July on alone."""
    both = [CronSchedule(cron=cron, timezone="UTC") for cron in ("0 3 * * *", "0 15 * 7-12 *")]
    names = {
        period_name(both, "UTC", datetime(2026, month, 20, hour, tzinfo=UTC))
        for month in (5, 8)
        for hour in (3, 15)
    }
    assert len(names) == 4


def test_intervals_have_names_as_well() -> None:
    schedule = IntervalSchedule(
        interval=timedelta(days=28), anchor_date=datetime(2026, 1, 5, tzinfo=UTC)
    )
    assert period_name([schedule], "UTC", datetime(2026, 2, 2, tzinfo=UTC)) == "2026-w06"
