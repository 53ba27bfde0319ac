"""The order that people would write values in: by size, by the calendar, by a scale, or by the number they begin with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from marginweave.configuration.values import number
from marginweave.configuration.yaml_source import read_yaml

_TABLE = read_yaml(Path(__file__).with_name("scales.yaml"))
SCALES = (
    *((names.split(), 3) for names in _TABLE["calendar"]),
    (["mo", "di", "mi", "do", "fr", "sa", "so"], 2),
    *((scale.casefold().split("|"), 0) for scale in _TABLE["ordered"]),
)
"""Words from low to high, and by how many letters each may be cut short; 0 for none."""
_LAST = frozenset(_TABLE["last"].casefold().split("|"))
"""What is no place on a scale; it comes after all others."""
_FIRST_NUMBER = re.compile(
    r"^\s*(?:[<>≤≥]=?|under|below|less than|over|above|up to|unter|über|bis|ab)?\s*(\d+(?:\.\d+)?)", re.IGNORECASE
)
_BELOW = re.compile(r"^\s*(?:<|≤|under|below|less|up to|unter|bis)", re.IGNORECASE)


def in_order(texts: Sequence[str]) -> list[str]:
    """The texts in the order that people would write them in; of two spellings of one number the first."""
    last = sorted(text for text in texts if text.casefold() in _LAST)
    if last and len(last) < len(texts):
        return [*in_order([text for text in texts if text not in last]), *last]
    for scale, short in SCALES:
        places = [_place(text.casefold().replace("-", " "), scale, short) for text in texts]
        if all(place >= 0 for place in places) and len(set(places)) == len(texts) > 1:
            return [text for _, text in sorted(zip(places, texts, strict=True))]
    if len(texts) > 1 and not all(number(text) is not None for text in texts):
        starts = [_FIRST_NUMBER.match(text) for text in texts]
        if all(starts):
            keys = [
                (Decimal(start[1]), _BELOW.match(text) is None)
                for start, text in zip(starts, texts, strict=True)
                if start
            ]
            return [text for _, text in sorted(zip(keys, texts, strict=True))]
    return _by_size(texts)


def _place(text: str, scale: Sequence[str], short: int) -> int:
    found = (
        i for i, word in enumerate(scale) if text == word or (short and len(text) >= short and word.startswith(text))
    )
    return next(found, -1)


def _by_size(texts: Sequence[str]) -> list[str]:
    """Numbers by size and before texts."""
    seen: dict[Any, str] = {}
    for text in texts:
        value = number(text)
        seen.setdefault(text if value is None or re.match(r"[+-]?0[0-9]|\+", text) else value, text)
    return sorted(seen.values(), key=lambda text: (number(text) is None, number(text) or Decimal(0), text))
