"""Days and seconds as integers, and the starts of calendar periods."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import cache

DAY = 86_400
EPOCH_WEEKDAY = 3  # Monday is 0; 1970-01-01 was a Thursday
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ISO_PATTERN = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?"
    r" ?(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
"""A date or a moment in ISO 8601. A zone is Z or a distance from UTC: +02:00, +0200 or +02."""
_ISO = re.compile(ISO_PATTERN)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - dates of a table have no zone


def parse_instant(text: str, format: str | None) -> int | None:  # noqa: A002 - the key of the configuration
    """Return the seconds from 1970-01-01 to the date that a text spells; None for any other text.

    The text is in the strptime `format`, or in ISO 8601 if there is no format. A moment with a zone is the moment in UTC.
    """
    try:
        if format is not None:
            moment = datetime.strptime(text, format)  # noqa: DTZ007 - dates of a table have no zone
        else:
            match = _ISO.fullmatch(text)
            if match is None:
                return None
            *digits, zone = match.groups()
            parts = [int(part or 0) for part in digits]
            moment = datetime(*parts) - zone_offset(zone or "")  # pyright: ignore[reportArgumentType] # noqa: DTZ001
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH) // timedelta(seconds=1)


@cache
def zone_offset(zone: str) -> timedelta:
    """Return how far the clocks of a zone, as `ISO_PATTERN` has it, are ahead of UTC; none is 0.

    Raises:
        ValueError: the zone has more than 23 hours, or more than 59 minutes.
    """
    digits = zone.strip("+-Z").replace(":", "").ljust(4, "0")
    hours = int(digits[:2])
    minutes = int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("no zone is so far from UTC")
    ahead = timedelta(hours=hours, minutes=minutes)
    return -ahead if zone.startswith("-") else ahead


def moment_of(seconds: int) -> datetime:
    """Return the moment that is `seconds` from 1970-01-01."""
    return _EPOCH + timedelta(seconds=seconds)


def period_starts(period: str, first: int, last: int) -> list[int]:
    """Return the first day of each period that overlaps the days `first` to `last`; the earliest may be before `first`.

    Days are numbers, and day 0 is 1970-01-01. `period` is year, quarter, month or week (ISO).
    """
    if period == "week":
        monday = first - (first + EPOCH_WEEKDAY) % 7
        return list(range(monday, last + 1, 7))
    length = {"year": 12, "quarter": 3, "month": 1}[period]
    low = _month_number(first) // length * length
    # not rounded down: the range below ends with the period of this month
    high = _month_number(last)
    return [
        day_number(date(month // 12, month % 12 + 1, 1)) for month in range(low, high + 1, length)
    ]


def _month_number(day: int) -> int:
    """Return the number of months from the year 0 to the month of a day number."""
    moment = moment_of(day * DAY)
    return moment.year * 12 + moment.month - 1


def day_number(day: date) -> int:
    """Return the number of days from 1970-01-01."""
    return day.toordinal() - _EPOCH.toordinal()


def period_label(period: str, start: int) -> str:
    """Return the name of the period that begins on day number `start`: 2019, 2019-Q1, 2019-01, 2019-W01."""
    day = moment_of(start * DAY).date()
    if period == "week":
        year, week, _ = day.isocalendar()
        return f"{year:04d}-W{week:02d}"
    names = {"year": "", "quarter": f"-Q{(day.month + 2) // 3}", "month": f"-{day.month:02d}"}
    return f"{day.year:04d}{names[period]}"
