"""Calendar periods: each day is in exactly one, and one begins where the one before ends."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.accounting.accounts import PERIODS, Policy, next_period, period_start


@given(st.sampled_from(PERIODS), st.dates(date(1900, 1, 1), date(2200, 1, 1)))
def test_periods_follow_each_other_without_a_gap(period, day) -> None:
    start, following = period_start(period, day), next_period(period, day)
    assert start <= day < following
    assert period_start(period, start) == start
    assert period_start(period, following) == following
    assert period_start(period, following - timedelta(days=1)) == start


@pytest.mark.parametrize(
    ("period", "start", "following"),
    [
        ("day", "2028-02-29", "2028-03-01"),
        ("week", "2028-02-28", "2028-03-06"),
        ("month", "2028-02-01", "2028-03-01"),
        ("quarter", "2028-01-01", "2028-04-01"),
        ("year", "2028-01-01", "2029-01-01"),
    ],
)
def test_a_leap_day(period, start, following) -> None:
    day = date(2028, 2, 29)
    assert (str(period_start(period, day)), str(next_period(period, day))) == (start, following)


def test_a_moment_is_where_it_is_in_utc() -> None:
    """New year comes at the same moment for every machine, wherever its clock is set."""
    policy = Policy(per="year", epsilon=Decimal(1), delta=Decimal("1e-6"))
    moment = datetime(2027, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert policy.start(moment) == date(2026, 1, 1)
    assert policy.following(moment) == date(2027, 1, 1)
