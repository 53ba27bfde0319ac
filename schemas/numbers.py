"""Numeric fields of a configuration: one validator each, with a message that says the rule."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number")
    try:
        converted = float(value)
    except (ValueError, OverflowError):
        raise ValueError("must be a number") from None
    if not math.isfinite(converted):
        raise ValueError("must be finite")
    return converted


def _whole(value: Any) -> int:
    converted = _number(value)
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


def _open_fraction(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("must lie strictly between 0 and 1")
    return value


def _share(value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError("must lie in [0, 1)")
    return value


Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_whole)]
Positive = Annotated[float, BeforeValidator(_number), AfterValidator(_positive)]
PositiveWhole = Annotated[int, BeforeValidator(_whole), AfterValidator(_positive_whole)]
OpenFraction = Annotated[float, BeforeValidator(_number), AfterValidator(_open_fraction)]
Share = Annotated[float, BeforeValidator(_number), AfterValidator(_share)]

FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
