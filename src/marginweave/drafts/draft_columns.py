"""What a look at the cells of one column suggests to declare about it. Private until somebody confirms it. DP: none."""

from __future__ import annotations

import calendar
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from marginweave.base.arrow import cell_type
from marginweave.base.arrow import compute as pc
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.periods import DAY, moment_of, parse_instant
from marginweave.configuration.number_texts import USUAL, NumberForm
from marginweave.configuration.values import ValueMatcher, number
from marginweave.drafts.orders import in_order
from marginweave.drafts.recognise import CODES, GAPS
from marginweave.drafts.special_codes import special_codes

_NEGATIVE_ZERO = r"^-(0+([.,]0*)?)$"
MOST_VALUES = 50  # a column with more distinct values is drafted with a private domain
_FEW_CODES = 12  # so few distinct numbers are taken for codes
_BINS, _LOG_BINS = 10, (12, 8, 6)
_FREE_TEXT = 40  # so long on average is no value
_EXACT = 2**53
_MOST_DECIMALS = 9
_BOOLEANS = frozenset({frozenset(pair) for pair in (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))})
# ISO 8601 goes first and needs no format.
FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M")
_FEW_YEARS = 2
_DECADES = 40 * 365 * DAY
_ORDER = "day before month, or month before day?"
_STANDS_IN = "what lies decades from all other dates is taken for missing"
_STEPS = 20  # bounds are that many steps of their grid apart, if not further
_ALMOST_ALL = 0.9  # so many of the cells differ: no list of values, private or not, has room for them
_DIFFERENT = "nearly every cell is different, as ids are; it is dropped"
_ODD = "a text is among the {}; is it no value?"
_SIGNS = "most cells have a currency sign: remove it from the table, and draft again"
_SPECIAL = "codes lie far from all other numbers: say what each means, or move it to missing"
_SKEWED = "few are large: log bins keep the mean; smallest: N says what lies next to 0"
_FLOATS = (
    "floats cannot have a private domain: to buy the values, write the column as integers or texts, and draft again"
)
_SEPARATORS = (";", "|", ",")
_IDENTIFIER = re.compile(
    r"(?i)(^|[^a-z])(u?id|uuid|guid|key|ssn|number|nr|no|name|e?mail|phone)([^a-z]|$)|[a-z](ID|Id)$"
)
CURRENCY = re.compile(r"[+-]?[€$£¥] ?[+-]?[0-9].*|[+-]?[0-9].*[€$£¥]")
# A UUID or an address of e-mail.
_IDENTIFIER_FORM = re.compile(r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass(frozen=True)
class ColumnDraft:
    """The kind of a column, what to declare about it, and a remark for whoever confirms it."""

    type: str
    facts: dict[str, Any] = field(default_factory=dict)
    remark: str = ""

    @property
    def is_private(self) -> bool:
        """Whether nothing in it was read from the data but that it is no short list of values."""
        return self.facts.get("domain") == "private"


def look_at(name: str, values: pa.ChunkedArray, numbers: NumberForm = USUAL) -> ColumnDraft:
    """The draft for one column: its kind, and the facts that its cells show; `numbers` says how they are written.

    Integers beyond 2^53, dates in several formats and texts among numbers make a category: nothing is bent to fit.
    """
    cells = _cells(values)
    records, gaps = sum(cells.values()) - cells.get("", 0), [text for text in cells if text.casefold() in GAPS]
    present = [text for text in cells if text.casefold() not in GAPS]
    missing = {"missing": sorted(gaps)} if gaps else {}
    are_floats = pa.types.is_floating(cell_type(values.type))
    if not present:
        empty = ColumnDraft("category", {"domain": "private"}, "no value was seen")
        return ColumnDraft("identifier", remark="no value was seen; it is dropped") if are_floats else empty
    draft = (
        _boolean(present, missing)
        or _date(present, missing)
        or _identifier(name, present, records, gaps)
        or _number(name, {numbers.plain(text) or text: cells[text] for text in present}, missing)
        or _set(present, missing)
        or _category(present, missing, records)
    )
    if draft.is_private and are_floats:
        draft = ColumnDraft("category", {"values": in_order(present), **missing}, _FLOATS)
    return draft if len(present) > 1 or gaps else ColumnDraft("constant", {"value": present[0]})


def are_codes(values: pa.ChunkedArray, codes: Sequence[str]) -> bool:
    """Whether at least half of the different cells that are filled are codes."""
    known = ValueMatcher(codes)
    present = [text for text in _cells(values) if text.casefold() not in GAPS]
    return 2 * sum(known.index(text) >= 0 for text in present) >= len(present)


def _cells(values: pa.ChunkedArray) -> dict[str, int]:
    """The trimmed texts, in order, and how many cells hold each; an empty one is the empty text, a negative zero is 0."""
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_finite(values), values, None)
    cells = pc.utf8_trim_whitespace(pc.fill_null(pc.cast(values, pa.string()), ""))
    counted = pc.value_counts(pc.replace_substring_regex(cells, _NEGATIVE_ZERO, r"\1"))
    return dict(sorted(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)))


