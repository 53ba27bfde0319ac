"""Recognises numbers that are codes and no sizes: 999 among ages, -9 among counts.

DP: none. The codes are private, as are the cells: a suggestion for the person who drafts or checks a configuration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from marginweave.drafts.distinct_numbers import DistinctNumbers

_FORM = re.compile(r"-?(9+(\.9+)?|9+[5-8]|7+|8+)|-[1-9]")
_FAR = 4  # between a code and the sizes lies at least a quarter of their range


def special_codes(
    numbers: DistinctNumbers, limits: tuple[Decimal, Decimal] | None = None
) -> dict[Decimal, int]:
    """Return the numbers, with their cells, that have the form of a code and lie far outside `limits`, if any repeats.

    Without `limits` these are the least and the largest of the numbers that have no such form. A number below 0 is far from
    all where no other is.
    """
    places = range(len(numbers))
    low, high = limits or (_first_size(numbers, places), _first_size(numbers, places[::-1]))
    far = (high - low) / _FAR
    codes: dict[Decimal, int] = {}
    end = numbers.up_to(low)
    for place in (*places[:end], *places[max(end, numbers.below(high)) :]):
        value = numbers[place]
        is_above = value - high >= far
        is_below = value < low and (low >= 0 or low - value >= far)
        if _is_coded(value) and (is_above or is_below):
            codes[value] = int(numbers.cells[place])
    has_repeats = sum(codes.values()) > len(codes)
    return codes if has_repeats else {}


def _first_size(numbers: DistinctNumbers, places: Sequence[int]) -> Decimal:
    """Return the first number that has no form of a code; 0 where there is none. Of many numbers few are spelled out."""
    values = (numbers[place] for place in places)
    return next((value for value in values if not _is_coded(value)), Decimal(0))


def _is_coded(value: Decimal) -> bool:
    return _FORM.fullmatch(format(value.normalize(), "f")) is not None
