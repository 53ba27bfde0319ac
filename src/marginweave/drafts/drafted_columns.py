"""Proposes what to declare about a column, by the facts of its cells. Private until somebody confirms it. DP: none."""

from __future__ import annotations

import calendar
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate
from typing import Any

from pydantic import ValidationError

from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.base import RESERVED
from marginweave.configuration.columns.periods import DAY, moment_of, parse_instant
from marginweave.configuration.number_texts import USUAL, NumberForm
from marginweave.configuration.values import number
from marginweave.drafts.orders import in_order
from marginweave.drafts.special_codes import special_codes
from marginweave.drafts.table_facts import CURRENCY, FORMATS, ColumnCells, mostly

MOST_VALUES = 50  # a column with more distinct values is drafted with a private domain
_FEW_NUMBERS = 12  # at most this many distinct numbers are taken for names of groups
_BINS = 10
_LOG_BINS = (12, 8, 6)
_FREE_TEXT = 40  # texts longer than this on average are no values
_EXACT = 2**53
_MOST_DECIMALS = 9
_BOOLEANS = (
    frozenset(("true", "false")),
    frozenset(("yes", "no")),
    frozenset(("t", "f")),
    frozenset(("y", "n")),
)
_FEW_YEARS = 2
_DECADES = 40 * 365 * DAY
_ORDER = "day before month, or month before day?"
_STANDS_IN = "what lies decades from all other dates is taken for missing"
_STEPS = 20  # bounds are at least this many steps of their grid apart
# where this share of the cells differs, no list of values has room for them, private or not
_ALMOST_ALL = 0.9
_DIFFERENT = "nearly every cell is different, as ids are; it is dropped"
_ODD = "a text is among the {}; is it no value?"
_SIGNS = "most cells have a currency sign: remove it from the table, and draft again"
_SPECIAL = "codes lie far from all other numbers: say what each means, or move it to missing"
_SKEWED = "few are large: log bins keep the mean; smallest: N says what lies next to 0"
_FLOATS = "floats cannot have a private domain: to buy the values, write the column as integers or texts, and draft again"
_SEPARATORS = (";", "|", ",")
_CLASSIFICATION = re.compile(
    r"(?i)(^|[^a-z])(codes?|nace|isic|naics|isco|icd|industry|occupation|zip|postcode|plz|fips)([^a-z]|$)"
)
"""Names of columns whose whole numbers name groups, such as occupations: ten bins of them would mean nothing."""
_IDENTIFIER = re.compile(
    r"(?i)(^|[^a-z])(u?id|uuid|guid|key|ssn|number|nr|no|name|e?mail|phone)([^a-z]|$)|[a-z](ID|Id)$"
)
# A UUID or an address of e-mail.
_IDENTIFIER_FORM = re.compile(
    r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^@\s]+@[^@\s]+\.[^@\s]+"
)


@dataclass(frozen=True)
class ColumnDraft:
    """A proposal for one column: its kind, what to declare about it, and a remark for the steward.

    `public` says where that is published; without it the column waits for the steward to confirm it.
    """

    type: str
    facts: dict[str, Any] = field(default_factory=dict)
    remark: str = ""
    public: str | None = None

    @property
    def is_private(self) -> bool:
        """Return whether its domain is private: then only the fact that it has many values comes from the data."""
        return self.facts.get("domain") == "private"

    @property
    def waits(self) -> bool:
        """Return whether the column waits for the steward to confirm it: a private domain has nothing to confirm."""
        return not self.is_private and self.public is None


def propose_column(column: ColumnCells, numbers: NumberForm = USUAL) -> ColumnDraft:
    """Return the draft for one column: its kind, and the facts that its cells show.

    Integers beyond 2^53, dates in several formats and texts among numbers make a category: nothing is bent to fit.

    Args:
        column: The facts of the column.
        numbers: The form in which the source writes numbers.
    """
    present = column.present
    if not present:
        return _without_values(column)
    missing = {"missing": sorted(column.gaps)} if column.gaps else {}
    draft = _propose_kind(column, numbers, missing)
    if draft.is_private and column.are_floats:
        draft = ColumnDraft("category", {"values": in_order(present), **missing}, _FLOATS)
    if len(present) == 1 and not column.gaps:
        return ColumnDraft("constant", {"value": present[0]})
    return draft


