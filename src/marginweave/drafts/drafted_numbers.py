"""Proposes what to declare about numbers: the bounds that an expert would write, bins, decimals and special codes. DP: none."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from marginweave.base.arrays import Integers
from marginweave.base.arrow import compute as pc
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.number_texts import NumberForm, NumberText
from marginweave.configuration.values import number
from marginweave.drafts.column_draft import FEW_NUMBERS, ODD, ColumnDraft, plain
from marginweave.drafts.distinct_numbers import DistinctNumbers
from marginweave.drafts.number_spelling import recognise_spelling
from marginweave.drafts.special_codes import special_codes
from marginweave.drafts.table_facts import ColumnCells

_BINS = 10
_LOG_BINS = (12, 8, 6)
_LOG_BINS_OF_TWO_SIDES = (24, 16, 12)
_QUARTILES = 4
"""Quartiles are so much closer to 0 than a bin is wide where tails are long; those of normal numbers are not."""
_SAMPLE = 25
_EXACT = 2**53
_MOST_DECIMALS = 9
_EXACT_SUM = 10**14
"""A sum of doubles is off by at most a share of itself of 1 to this."""
_DIGITS = 6
_MOST_WORDS = 5
_NUMBERS_A_WORD = 50
_WORDS = "texts are among the numbers; do all of them mean no value?"
_SPECIAL = "codes lie far from all other numbers: say what each means, or move it to missing"
_SKEWED = "few are large: log bins keep the mean; smallest: N says what lies next to 0"
_SPELLING = "text says how cells are written; records have numbers alone"
_ROUNDED = "bounds are rounded from the table: write what can be"
_PLACES = (
    "zip|postcode|postal|plz|fips|tract|geoid|county|country|nationality|state|region|district|zone"
)
_LISTS = "codes?|nace|isic|naics|isco|icd|industry|occupation|puma|cbsa|cpt|drg|atc|soc|sic|ags|gkz|insee"
_CLASSIFICATION = re.compile(
    rf"(?i)(^|[^a-z])({_PLACES}|{_LISTS}|u?id|uuid|guid)([^a-z]|$)|[a-z](ID|Id)$"
)
"""Names of columns whose whole numbers name groups, such as occupations: ten bins of them would mean nothing."""
_PLAIN = r"^-?[0-9]+(\.[0-9]+)?$"
"""A number as configurations write it."""
_LEADING_ZERO = "^[+-]?0[0-9]"
_LEAST_DIGITS = 4
_LEAST_CELLS = 5
_FEW_BELOW = 0.01
_DEFAULT_REACH = 10_000
_SPARSE = 20
_MOST_ROUND = 0.3


@dataclass(frozen=True)
class _Scale:
    """Numbers that are known by the name of their column: where they can lie, and how far they reach in a table of them."""

    names: re.Pattern[str]
    low: int
    high: int
    reach: float
    bins: Any
    whole: bool = True
    largest: float = 0
    """Largest number that is taken for one of the scale, where that may be above its end."""
    width: float = 0
    """Least distance of the least and the largest number: equal bins would hold narrower numbers in one of them."""

    def fits(self, name: str, least: Decimal, most: Decimal, decimals: int) -> bool:
        """Return whether the numbers of a column lie within the scale, and reach as far as numbers of it do."""
        largest = self.largest or self.high
        is_inside = self.low <= least and self.reach <= most <= largest
        is_wide = most - least >= self.width
        is_fine = not (self.whole and decimals)
        return is_inside and is_wide and is_fine and bool(self.names.search(name))


def _named(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?i)(?:^|[^a-zäöüé])(?:{words})(?:[^a-zäöüé]|$)")


_PERCENT = _named(
    r"pct\w*|percent\w*|prozent\w*|anteil|share|spo2|saturation|humidity|feuchte|pourcentage"
)
_AGE = re.compile(
    rf"{_named('agep?|alter|edad|âge|leeftijd|alder').pattern}|(?-i:[a-z]Age(?:[A-Z_]|$))"
)
_SCALES = (
    _Scale(_named("hours?|hr|stunde|heure|hora"), 0, 23, 20, {"min": 0, "max": 23, "step": 2}),
    _Scale(_named("hours?|hr|stunde|heure|hora"), 0, 24, 20, 12, whole=False),
    _Scale(_named("minutes?|min|seconds?|sec|sekunde"), 0, 59, 50, 12),
    _Scale(_named("day|dom|tag|jour|dia|day_?of_?month"), 1, 31, 28, 10),
    _Scale(_named("month|monat|mois|mes"), 1, 12, 12, 11),
    _Scale(_named("weeks?|kw|woche|week_?of_?year|semaine"), 1, 53, 50, 13),
    _Scale(_named("doy|yday|julian|day_?of_?year"), 1, 366, 300, 12),
    _Scale(_named("ph|ph_?wert"), 0, 14, 7, 14, whole=False, largest=15),
    _Scale(_named(r"angle|azimuth|bearing|heading|direction|winkel|wind_dir\w*"), 0, 360, 180, 12, whole=False),
    _Scale(_PERCENT, 0, 1, 0, _BINS, whole=False, width=0.5),
    _Scale(_PERCENT, 0, 100, 0, _BINS, whole=False, width=50),
    _Scale(re.compile("%"), 0, 100, 0, _BINS, whole=False, width=50),
)  # fmt: skip
"""Scales whose bounds an expert knows, the narrower first."""
_ADULT = 18
_AGES = (0, 5, 10, 15, 18, 25, 30, 40, 50, 60, 65, 70, 80, 90, 100, 110)
"""Edges that people ask for (adults, 60 and older, 65 and older), the finest where ages differ most by what they mean."""
_OLD = 80
_OLDEST = 100
_MOST_YEARS = 120
_NO_AGES = "numbers above 120 are no ages, and count in the last bin; if they mean no value, write them to missing"
_FEW_ABOVE = 0.01
_YOUNG = 30


@dataclass(frozen=True, eq=False)
class _PlainNumbers:
    """The distinct numbers of a column as configurations write them, with the cells of each, and its texts that are none."""

    texts: pa.Array
    counts: Integers
    unread: Sequence[str] = ()

    @property
    def have_leading_zeros(self) -> bool:
        """Return whether one begins as codes do: 007."""
        return bool(pc.any(pc.match_substring_regex(self.texts, _LEADING_ZERO)).as_py())


def propose_number(
    column: ColumnCells, form: NumberForm, missing: Mapping[str, Any]
) -> ColumnDraft | None:
    """Return the draft of a number, for texts in the given form of numbers; None where they are no sizes.

    A single text among many numbers, such as N, and a few words are taken for "no value", 999 for a special number. Numbers of
    a classification, by the name of the column or by their digits, name groups. Where all have one unit, or negative ones are
    in brackets, they are sizes, and `text` says how they are spelled. DP: none.
    """
    spelling = recognise_spelling(column.present, form)
    if spelling:
        facts = {**missing, "text": spelling}
        written = NumberText.model_validate(spelling).form(form)
        # a percentage is known by its sign
        name = f"{column.name} {written.unit}"
        numbers = _plain_numbers(column, written)
        return _draft(name, numbers, facts, [_SPELLING], are_sizes=True)
    sample = column.present[:: -(-len(column.present) // _SAMPLE)]
    odd = sum(_plain(column, form, text) is None for text in sample)
    if odd > _MOST_WORDS or _CLASSIFICATION.search(column.name):
        return None
    return _draft(column.name, _plain_numbers(column, form), missing, [], are_sizes=False)


def _plain(column: ColumnCells, form: NumberForm, text: str) -> str | None:
    """Return a number as configurations write it; None for a text that a release reads as none.

    A column of doubles has its numbers in the usual form, whatever the form of the texts of a source is.
    """
    is_usual = form.is_usual or column.are_floats
    return form.plain(text) or (text if is_usual and number(text) is not None else None)


def _plain_numbers(column: ColumnCells, form: NumberForm) -> _PlainNumbers:
    """Return the numbers of a column in one form, and the texts that are none in it."""
    texts, counts = column.values
    if form.is_usual and pc.all(pc.match_substring_regex(texts, _PLAIN)).as_py():
        return _PlainNumbers(texts, counts)  # a million numbers one by one take seconds
    cells: Counter[str] = Counter()
    unread = []
    for text, count in zip(column.present, counts.tolist(), strict=True):
        plain_text = _plain(column, form, text)
        if plain_text is None:
            unread.append(text)
        else:
            cells[plain_text] += count
    plain_counts = np.array([*cells.values()], np.int64)
    return _PlainNumbers(pa.array([*cells], pa.string()), plain_counts, unread)


def _draft(
    name: str,
    plain_numbers: _PlainNumbers,
    declared: Mapping[str, Any],
    remarks: Sequence[str],
    *,
    are_sizes: bool,
) -> ColumnDraft | None:
    """Return the draft of a number; None where the cells are too few, codes, or no numbers.

    Args:
        name: The name of the column, by which bounds are known.
        plain_numbers: Its numbers, and the texts that are none.
        declared: What is declared besides.
        remarks: What to say of it already.
        are_sizes: Whether they are known to be no codes.
    """
    unread = plain_numbers.unread
    all_numbers = DistinctNumbers.of(plain_numbers.texts, plain_numbers.counts)
    special = special_codes(all_numbers)
    numbers = all_numbers.without([*special])
    has_few = len(numbers) <= FEW_NUMBERS or not _are_words(unread, len(numbers))
    if has_few or plain_numbers.have_leading_zeros:
        return None
    # The difference vanishes in Decimal precision.
    if max(abs(numbers.least), abs(numbers.most)) >= _EXACT or numbers.most - numbers.least == 0:
        return None
    if not are_sizes and are_codes(numbers):
        return None
    decimals = decimals_of(all_numbers)
    facts: dict[str, Any] = {"decimals": decimals} if decimals <= _MOST_DECIMALS else {}
    if special:
        facts["codes"] = {plain(code): f"code {plain(code)}" for code in special}
    facts |= declared
    if unread:
        facts["missing"] = [*declared.get("missing", []), *unread]
        remarks = [_WORDS if len(unread) > 1 else ODD.format("numbers"), *remarks]
    if special:
        remarks = [*remarks, _SPECIAL]
    oldest = _oldest(numbers) if _AGE.search(name) else numbers.most
    expert_bins = _expert_bins(name, numbers.least, oldest, decimals)
    if expert_bins:
        remarks = [*remarks, _NO_AGES] if oldest < numbers.most else remarks
        return _first_valid([{**expert_bins, **facts}], remarks)
    return _rounded_number(numbers, facts, remarks)


def are_codes(numbers: DistinctNumbers) -> bool:
    """Return whether whole numbers, by their number of cells, name groups by their digits and gaps.

    They have as many digits, at least four; each is in several cells, and yet most numbers between the least and the
    largest are in none; and few end in 0, as rounded sizes do.
    """
    if numbers.spelled.any() or numbers.least < 0:
        return False
    least = int(numbers.least)
    most = int(numbers.most)
    if len(str(least)) != len(str(most)) or len(str(least)) < _LEAST_DIGITS:
        return False
    values = numbers.steps // 10**numbers.decimals
    has_gaps = len(values) * _SPARSE <= most - least + 1
    is_round = int((values % 10 == 0).sum()) > _MOST_ROUND * len(values)
    step = int(np.gcd.reduce(values - least))
    are_repeated = int(numbers.cells.sum()) >= _LEAST_CELLS * len(values)
    return has_gaps and are_repeated and not is_round and step == 1


def _are_words(unread: Sequence[str], numbers: int) -> bool:
    """Return whether the texts among so many distinct numbers can mean "no value": one of any kind, or a few without digits."""
    if len(unread) <= 1:
        return True
    are_few = len(unread) <= _MOST_WORDS and _NUMBERS_A_WORD * len(unread) <= numbers
    return are_few and not any(re.search("[0-9]", text) for text in unread)


def decimals_of(numbers: DistinctNumbers) -> int:
    """Return the decimals that the numbers have, but for the error of sums of doubles, such as 12.340000000000002.

    That is the most decimals of any, or up to nine where all numbers are as near to so many as doubles are added up. Where any
    has more than nine, it is as many as a millionth of their range has: values are released as draws in bins.
    """
    most = numbers.decimals
    if most <= _MOST_DECIMALS:
        return most
    sizes = np.abs(numbers.steps)
    for decimals in range(_MOST_DECIMALS + 1):
        step = 10 ** (most - decimals)
        beyond = sizes % step
        error = np.minimum(beyond, step - beyond)
        if (error <= sizes // _EXACT_SUM).all():
            return decimals
    width = numbers.most - numbers.least
    return most if not width else max(0, _DIGITS - width.adjusted())


def _oldest(numbers: DistinctNumbers) -> Decimal:
    """Return the largest number that can be an age in years, where at most one in a hundred is above; otherwise the largest."""
    ages = numbers.up_to(Decimal(_MOST_YEARS))
    above = int(numbers.cells[ages:].sum())
    return numbers[ages - 1] if above <= _FEW_ABOVE * int(numbers.cells.sum()) else numbers.most


def _expert_bins(name: str, least: Decimal, most: Decimal, decimals: int) -> dict[str, Any]:
    """Return the bounds and bins that an expert would write by the name of a column; nothing where it says too little."""
    for scale in _SCALES:
        if scale.fits(name, least, most, decimals):
            return {"bounds": [scale.low, scale.high], "bins": scale.bins}
    if not _AGE.search(name) or least < 0 or most > _MOST_YEARS:
        return {}
    high = max(_OLDEST if most > _OLD else 0, math.ceil(most / 10) * 10)
    low = 0 if least < _ADULT else _ADULT
    if high <= _YOUNG:
        return {"bounds": [0, high], "bins": high // 2} if not low else {}
    edges = [edge for edge in _AGES if low <= edge < high]
    return {"bounds": [low, high], "bins": [*edges, high]}


def _rounded_number(
    numbers: DistinctNumbers, facts: Mapping[str, Any], remarks: Sequence[str]
) -> ColumnDraft | None:
    """Return the draft with bounds rounded outward: log bins where few numbers are large, on one side of 0 or on both."""
    low, high = rounded_outward(numbers.least, numbers.most)
    bounds = [plain(low), plain(high)]
    step = Decimal(1).scaleb(-int(facts.get("decimals", _MOST_DECIMALS)))
    default = max(step, max(abs(low), abs(high)) / _DEFAULT_REACH)
    smallest = _smallest(numbers, default)
    drafts = [
        {"bounds": bounds, "bins": {"log": count, **smallest}, **facts}
        for count in _log_bins(numbers, low, high)
    ]
    skewed = _first_valid(drafts, [*remarks, _SKEWED])
    if skewed is not None:
        return skewed
    return _first_valid([{"bounds": bounds, "bins": _BINS, **facts}], [*remarks, _ROUNDED])


def _log_bins(numbers: DistinctNumbers, low: Decimal, high: Decimal) -> Sequence[int]:
    """Return how many log bins to try, the most first; none where the numbers are spread over equal bins.

    Most cells of skewed numbers would share the first of equal bins, or with numbers on both sides of 0 those beside 0.
    """
    width = (high - low) / _BINS
    if numbers.least >= 0:
        return _LOG_BINS if numbers.quantile(0.5) < low + width else ()
    quartiles = numbers.quantile(0.25), numbers.quantile(0.75)
    is_skewed = max(map(abs, quartiles)) < width / _QUARTILES
    if not is_skewed:
        return ()
    return _LOG_BINS_OF_TWO_SIDES if high > 0 else _LOG_BINS


def _smallest(numbers: DistinctNumbers, default: Decimal) -> dict[str, int | float]:
    """Return `smallest` for log bins: a power of ten that one in a hundred of the numbers but 0 is below.

    Nothing where that is no more than the `default`: most bins would have nobody in them where it is far more.
    """
    smallest = Decimal(10) ** numbers.sizes().quantile(_FEW_BELOW).adjusted()
    return {"smallest": plain(smallest)} if smallest > default else {}


def _first_valid(drafts: Sequence[dict[str, Any]], remarks: Sequence[str]) -> ColumnDraft | None:
    """Return the first draft of a number that the configuration allows; None where it allows none."""
    for facts in drafts:
        # A bin can be without a whole number, and numbers can lie closer than doubles tell apart.
        with suppress(ValidationError):
            NumberColumn.model_validate({"type": "number", **facts})
            return ColumnDraft("number", facts, "; ".join(remarks))
    return None


def rounded_outward(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """Return the multiples of the largest power of ten within half of the range that enclose it."""
    exponent = math.floor(((high - low) / 2).log10())
    step = Decimal(10) ** exponent
    return math.floor(low / step) * step, math.ceil(high / step) * step
