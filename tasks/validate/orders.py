"""The order that people would write values in: by size, by the calendar, by a scale, or by the number they begin with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from marginweave.schemas.configuration.values import number

_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
SCALES = (
    *((name.split(), 3) for name in (_MONTHS, _DAYS)),
    *(
        (scale.split("|"), 0)
        for scale in (
            "very low|low|medium low|mid|middle|medium|moderate|average|medium high|high|very high",
            "none|mild|moderate|severe|critical",
            "extra small|very small|small|mid|middle|medium|large|very large|extra large",
            "never|almost never|rarely|seldom|occasionally|sometimes|often|usually|very often|almost always|always",
            "very poor|poor|bad|fair|average|good|very good|excellent",
            "strongly disagree|disagree|somewhat disagree|neutral|neither|somewhat agree|agree|strongly agree",
            "very unhappy|unhappy|pretty happy|happy|very happy",
            "very dissatisfied|dissatisfied|neutral|satisfied|very satisfied",
            "no school|none|primary|lower secondary|secondary|upper secondary|tertiary|bachelor|master|doctorate",
        )
    ),
)
"""Words from low to high, and by how many letters each may be cut short; 0 for none."""
_FIRST_NUMBER = re.compile(r"^\s*(?:[<>≤≥]=?|under|below|less than|over|above|up to)?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_BELOW = re.compile(r"^\s*(?:<|≤|under|below|less|up to)", re.IGNORECASE)


def in_order(texts: Sequence[str]) -> list[str]:
    """The texts in the order that people would write them in; of two spellings of one number the first."""
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
