"""Puts values in the order that people write them in: by size, by the calendar, by a scale, or by their first number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from marginweave.configuration.values import number
from marginweave.configuration.yaml_source import read_yaml

_TABLE = read_yaml(Path(__file__).with_name("scales.yaml"))
_CALENDARS = [names.split() for names in _TABLE["calendar"]]
_GERMAN_DAYS = ["mo", "di", "mi", "do", "fr", "sa", "so"]
_WORDS = [scale.casefold().split("|") for scale in _TABLE["ordered"]]
SCALES = (
    *((names, 3) for names in _CALENDARS),
    (_GERMAN_DAYS, 2),
    *((words, 0) for words in _WORDS),
)
"""Words from low to high, and the least number of letters that an abbreviation has; 0 where there is none."""
_LAST = frozenset(_TABLE["last"].casefold().split("|"))
"""Texts that have no place on a scale, such as "unknown"; they come after all others."""
_FIRST_NUMBER = re.compile(
    r"^\s*(?:[<>≤≥]=?|under|below|less than|over|above|up to|unter|über|bis|ab)?\s*(\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_BELOW = re.compile(r"^\s*(?:<|≤|under|below|less|up to|unter|bis)", re.IGNORECASE)


def in_order(texts: Sequence[str]) -> list[str]:
    """Return the texts in the order that people write them in; of two spellings of one number the first."""
    last = sorted(text for text in texts if text.casefold() in _LAST)
    if last and len(last) < len(texts):
        placed = [text for text in texts if text not in last]
        return [*in_order(placed), *last]
    if len(texts) > 1:
        ordered = _by_scale(texts) or _by_first_number(texts)
        if ordered:
            return ordered
    return _by_size(texts)


def _by_scale(texts: Sequence[str]) -> list[str] | None:
    """Return the texts in the order of the first scale that has a different place for each; None where none has."""
    for scale, shortest in SCALES:
        places = [_place(text.casefold().replace("-", " "), scale, shortest) for text in texts]
        if min(places) >= 0 and len(set(places)) == len(texts):
            return [text for _, text in sorted(zip(places, texts, strict=True))]
    return None


def _place(text: str, scale: Sequence[str], shortest: int) -> int:
    """Return the place of a text, or of the word that it abbreviates, on a scale; -1 where it has none."""
    is_long_enough = 0 < shortest <= len(text)
    for place, word in enumerate(scale):
        if text == word or (is_long_enough and word.startswith(text)):
            return place
    return -1


def _by_first_number(texts: Sequence[str]) -> list[str] | None:
    """Return the texts by the number that each begins with, "below 10" before "10".

    None where all are numbers, or one begins with none.
    """
    if all(number(text) is not None for text in texts):
        return None
    keyed: list[tuple[Decimal, bool, str]] = []
    for text in texts:
        start = _FIRST_NUMBER.match(text)
        if start is None:
            return None
        keyed.append((Decimal(start[1]), _BELOW.match(text) is None, text))
    return [text for _, _, text in sorted(keyed)]


def _by_size(texts: Sequence[str]) -> list[str]:
    """Return numbers by size, before texts; a number with a leading zero or a plus sign is a text with a size."""
    spellings: dict[Any, str] = {}
    for text in texts:
        value = number(text)
        is_spelled_apart = value is None or re.match(r"[+-]?0[0-9]|\+", text)
        spellings.setdefault(text if is_spelled_apart else value, text)
    return sorted(spellings.values(), key=_size_key)


def _size_key(text: str) -> tuple[bool, Decimal, str]:
    value = number(text)
    return value is None, value or Decimal(0), text
