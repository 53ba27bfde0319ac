"""Numbers that stand for something else than a size, recognised: 999 among ages, -9 among counts.

DP: none. What is found is private, as are the cells: a suggestion for whoever drafts or checks a configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

_FORM = re.compile(r"-?(9+(\.9+)?|9+[5-8]|7+|8+)|-[1-9]")
_FAR = 4  # a quarter of the range of all others lies between them and a code


def special_codes(numbers: Mapping[Decimal, int], limits: tuple[Decimal, Decimal] | None = None) -> dict[Decimal, int]:
    """The numbers, with their cells, that have the form of a code and lie far outside `limits`, if any of them repeats.

    Without `limits` these are the least and the largest of the numbers that have no such form. A number below 0 is far from
    all where no other is.
    """
    formed = {value for value in numbers if _FORM.fullmatch(format(value.normalize(), "f"))}
    others = [value for value in numbers if value not in formed]
    low, high = limits or (min(others, default=Decimal(0)), max(others, default=Decimal(0)))
    far = (high - low) / _FAR
    found = {
        value: numbers[value]
        for value in formed
        if value - high >= far or (value < low and (low >= 0 or low - value >= far))
    }
    return dict(sorted(found.items())) if sum(found.values()) > len(found) else {}
