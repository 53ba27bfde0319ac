"""Spelling of the numbers of a source: the mark before decimals, and the mark between thousands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

MARKS = {
    "dot": ".",
    "comma": ",",
    "space": " \u00a0\u2009\u202f",  # also the spaces that do not break, which programs write
    "apostrophe": "'\u2019",
}
DecimalMark = Literal["dot", "comma"]
Thousands = Literal["dot", "comma", "space", "apostrophe"]


@dataclass(frozen=True)
class NumberForm:
    """The spelling of numbers: `1.234.567,89` has the decimal mark `comma` and `dot` between thousands.

    A number has all marks between thousands or none: three digits follow each mark. A number never begins with a zero before
    such a mark.
    """

    decimal: DecimalMark = "dot"
    thousands: Thousands | None = None

    @property
    def is_usual(self) -> bool:
        """Return whether it is the form in which configurations and programs write numbers."""
        return self == USUAL

    @cached_property
    def pattern(self) -> str:
        """Regular expression of a number in this form, for Python and for RE2."""
        mark = re.escape(MARKS[self.decimal])
        digits = "[0-9]+"
        if self.thousands:
            digits += f"|[1-9][0-9]{{0,2}}(?:[{MARKS[self.thousands]}][0-9]{{3}})+"
        return f"[+-]?(?:(?:{digits})(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]{{1,4}})?"

    def plain(self, text: str) -> str | None:
        """Return the number that a text spells in this form, as configurations write it; None for any other text."""
        number = text.strip()
        if not re.fullmatch(self.pattern, number):
            return None
        if self.thousands:
            number = re.sub(f"[{MARKS[self.thousands]}]", "", number)
        return number.replace(MARKS[self.decimal], ".")

    def spelled(self, text: str) -> str:
        """Return a number, which `text` has as configurations write it, in this form."""
        integer, dot, decimals = text.partition(".")
        if self.thousands:
            integer = re.sub(r"(?<=\d)(?=(\d{3})+$)", MARKS[self.thousands][0], integer)
        mark = MARKS[self.decimal] if dot else ""
        return integer + mark + decimals


USUAL = NumberForm()
