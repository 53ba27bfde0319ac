"""Days and seconds as integers, and the starts of calendar periods."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

DAY = 86_400
EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ISO_PATTERN = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]+)?)?)?"
)
_ISO = re.compile(ISO_PATTERN)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - dates of a table have no zone


def parse_instant(text: str, format: str | None) -> int | None:  # noqa: A002 - the key of the configuration
    """Seconds from 1970-01-01 of a text in a strptime `format`, or in ISO 8601 without a zone; None for any other text."""
    try:
        if format is not None:
            moment = datetime.strptime(text, format)  # noqa: DTZ007 - dates of a table have no zone
        else:
            found = _ISO.fullmatch(text)
            if found is None:
                return None
            moment = datetime(*(int(part or 0) for part in found.groups()))  # pyright: ignore[reportArgumentType] # noqa: DTZ001
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH) // timedelta(seconds=1)


def moment_of(seconds: int) -> datetime:
    """The moment so many seconds from 1970-01-01."""
    return _EPOCH + timedelta(seconds=seconds)


def period_starts(period: str, first: int, last: int) -> list[int]:
    """Day numbers at which a year, quarter, month or ISO week begins, from the one that holds `first` up to `last`."""
    if period == "week":
        return list(range(first - (first + EPOCH_WEEKDAY) % 7, last + 1, 7))
    months = {"year": 12, "quarter": 3, "month": 1}[period]
    low, high = (day.year * 12 + day.month - 1 for day in (moment_of(first * DAY), moment_of(last * DAY)))
    starts = range(low // months * months, high + 1, months)
    return [day_number(date(month // 12, month % 12 + 1, 1)) for month in starts]


def day_number(day: date) -> int:
    """Days from 1970-01-01."""
    return day.toordinal() - _EPOCH.toordinal()


def period_label(period: str, start: int) -> str:
    """Name of the period that begins on day number `start`: 2019, 2019-Q1, 2019-01, 2019-W01."""
    day = moment_of(start * DAY).date()
    if period == "week":
        year, week, _ = day.isocalendar()
        return f"{year:04d}-W{week:02d}"
    names = {"year": "", "quarter": f"-Q{(day.month + 2) // 3}", "month": f"-{day.month:02d}"}
    return f"{day.year:04d}{names[period]}"
