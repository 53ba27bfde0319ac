"""Proposes what to declare about dates and moments: their format, whole months as bounds, and calendar bins. DP: none."""

from __future__ import annotations

import calendar
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from marginweave.configuration.columns import DateColumn
from marginweave.configuration.columns.periods import DAY, moment_of, parse_instant
from marginweave.drafts.column_draft import FEW_NUMBERS, ODD, STEPS, ColumnDraft
from marginweave.drafts.table_facts import FORMATS, ColumnCells, mostly

_FEW_YEARS = 2
_DECADES = 40 * 365 * DAY
_SAMPLE = 25
_LAST_OF_TWO_DIGITS = 2040
_ORDER = "day before month, or month before day?"
_STANDS_IN = "what lies decades from all other dates is taken for missing"
_IN_UTC = "moments of a time zone count in UTC"
_TWO_DIGITS = "two-digit years mean 1969 to 2068"
_WRONG_CENTURY = (
    "two-digit years mean 1969 to 2068, and some would lie decades ahead, as births before 1969 do: it is dropped; write "
    "years in four digits, and draft again"
)
_DAY_FIRST = {
    "%d/%m/%Y": "%m/%d/%Y",
    "%d/%m/%Y %H:%M": "%m/%d/%Y %H:%M",
    "%d/%m/%Y %H:%M:%S": "%m/%d/%Y %H:%M:%S",
    "%d-%m-%Y": "%m-%d-%Y",
    "%d/%m/%y": "%m/%d/%y",
}
"""Formats with the day before the month, and the same with the month before the day."""
_YEAR = "(?:1[89]|2[01])[0-9]{2}"
# Formats that other codes could have as well: their texts must be like this.
_STRICT = {
    "%Y%m%d": re.compile(f"(?:{_YEAR}|9999|0001)[0-9]{{4}}"),
    "%Y-%m": re.compile(f"{_YEAR}-[0-9]{{2}}"),
}
_DATE_NAME = re.compile(
    r"(?i)(^|[^a-z])(dates?|dat(um|a|e[nu])?|days?|tag|ymd|dob|born|birth\w*|geb\w*|fecha|jour)([^a-z]|$)|(date|datum)$"
)
"""Names of columns whose few different numbers of eight digits are days."""
_ZONE = re.compile(r":[0-9.,]+ ?(Z|[+-][0-9]{2}:?([0-9]{2})?)")
# Texts that stand for "no date": the years 1 and 9999, which a zone may move out of the calendar, and 0 or 9 alone.
_NO_DATE = re.compile(r"(0001|9999)-.*|0+|9{4,}")


@dataclass(frozen=True)
class _Dates:
    """Texts read in one layout: seconds from 1970-01-01 by text, and the texts that are no dates of it."""

    layout: str | None
    instants: Mapping[str, int]
    unread: Sequence[str]


def propose_date(column: ColumnCells, missing: Mapping[str, Any]) -> ColumnDraft | None:
    """Return the draft of a date in the first format that all texts have, but for a word among many; None without one.

    DP: none.
    """
    for layout in (None, *FORMATS):
        if not looks_like_dates(column.present, layout):
            continue
        dates = _read(column.present, layout)
        allowed = 1 if len(dates.instants) > FEW_NUMBERS else 0
        words = [text for text in dates.unread if not _NO_DATE.fullmatch(text)]
        are_few = len(words) <= allowed and not re.search("[0-9]", "".join(words))
        is_named = len(dates.instants) > FEW_NUMBERS or _DATE_NAME.search(column.name)
        if are_few and (layout != "%Y%m%d" or is_named):
            return _date_draft(dates, words, missing)
    return None