def _boolean(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """With the source's two texts, in which the synthetic CSV file is then written; false comes before true in all pairs."""
    if frozenset(map(str.casefold, present)) not in _BOOLEANS:
        return None
    false, *others, true = sorted(present, key=str.casefold)
    usual = others or (false, true) == ("false", "true")
    return ColumnDraft("boolean", missing if usual else {"true_values": [true], "false_values": [false], **missing})


def _date(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """One format for all, but for a word among many; bounds are whole months or more, bins are years, months or weeks."""
    for layout in (None, *FORMATS):
        found = {text: instant for text in present if (instant := parse_instant(text, layout)) is not None}
        odd = [text for text in present if text not in found]
        if len(odd) > (len(found) > _FEW_CODES) or re.search("[0-9]", "".join(odd)):
            continue
        instants = list(found.values())
        standing_in = _placeholders(instants)
        meant = [instant for instant in instants if instant not in standing_in]
        first, last = (12 * end.year + end.month - 1 for end in map(moment_of, (min(meant), max(meant))))
        facts = {
            "bounds": _whole_months(first, last),
            "bins": "year" if last // 12 - first // 12 > _FEW_YEARS else "month" if last - first > 1 else "week",
            **({"format": layout} if layout else {}),
            **missing,
        }
        if texts := [*odd, *(text for text, instant in found.items() if instant in standing_in)]:
            facts["missing"] = sorted([*missing.get("missing", ()), *texts])
        either = layout == FORMATS[0] and all(parse_instant(text, FORMATS[1]) is not None for text in found)
        kind = "date" if all(instant % DAY == 0 for instant in meant) else "datetime"
        remarks = (_ORDER if either else "", _STANDS_IN if standing_in else "", _ODD.format("dates") if odd else "")
        return ColumnDraft(kind, facts, "; ".join(filter(None, remarks)))
    return None


def _placeholders(instants: Sequence[int]) -> frozenset[int]:
    """First and last days of a year that lie some decades from all others, as 9999-12-31 does: what stands for no date."""
    ends = {instant for instant in instants if f"{moment_of(instant):%m-%d}" in ("01-01", "12-31")}
    others = set(instants) - ends
    low, high = min(others, default=0), max(others, default=0)
    return frozenset(end for end in ends if others and (end - high >= _DECADES or low - end >= _DECADES))


def _whole_months(first: int, last: int) -> list[str]:
    """Bounds around two months, counted from the year 0: no finer beside their range than those of numbers."""
    step = next(step for step in (1, 3, 12) if step == 12 or last - first < _STEPS * step)
    year, month = divmod(first - first % step, 12)
    last_year, last_month = divmod(last - last % step + step - 1, 12)
    end = calendar.monthrange(last_year, last_month + 1)[1]
    return [f"{year:04d}-{month + 1:02d}-01", f"{last_year:04d}-{last_month + 1:02d}-{end:02d}"]


def _identifier(name: str, present: Sequence[str], records: int, gaps: Sequence[str]) -> ColumnDraft | None:
    """Numbers of rows; or nearly every cell another text, many of them, where the name or the form of all says what it is."""
    whole = [int(text) for text in present if not gaps and re.fullmatch("0|[1-9][0-9]{0,14}", text)]
    if len(whole) == records and max(whole) - min(whole) == records - 1 and (records > MOST_VALUES or min(whole) <= 1):
        return ColumnDraft("identifier", remark="it numbers the rows; it is dropped")
    said = _IDENTIFIER.search(name) or all(_IDENTIFIER_FORM.fullmatch(text) for text in present)
    return ColumnDraft("identifier", remark=_DIFFERENT) if said and _nearly_all_differ(present, records) else None


def _nearly_all_differ(present: Sequence[str], records: int) -> bool:
    return len(present) > MOST_VALUES and len(present) >= _ALMOST_ALL * records


def _number(name: str, present: Mapping[str, int], missing: dict[str, Any]) -> ColumnDraft | None:
    """Bounds are rounded outward; a single text among many numbers, such as N, is taken for "no value", 999 for a code."""
    if CODES.search(name):
        return None
    numbers: Counter[Decimal] = Counter()
    for text, cells in present.items():
        if (value := number(text)) is not None:
            numbers[value] += cells
    odd, codes = [text for text in present if number(text) is None], special_codes(numbers)
    decimals = max((max(0, -int(value.normalize().as_tuple().exponent)) for value in numbers), default=0)
    numbers -= Counter(codes)
    if len(odd) > 1 or len(numbers) <= _FEW_CODES or any(re.match(r"[+-]?0[0-9]", text) for text in present):
        return None
    least, most = min(numbers), max(numbers)
    if max(abs(least), abs(most)) >= _EXACT or most - least == 0:  # apart by less than decimals are computed with
        return None
    low, high = rounded_outward(least, most)
    missing = {"missing": [*missing.get("missing", []), *odd]} if odd else missing
    shown: dict[str, Any] = {"decimals": decimals} if decimals <= _MOST_DECIMALS else {}
    shown |= {"codes": {plain(code): f"code {plain(code)}" for code in codes}} if codes else {}
    skewed = least >= 0 and _middle(numbers) < low + (high - low) / _BINS  # most would share the first of equal bins
    for bins in (*({"log": count} for count in _LOG_BINS if skewed), _BINS):
        facts = {"bounds": [plain(low), plain(high)], "bins": bins, **shown, **missing}
        # A bin can be without a whole number, and numbers can lie closer than doubles tell apart.
        with suppress(ValidationError):
            NumberColumn.model_validate({"type": "number", **facts})
            remarks = (
                _ODD.format("numbers") if odd else "",
                _SPECIAL if codes else "",
                _SKEWED if bins != _BINS else "",
            )
            return ColumnDraft("number", facts, "; ".join(filter(None, remarks)))
    return None


def _middle(numbers: Mapping[Decimal, int]) -> Decimal:
    """The median of the cells."""
    ordered, half = sorted(numbers), sum(numbers.values()) / 2
    seen = accumulate(numbers[value] for value in ordered)
    return next(value for value, upto in zip(ordered, seen, strict=True) if upto >= half)


def rounded_outward(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """The multiples of the largest power of ten within half of the range that enclose it."""
    step = Decimal(10) ** math.floor(((high - low) / 2).log10())
    return math.floor(low / step) * step, math.ceil(high / step) * step


def plain(value: Decimal | float) -> int | float:
    """A finite number as one would write it: 5 and not 5.0."""
    return int(value) if value == int(value) else float(value)


def _set(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """Cells of several values: few different ones, each of which stands in several different cells."""
    if mostly(map(CURRENCY.fullmatch, present)):  # a decimal comma
        return None
    for separator in _SEPARATORS:
        cells = [{part.strip() for part in text.split(separator)} - {""} for text in present]
        most, parts = max(map(len, cells)), set().union(*cells)
        # A comma also stands within names: it must save a long list to be taken for a separator.
        enough = MOST_VALUES if separator == "," else 2
        if most > 1 and len(parts) < len(present) and len(present) > enough and len(parts) <= MOST_VALUES:
            facts = {"separator": separator, "values": in_order(sorted(parts)), "max_values": most, **missing}
            return ColumnDraft("set", facts)
    return None


def _category(present: Sequence[str], missing: dict[str, Any], records: int) -> ColumnDraft:
    if sum(map(len, present)) > _FREE_TEXT * len(present) and any(" " in text for text in present):
        return ColumnDraft("identifier", remark="free text: it is not released; group it before, or leave the line out")
    remark = _resembles(present)
    if not remark and _nearly_all_differ(present, records):
        return ColumnDraft("identifier", remark=_DIFFERENT)
    facts = {"domain": "private"} if len(present) > MOST_VALUES else {"values": in_order(present), **missing}
    return ColumnDraft("category", facts, remark)


def _resembles(present: Sequence[str]) -> str:
    """What most of these texts look like, which are no numbers, dates or sets as they are, and what to do about it."""
    if mostly(map(CURRENCY.fullmatch, present)):
        return _SIGNS
    for layout in (None, *FORMATS):
        if mostly(parse_instant(text, layout) is not None for text in present):
            form = f', format: "{layout}"' if layout else ""
            return (
                f"most cells look like dates: {{type: date{form}}}, bounds and bins; which of the others mean no value?"
            )
    mixed = len(present) > MOST_VALUES and 0 < sum(number(text) is not None for text in present) < len(present)
    return "numbers and texts are mixed" if mixed else ""


def mostly(holds: Iterable[object]) -> bool:
    """Whether more than half of some hold."""
    found = [bool(each) for each in holds]
    return sum(found) > len(found) / 2
