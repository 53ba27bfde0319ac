"""Numbers of a configuration, declared values, and the rule by which a text of the table equals one of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from marginweave.base.errors import MustError, UnconfirmedError

NUMBER_PATTERN = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_NUMBER = re.compile(NUMBER_PATTERN)
_CANONICAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")
_NAME_RULE = "be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or a digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(text: str) -> str:
    """Return a name of a dataset or a run if it can be part of a path; raises ValueError."""
    if not _NAME.fullmatch(text):
        raise MustError(_NAME_RULE)
    return text


def number(text: str) -> Decimal | None:
    """Return the exact number that `text` spells (9, +9, 9.0, 09, 9e0), or None; NaN and infinity are no numbers."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


_LARGEST_EXPONENT = 307


def declared_number(text: str) -> Decimal | None:
    """Return the number that a *declared* text means, or None: codes such as 01 or +1 are texts, not numbers.

    So are numbers that no double is near to, such as 1e999.
    """
    if not _CANONICAL.fullmatch(text):
        return None
    declared = Decimal(text)
    return declared if abs(declared.adjusted()) <= _LARGEST_EXPONENT else None


class ValueMatcher:
    """Declared values, among which `index` finds the one that a text equals.

    A declared number equals every spelling of it (9, 9.0, "9"); every other declared value equals the same text once
    both are trimmed. An equal text is preferred to an equal number, so that the codes 01 and 1 can both be declared.
    """

    def __init__(self, declared: Sequence[str]) -> None:
        self._texts: dict[str, int] = {}
        self._numbers: dict[Decimal, int] = {}
        for index, text in enumerate(declared):
            self._texts.setdefault(text.strip(), index)
            value = declared_number(text.strip())
            if value is not None:
                self._numbers.setdefault(value, index)

    def index(self, text: str) -> int:
        """Return the position of the declared value that `text` equals, or -1."""
        trimmed = text.strip()
        place = self._texts.get(trimmed, -1)
        if place < 0 and self._numbers:
            value = number(trimmed)
            place = -1 if value is None else self._numbers.get(value, -1)
        return place


def value_key(text: str) -> Hashable:
    """Return a key that is equal for two declared texts if they are the same value."""
    trimmed = text.strip()
    value = declared_number(trimmed)
    return trimmed if value is None else value


def first_duplicate(declared: Iterable[str]) -> tuple[str, str] | None:
    """Return the first pair of declared texts that are the same value, or None."""
    seen: dict[Hashable, str] = {}
    for text in declared:
        key = value_key(text)
        if key in seen:
            return seen[key], text
        seen[key] = text
    return None


def to_number(value: Any) -> float:
    """Return a finite number, never a negative zero, from a number or a text that spells one.

    Raises ValueError for anything else, such as true and false.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise MustError("be a number")
    try:
        converted = float(value)
    except (ValueError, OverflowError):
        comma = isinstance(value, str) and "," in value
        raise MustError("be a number" + (", with a point for decimals" if comma else "")) from None
    if not math.isfinite(converted):
        raise MustError("be finite")
    return converted + 0.0  # a negative zero is 0


def to_whole(value: Any) -> int:
    """Return a whole number, from a number or a text that spells one; raises ValueError."""
    converted = to_number(value)
    if not converted.is_integer():
        raise MustError("be a whole number")
    return int(converted)


def or_none(
    convert: Callable[[Any], float], fits: Callable[[float], bool], rule: str
) -> BeforeValidator:
    """Return a validator of a key that is `none` or a number that `fits`; the refusal says that it must `rule`."""

    def check(value: Any) -> float | str:
        if value is None or value == "none":
            return "none"
        converted = convert(value)
        if not fits(converted):
            raise MustError(f"{rule}")
        return converted

    return BeforeValidator(check)


Number = Annotated[float, BeforeValidator(to_number)]
Whole = Annotated[int, BeforeValidator(to_whole)]
Positive = Annotated[Number, Field(gt=0)]
PositiveWhole = Annotated[Whole, Field(ge=1)]


def _printed(text: str) -> str:
    if not text.isprintable():
        raise MustError("be one line of printed characters")
    return text


Words = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_printed)
]
"""A name or a description for people, on one line."""
Delta = Annotated[Number, Field(ge=0, lt=1)]
OpenFraction = Annotated[Number, Field(gt=0, lt=1)]

# Most cells in memory of one table of counts, and of all marginals of a draw.
MAX_CELLS = 1 << 26


# Most cells of one set of columns of k-tuples as a table; of larger sets, the shorter sets inside them are used.
MAX_TABLE = 1 << 18


# Most combinations of one set of columns, which are numbered in 63 bits.
MAX_KEY = (1 << 63) - 1


FROZEN = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class FrozenModel(BaseModel):
    """A section of a configuration, or a part of a section: it refuses unknown keys, and is immutable."""

    model_config = FROZEN


class PaperPreset(FrozenModel):
    """A section in which `preset: paper` sets the constants of PrivSyn for all keys that are not written."""

    paper: ClassVar[dict[str, Any]]
    preset: Literal["default", "paper"] = "default"

    @model_validator(mode="before")
    @classmethod
    def _constants(cls, data: Any) -> Any:
        return (
            {**cls.paper, **data}
            if isinstance(data, dict) and data.get("preset") == "paper"
            else data
        )


def listed(values: Sequence[str], most: int = 12) -> str:
    """Return the values as a list for readers: all of them, or the first `most` and their number."""
    text = ", ".join(values[:most])
    return f"{text}, … ({len(values):,} in all)" if len(values) > most else text


def _answered(value: bool | None) -> bool | None:
    if value is False:
        raise MustError(
            "not be false, which answers nothing; write what is asked for, and delete confirm"
        )
    return value


Confirm = Annotated[bool | None, AfterValidator(_answered)]
"""`confirm: true` marks a part that `marginweave init` drafted from the data, until the user answers and deletes it."""


def confirmed(value: Any) -> Any:
    """Return a number that the user wrote; raises ValueError for a number that `marginweave init` drafted from the data."""
    if isinstance(value, dict) and set(value) <= {"about", "confirm"}:
        raise UnconfirmedError(
            "was drafted from the data and waits for confirmation: delete the line unless the size is published, else "
            f"write the number alone, such as {value.get('about')}"
        )
    return value