def looks_like_dates(texts: Sequence[str], layout: str | None) -> bool:
    """Return whether most of the texts, or of a sample of many, are dates in a layout, or in ISO 8601 without one."""
    step = -(-len(texts) // _SAMPLE)
    return mostly(_instant(text, layout) is not None for text in texts[::step])


def _instant(text: str, layout: str | None) -> int | None:
    strict = _STRICT.get(layout or "")
    if strict is not None and not strict.fullmatch(text):
        return None
    return parse_instant(text, layout)


def _read(texts: Sequence[str], layout: str | None) -> _Dates:
    instants: dict[str, int] = {}
    unread: list[str] = []
    for text in texts:
        instant = _instant(text, layout)
        if instant is None:
            unread.append(text)
        else:
            instants[text] = instant
    return _Dates(layout, instants, unread)


def _date_draft(
    dates: _Dates, words: Sequence[str], missing: Mapping[str, Any]
) -> ColumnDraft | None:
    """Return the draft of dates: bounds are whole months or more, bins are years, months or weeks.

    None where a configuration cannot have it, as with a format and years before 1000.
    """
    layout = dates.layout
    placeholders = _placeholders(dates.instants.values())
    instants = [instant for instant in dates.instants.values() if instant not in placeholders]
    first = month_of(min(instants))
    last = month_of(max(instants))
    has_two_digits = "%y" in (layout or "")
    if has_two_digits and last // 12 >= _LAST_OF_TWO_DIGITS:
        return ColumnDraft("identifier", remark=_WRONG_CENTURY)
    has_days = layout is None or "%d" in layout
    bins = _date_bins(first, last, has_days=has_days)
    facts: dict[str, Any] = {"bounds": whole_months(first, last), "bins": bins}
    if layout:
        facts["format"] = layout
    facts |= missing
    standing_in = [text for text, instant in dates.instants.items() if instant in placeholders]
    if dates.unread or standing_in:
        facts["missing"] = sorted([*missing.get("missing", ()), *dates.unread, *standing_in])
    remarks = {
        _ORDER: layout in _DAY_FIRST and not _read([*dates.instants], _DAY_FIRST[layout]).unread,
        _IN_UTC: layout is None and any(_ZONE.search(text) for text in dates.instants),
        _TWO_DIGITS: has_two_digits,
        _STANDS_IN: placeholders or len(dates.unread) > len(words),
        ODD.format("dates"): words,
    }
    kind = "date" if all(instant % DAY == 0 for instant in instants) else "datetime"
    with suppress(ValidationError):
        DateColumn.model_validate({"type": kind, **facts})
        return ColumnDraft(kind, facts, "; ".join(text for text, holds in remarks.items() if holds))
    return None


def month_of(instant: int) -> int:
    """Return the month of an instant, counted from January of the year 0."""
    moment = moment_of(instant)
    return 12 * moment.year + moment.month - 1


def _date_bins(first: int, last: int, *, has_days: bool) -> str:
    """Return the bins for dates between two months, counted from the year 0."""
    if last // 12 - first // 12 > _FEW_YEARS:
        return "year"
    return "month" if last - first > 1 or not has_days else "week"


def _placeholders(instants: Collection[int]) -> frozenset[int]:
    """Return what stands for "no date": 9999-12-31, and other ends of years that lie decades from all other dates.

    All days of the years 1 and 9999 are such ends, since a zone moves their hours to the next day.
    """
    ends = {instant for instant in instants if _is_end(instant)}
    dates = set(instants) - ends
    if not dates:
        return frozenset()
    low = min(dates)
    high = max(dates)
    return frozenset(end for end in ends if end - high >= _DECADES or low - end >= _DECADES)


def _is_end(instant: int) -> bool:
    moment = moment_of(instant)
    return moment.year in (1, 9999) or (moment.month, moment.day) in ((1, 1), (12, 31))


def whole_months(first: int, last: int) -> list[str]:
    """Return bounds around two months, counted from the year 0.

    They are months, quarters or years: no finer, as a share of their range, than the bounds of numbers.
    """
    step = _month_step(last - first)
    first_year, first_month = divmod(first - first % step, 12)
    last_year, last_month = divmod(last - last % step + step - 1, 12)
    _, last_day = calendar.monthrange(last_year, last_month + 1)
    low = f"{first_year:04d}-{first_month + 1:02d}-01"
    high = f"{last_year:04d}-{last_month + 1:02d}-{last_day:02d}"
    return [low, high]


def _month_step(months: int) -> int:
    """Return how many months apart the bounds of a range of `months` may be: a month, a quarter or a year."""
    for step in (1, 3):
        if months < STEPS * step:
            return step
    return 12
