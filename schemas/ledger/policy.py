"""A policy of an account: how much of its cap may be spent in one calendar period. It guarantees nothing: the cap does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Literal, get_args

Period = Literal["day", "week", "month", "quarter", "year"]
PERIODS: tuple[Period, ...] = get_args(Period)
_LONGEST: dict[Period, int] = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}


def period_start(period: Period, day: date) -> date:
    """First day of the calendar period that `day` is in; a week begins on Monday."""
    if period == "day":
        return day
    if period == "week":
        return day - timedelta(days=day.weekday())
    if period == "month":
        return day.replace(day=1)
    if period == "quarter":
        return day.replace(month=3 * ((day.month - 1) // 3) + 1, day=1)
    return day.replace(month=1, day=1)


def next_period(period: Period, day: date) -> date:
    """First day of the period after the one that `day` is in."""
    return period_start(period, period_start(period, day) + timedelta(days=_LONGEST[period]))


@dataclass(frozen=True, kw_only=True)
class Policy:
    """At most (`epsilon`, `delta`) of releases that are reserved in one period `per`, a calendar period in UTC.

    How the releases of a period add up is the rule of the account; the account's cap, over all releases to date, holds
    beside it and is what the guarantee rests on.
    """

    per: Period
    epsilon: Decimal
    delta: Decimal

    def start(self, moment: datetime) -> date:
        """First day of the period that `moment` is in."""
        return period_start(self.per, moment.astimezone(UTC).date())

    def following(self, moment: datetime) -> date:
        """First day of the period after that."""
        return next_period(self.per, moment.astimezone(UTC).date())

    def __str__(self) -> str:
        return f"epsilon {self.epsilon.normalize():f} at delta {float(self.delta)!r} per {self.per}"
