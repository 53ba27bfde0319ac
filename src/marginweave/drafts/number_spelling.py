"""Recognises numbers with a unit or a currency sign, and negative ones in brackets. Private, as the cells are. DP: none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from marginweave.configuration.number_texts import NumberForm, NumberText

FORMS = (
    NumberForm("dot"),
    NumberForm("dot", "comma"),
    NumberForm("comma"),
    NumberForm("comma", "dot"),
    NumberForm("dot", "space"),
    NumberForm("comma", "space"),
    NumberForm("dot", "apostrophe"),
    NumberForm("comma", "apostrophe"),
)
"""Marks of numbers, the most usual first."""
_MONEY = (
    r"[A-Z]{0,3}[€$£¥₹₽₩₺]|CHF|EUR|USD|GBP|JPY|INR|CAD|AUD|SEK|NOK|DKK|PLN|CZK|Rs\.?|kr\.?|Fr\.?|zł"
)
_UNIT = rf"{_MONEY}|[%‰]|[A-Za-zµμ°Ω][A-Za-zµμ°²³/%]{{0,11}}[23]?"
_SPACE = "[ \u00a0\u2009\u202f]?"
_DIGITS = r"(?:[.,]?[0-9][0-9.,'’ \u00a0\u2009\u202f]*?)"
_SIZE = re.compile(
    rf"\(?{_SPACE}[+-]?{_SPACE}(?P<before>{_MONEY})?{_SPACE}\(?[+-]?{_SPACE}{_DIGITS}\)?{_SPACE}(?P<behind>{_UNIT})?{_SPACE}\)?"
)
_THREE_DECIMALS = re.compile(r"[.][0-9]{3}(?![0-9])")
_CLOCK = frozenset({"am", "pm"})
"""Times of day, in lower case, have such a text behind them, too."""


def recognise_spelling(texts: Sequence[str], source: NumberForm) -> dict[str, Any]:
    """Return `number.text` of a column; nothing where its numbers are spelled as in the source, or not all in one form.

    All cells have one unit, or none has one and some are in brackets. One text without a digit may mean "no value". Of the
    forms that read all others it is the source's, if that is among them, and else the most usual. Money has no three
    decimals: of `€1.234` the dot stands between thousands, where another form reads all cells so.

    Args:
        texts: The distinct values of the column.
        source: How numbers of the source are spelled.
    """
    first = next((text for text in texts if re.search("[0-9]", text)), None)
    has_brackets = any("(" in text for text in texts)
    if first is None or (not has_brackets and source.plain(first) is not None):
        return {}  # its unit is none, and so not all have one
    sizes = [text for text in texts if re.search("[0-9]", text)]
    if len(texts) - len(sizes) > 1:
        return {}
    units = set[str]()
    for text in sizes:
        match = _SIZE.fullmatch(text)
        if match is None or (match["before"] and match["behind"]):
            return {}
        units.add(match["before"] or match["behind"] or "")
    brackets = sum("(" in text for text in sizes)
    unit = units.pop()
    if units or unit.casefold() in _CLOCK or not (unit or 0 < brackets < len(sizes)):
        return {}
    form = _marks(sizes, source, unit, has_brackets=brackets > 0)
    if form is None:
        return {}
    facts: dict[str, Any] = {"unit": unit} if unit else {}
    if brackets:
        facts["brackets"] = True
    if (form.decimal, form.thousands) != (source.decimal, source.thousands):
        facts["decimal"] = form.decimal
        if form.thousands:
            facts["thousands"] = form.thousands
    NumberText.model_validate(facts)
    return facts


def _marks(
    sizes: Sequence[str], source: NumberForm, unit: str, *, has_brackets: bool
) -> NumberForm | None:
    """Return the first form, the source's before others, that reads all texts; None where none does."""
    is_money = bool(re.fullmatch(_MONEY, unit))
    fitting = []
    for marks in (source, *FORMS):
        form = replace(marks, unit=unit, brackets=has_brackets)
        numbers = [form.plain(text) for text in sizes]
        plain_numbers = [number for number in numbers if number is not None]
        if len(plain_numbers) == len(sizes):
            has_thousandths = any(map(_THREE_DECIMALS.search, plain_numbers))
            fitting.append((is_money and has_thousandths, form))
    return min(fitting, key=lambda fit: fit[0])[1] if fitting else None
