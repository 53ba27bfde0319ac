"""Spelling of the numbers of a source: the mark before decimals and between thousands, a unit, and brackets for negatives."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from marginweave.base.errors import MustError
from marginweave.configuration.values import FrozenModel

MARKS = {
    "dot": ".",
    "comma": ",",
    "space": " \u00a0\u2009\u202f",  # also the spaces that do not break, which programs write
    "apostrophe": "'\u2019",
}
_SPACE = f"[{MARKS['space']}]?"
DecimalMark = Literal["dot", "comma"]
Thousands = Literal["dot", "comma", "space", "apostrophe"]


_AS_IT_IS = r"\1"
"""What a pattern leaves where its first group is the number."""


@dataclass(frozen=True)
class NumberForm:
    """The spelling of numbers: `1.234.567,89` has the decimal mark `comma` and `dot` between thousands.

    A number has all marks between thousands or none: three digits follow each mark. A number never begins with a zero before
    such a mark.

    With a `unit`, such as `kg` or `$`, every number has it behind or before the digits, after at most one space: `70 kg`, `$5`,
    `-$5`. With `brackets`, a number in brackets is negative: `(123)`, `($1,234.50)`.
    """

    decimal: DecimalMark = "dot"
    thousands: Thousands | None = None
    unit: str = ""
    brackets: bool = False

    @property
    def is_usual(self) -> bool:
        """Return whether it is the form in which configurations and programs write numbers."""
        return self == USUAL

    @cached_property
    def pattern(self) -> str:
        """Regular expression of a number in this form, for Python and for RE2."""
        return "|".join(pattern for pattern, _ in self.readings)

    @cached_property
    def readings(self) -> tuple[tuple[str, str], ...]:
        """Regular expressions of a number, of which a text matches one at most, and what each leaves: sign, digits and marks.

        For Python and for RE2.
        """
        digits_first, mark_first = self._unsigned
        number = f"(?:{digits_first}|{mark_first})"
        if not self.unit:
            signed = (f"([+-]?{number})", _AS_IT_IS)
            in_brackets = (rf"\({_SPACE}({number}){_SPACE}\)", r"-\1")
            return (signed, in_brackets) if self.brackets else (signed,)
        unit = re.escape(self.unit)
        readings = [(rf"([+-]?{number}){_SPACE}{unit}", _AS_IT_IS)]
        bracketed = [
            rf"\({_SPACE}({number}){_SPACE}{unit}{_SPACE}\)",
            rf"\(({number})\){_SPACE}{unit}",
        ]
        if not self.unit[-1].isdigit():
            # Rs.500 is no half of a rupee
            behind = number if unicodedata.category(self.unit[-1]) == "Sc" else digits_first
            readings.append((rf"{unit}{_SPACE}([+-]?{behind})", _AS_IT_IS))
            readings.append((rf"([+-]){_SPACE}{unit}{_SPACE}({behind})", r"\1\2"))
            bracketed += [
                rf"\({_SPACE}{unit}{_SPACE}({behind}){_SPACE}\)",
                rf"{unit}{_SPACE}\(({behind})\)",
            ]
        if self.brackets:
            readings += [(pattern, r"-\1") for pattern in bracketed]
        return tuple(readings)

    @property
    def _unsigned(self) -> tuple[str, str]:
        """Regular expressions of a number without a sign: one that begins with a digit, and one with the decimal mark."""
        mark = re.escape(MARKS[self.decimal])
        digits = "[0-9]+"
        if self.thousands:
            digits += f"|[1-9][0-9]{{0,2}}(?:[{MARKS[self.thousands]}][0-9]{{3}})+"
        exponent = "(?:[eE][+-]?[0-9]{1,4})?"
        return f"(?:{digits})(?:{mark}[0-9]*)?{exponent}", f"{mark}[0-9]+{exponent}"

    @cached_property
    def _compiled(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        return tuple((re.compile(pattern), reading) for pattern, reading in self.readings)

    def plain(self, text: str) -> str | None:
        """Return the number that a text spells in this form, as configurations write it; None for any other text."""
        for pattern, reading in self._compiled:
            match = pattern.fullmatch(text.strip())
            if match:
                number = match[1] if reading == _AS_IT_IS else match.expand(reading)
                if self.thousands:
                    number = re.sub(f"[{MARKS[self.thousands]}]", "", number)
                return number.replace(MARKS[self.decimal], ".")
        return None

    def spelled(self, text: str) -> str:
        """Return a number, which `text` has as configurations write it, with the marks of this form and without a unit."""
        integer, dot, decimals = text.partition(".")
        if self.thousands:
            integer = re.sub(r"(?<=\d)(?=(\d{3})+$)", MARKS[self.thousands][0], integer)
        mark = MARKS[self.decimal] if dot else ""
        return integer + mark + decimals


USUAL = NumberForm()
_LONGEST_UNIT = 20
_NO_UNIT = re.compile(r"[0-9+.,'\u2019\s-]|[eE][+-]?[0-9]")


def _unit(text: str) -> str:
    """Return a unit, trimmed; raises ValueError where it could be taken for a part of the number."""
    unit = text.strip()
    are_printable = unit.isprintable() and not re.search("[()]", unit)
    if not unit or len(unit) > _LONGEST_UNIT or not are_printable or _NO_UNIT.match(unit):
        raise MustError(
            f"be the text beside every number, such as kg or $, in at most {_LONGEST_UNIT} characters: "
            "it begins with no digit, mark or sign of a number, and has no brackets"
        )
    return unit


class NumberText(FrozenModel):
    """How the cells of one column spell numbers, where that is not the form of the source.

    `unit` is the unit or currency sign beside every number, `brackets: true` says that a number in brackets is negative. With
    `decimal` or `thousands` the marks are these, and otherwise those of the source.
    """

    unit: Annotated[str, AfterValidator(_unit)] | None = None
    brackets: bool = False
    decimal: DecimalMark | None = None
    thousands: Thousands | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self == NumberText.model_construct():
            raise ValueError("has nothing; declare unit, brackets, decimal or thousands")
        if (self.decimal or "dot") == self.thousands:
            raise ValueError(
                f"has the {self.thousands} before decimals and between thousands; declare another decimal or thousands"
            )
        return self

    def form(self, source: NumberForm) -> NumberForm:
        """Return the spelling of the column's numbers in a source whose numbers are spelled as `source`."""
        marks = source
        if self.decimal or self.thousands:
            marks = NumberForm(self.decimal or "dot", self.thousands)
        return replace(marks, unit=self.unit or "", brackets=self.brackets)