def _without_values(column: ColumnCells) -> ColumnDraft:
    if column.are_floats:
        return ColumnDraft("identifier", remark="no value was seen; it is dropped")
    return ColumnDraft("category", {"domain": "private"}, "no value was seen")


def _propose_kind(column: ColumnCells, numbers: NumberForm, missing: dict[str, Any]) -> ColumnDraft:
    """Return the draft of the first kind that fits; every column can be a category."""
    present = column.present
    return (
        _boolean(present, missing)
        or _date(present, missing)
        or _identifier(column)
        or _number(column, numbers, missing)
        or _set(present, missing)
        or _category(column, missing)
    )


def _boolean(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """Propose a boolean with the source's two texts, in which the synthetic CSV file is then written."""
    texts = sorted(present, key=str.casefold)
    if frozenset(map(str.casefold, texts)) not in _BOOLEANS:
        return None
    if len(texts) > 2 or texts == ["false", "true"]:
        return ColumnDraft("boolean", missing)
    # False comes before true in all pairs.
    return ColumnDraft("boolean", {"true_values": texts[1:], "false_values": texts[:1], **missing})


def _date(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """Propose a date in the first format that all texts have, but for a word among many."""
    for layout in (None, *FORMATS):
        instants = _read_instants(present, layout)
        unread = [text for text in present if text not in instants]
        allowed = 1 if len(instants) > _FEW_NUMBERS else 0
        if len(unread) <= allowed and not re.search("[0-9]", "".join(unread)):
            return _date_draft(layout, instants, unread, missing)
    return None


def _read_instants(texts: Sequence[str], layout: str | None) -> dict[str, int]:
    instants: dict[str, int] = {}
    for text in texts:
        instant = parse_instant(text, layout)
        if instant is not None:
            instants[text] = instant
    return instants


def _date_draft(
    layout: str | None, instants: Mapping[str, int], unread: Sequence[str], missing: dict[str, Any]
) -> ColumnDraft:
    """Return the draft of dates: bounds are whole months or more, bins are years, months or weeks."""
    placeholders = _placeholders(instants.values())
    dates = [instant for instant in instants.values() if instant not in placeholders]
    first = _month_of(min(dates))
    last = _month_of(max(dates))
    facts: dict[str, Any] = {"bounds": _whole_months(first, last), "bins": _date_bins(first, last)}
    if layout:
        facts["format"] = layout
    facts |= missing
    standing_in = [text for text, instant in instants.items() if instant in placeholders]
    if unread or standing_in:
        facts["missing"] = sorted([*missing.get("missing", ()), *unread, *standing_in])
    remarks = []
    if layout == FORMATS[0] and _read_instants([*instants], FORMATS[1]).keys() == instants.keys():
        remarks.append(_ORDER)
    if placeholders:
        remarks.append(_STANDS_IN)
    if unread:
        remarks.append(_ODD.format("dates"))
    kind = "date" if all(instant % DAY == 0 for instant in dates) else "datetime"
    return ColumnDraft(kind, facts, "; ".join(remarks))


def _month_of(instant: int) -> int:
    """Return the month of an instant, counted from January of the year 0."""
    moment = moment_of(instant)
    return 12 * moment.year + moment.month - 1


def _date_bins(first: int, last: int) -> str:
    """Return the bins for dates between two months, counted from the year 0."""
    if last // 12 - first // 12 > _FEW_YEARS:
        return "year"
    return "month" if last - first > 1 else "week"


def _placeholders(instants: Collection[int]) -> frozenset[int]:
    """Return the first and last days of a year that lie decades from all other dates, as 9999-12-31 does."""
    ends = {instant for instant in instants if f"{moment_of(instant):%m-%d}" in ("01-01", "12-31")}
    dates = set(instants) - ends
    if not dates:
        return frozenset()
    low = min(dates)
    high = max(dates)
    return frozenset(end for end in ends if end - high >= _DECADES or low - end >= _DECADES)


def _whole_months(first: int, last: int) -> list[str]:
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
        if months < _STEPS * step:
            return step
    return 12


def _identifier(column: ColumnCells) -> ColumnDraft | None:
    """Propose an identifier for numbers of rows, and where nearly every cell differs and the name or the form says so."""
    if _is_row_number(column):
        return ColumnDraft("identifier", remark="it numbers the rows; it is dropped")
    if not _nearly_all_differ(column):
        return None
    if _IDENTIFIER.search(column.name) or all(
        _IDENTIFIER_FORM.fullmatch(text) for text in column.present
    ):
        return ColumnDraft("identifier", remark=_DIFFERENT)
    return None


def _is_row_number(column: ColumnCells) -> bool:
    """Return whether the cells are whole numbers without a gap, each once: from 0 or 1 on, or many of them."""
    if column.gaps:
        return False
    row_numbers = [int(text) for text in column.present if re.fullmatch("0|[1-9][0-9]{0,14}", text)]
    if len(row_numbers) != column.filled:
        return False
    first = min(row_numbers)
    are_consecutive = max(row_numbers) - first == column.filled - 1
    return are_consecutive and (column.filled > MOST_VALUES or first <= 1)


def _nearly_all_differ(column: ColumnCells) -> bool:
    distinct = len(column.present)
    return distinct > MOST_VALUES and distinct >= _ALMOST_ALL * column.filled


def _number(column: ColumnCells, form: NumberForm, missing: dict[str, Any]) -> ColumnDraft | None:
    """Propose a number with bounds rounded outward, for texts in the given form of numbers.

    A single text among many numbers, such as N, is taken for "no value", 999 for a special number.
    """
    if _CLASSIFICATION.search(column.name):
        return None
    cells = {form.plain(text) or text: column.cells[text] for text in column.present}
    numbers, unread = _read_numbers(cells)
    special = special_codes(numbers)
    decimals = max((_decimals_of(value) for value in numbers), default=0)
    numbers -= Counter(special)
    has_leading_zeros = any(re.match(r"[+-]?0[0-9]", text) for text in cells)
    if len(unread) > 1 or len(numbers) <= _FEW_NUMBERS or has_leading_zeros:
        return None
    least = min(numbers)
    most = max(numbers)
    # the difference vanishes in Decimal precision
    if max(abs(least), abs(most)) >= _EXACT or most - least == 0:
        return None
    facts: dict[str, Any] = {"decimals": decimals} if decimals <= _MOST_DECIMALS else {}
    if special:
        facts["codes"] = {plain(code): f"code {plain(code)}" for code in special}
    facts |= missing
    if unread:
        facts["missing"] = [*missing.get("missing", []), *unread]
    remarks = [_ODD.format("numbers")] if unread else []
    if special:
        remarks.append(_SPECIAL)
    return _binned_number(numbers, facts, remarks)


def _read_numbers(cells: Mapping[str, int]) -> tuple[Counter[Decimal], list[str]]:
    """Return the numbers with the number of their cells, and the texts that are no numbers."""
    numbers: Counter[Decimal] = Counter()
    unread = []
    for text, count in cells.items():
        value = number(text)
        if value is None:
            unread.append(text)
        else:
            numbers[value] += count
    return numbers, unread


def _decimals_of(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return max(0, -int(exponent))


def _binned_number(
    numbers: Mapping[Decimal, int], facts: Mapping[str, Any], remarks: Sequence[str]
) -> ColumnDraft | None:
    """Return the draft with the first bins that the configuration allows: log bins where few numbers are large."""
    low, high = rounded_outward(min(numbers), max(numbers))
    # Most cells of skewed numbers would share the first of equal bins.
    is_skewed = min(numbers) >= 0 and _median(numbers) < low + (high - low) / _BINS
    log_bins = [{"log": count} for count in _LOG_BINS] if is_skewed else []
    for bins in (*log_bins, _BINS):
        binned = {"bounds": [plain(low), plain(high)], "bins": bins, **facts}
        # A bin can be without a whole number, and numbers can lie closer than doubles tell apart.
        with suppress(ValidationError):
            NumberColumn.model_validate({"type": "number", **binned})
            about_bins = [] if bins == _BINS else [_SKEWED]
            return ColumnDraft("number", binned, "; ".join([*remarks, *about_bins]))
    return None


def _median(numbers: Mapping[Decimal, int]) -> Decimal:
    """Return the lower median of the cells: the least number that half of the cells do not exceed."""
    ordered = sorted(numbers)
    cells_up_to = list(accumulate(numbers[value] for value in ordered))
    return ordered[bisect_left(cells_up_to, cells_up_to[-1] / 2)]


def rounded_outward(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """Return the multiples of the largest power of ten within half of the range that enclose it."""
    exponent = math.floor(((high - low) / 2).log10())
    step = Decimal(10) ** exponent
    return math.floor(low / step) * step, math.ceil(high / step) * step


def plain(value: Decimal | float) -> int | float:
    """Return a finite number as people write it: 5 and not 5.0."""
    return int(value) if value == int(value) else float(value)


def _set(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """Propose a set where cells hold several values: few distinct ones, each in several distinct cells."""
    if mostly(map(CURRENCY.fullmatch, present)):  # €1,50 would be split at its comma
        return None
    for separator in _SEPARATORS:
        sets = [_split(text, separator) for text in present]
        most = max(map(len, sets))
        # names of cells without a value are left out of a set
        values = set[str]().union(*sets) - RESERVED
        # A comma also occurs within names: it must save a long list to be taken for a separator.
        enough = MOST_VALUES if separator == "," else 2
        if (
            most > 1
            and len(values) < len(present)
            and len(present) > enough
            and len(values) <= MOST_VALUES
        ):
            facts = {
                "separator": separator,
                "values": in_order(sorted(values)),
                "max_values": most,
                **missing,
            }
            return ColumnDraft("set", facts)
    return None


def _split(text: str, separator: str) -> set[str]:
    return {part.strip() for part in text.split(separator)} - {""}


def _category(column: ColumnCells, missing: dict[str, Any]) -> ColumnDraft:
    """Propose a category, with a private domain where its values are many; free text and ids are dropped."""
    present = column.present
    are_long = sum(map(len, present)) > _FREE_TEXT * len(present)
    if are_long and any(" " in text for text in present):
        return ColumnDraft(
            "identifier",
            remark="free text: it is not released; group it before, or leave the line out",
        )
    remark = _resemblance(present)
    if not remark and _nearly_all_differ(column):
        return ColumnDraft("identifier", remark=_DIFFERENT)
    facts = (
        {"domain": "private"}
        if len(present) > MOST_VALUES
        else {"values": in_order(present), **missing}
    )
    return ColumnDraft("category", facts, remark)


def _resemblance(present: Sequence[str]) -> str:
    """Return what most of these texts look like, and what to do about it; nothing where they look like values."""
    if mostly(map(CURRENCY.fullmatch, present)):
        return _SIGNS
    for layout in (None, *FORMATS):
        if mostly(parse_instant(text, layout) is not None for text in present):
            form = f', format: "{layout}"' if layout else ""
            return f"most cells look like dates: {{type: date{form}}}, bounds and bins; which of the others mean no value?"
    if len(present) <= MOST_VALUES:
        return ""
    numbers = sum(number(text) is not None for text in present)
    return "numbers and texts are mixed" if 0 < numbers < len(present) else ""
