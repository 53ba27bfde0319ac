"""Numeric fields of a configuration: one validator each, with a message that says the rule."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict


def to_number(value: Any) -> float:
    """A finite number; a text that spells one will do, true and false will not."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number")
    try:
        converted = float(value)
    except (ValueError, OverflowError):
        raise ValueError("must be a number") from None
    if not math.isfinite(converted):
        raise ValueError("must be finite")
    return converted


def to_whole(value: Any) -> int:
    """A finite number without decimals."""
    converted = to_number(value)
    if not converted.is_integer():
        raise ValueError("must be a whole number")
    return int(converted)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be positive")
    return value


def _positive_whole(value: int) -> int:
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def _delta(value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError("must be at least 0 and below 1")
    return value


def _open_fraction(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("must lie strictly between 0 and 1")
    return value


Number = Annotated[float, BeforeValidator(to_number)]
Whole = Annotated[int, BeforeValidator(to_whole)]
Positive = Annotated[float, BeforeValidator(to_number), AfterValidator(_positive)]
PositiveWhole = Annotated[int, BeforeValidator(to_whole), AfterValidator(_positive_whole)]
Delta = Annotated[float, BeforeValidator(to_number), AfterValidator(_delta)]
OpenFraction = Annotated[float, BeforeValidator(to_number), AfterValidator(_open_fraction)]

# Cells of one table of counts, and of all marginals of a draw together, that are held in memory.
MAX_CELLS = 1 << 26

# Cells of one set of columns of k-tuples as a table; larger ones are left to the shorter sets inside them.
MAX_TABLE = 1 << 18

# Combinations of one set of columns, which are numbered in 63 bits.
MAX_KEY = (1 << 63) - 1

FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
