"""How a source writes its numbers: the mark before decimals, and between thousands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

MARKS = {
    "dot": ".",
    "comma": ",",
    "space": " \u00a0\u2009\u202f",  # and the spaces that do not break, which programs write
    "apostrophe": "'\u2019",
}
DecimalMark = Literal["dot", "comma"]
Thousands = Literal["dot", "comma", "space", "apostrophe"]


@dataclass(frozen=True)
class NumberForm:
    """The spelling of numbers: `1.234.567,89` has the decimal mark `comma` and `dot` between thousands.

    Marks between thousands may be left out, but where one stands all do: three digits follow each. A number never begins
    with a zero before such a mark.
    """

    decimal: DecimalMark = "dot"
    thousands: Thousands | None = None

    @property
    def is_usual(self) -> bool:
        """Whether it is the form in which configurations and programs write numbers."""
        return self == USUAL

    @cached_property
    def pattern(self) -> str:
        """A number in this form, for Python's expressions and RE2's alike."""
        mark = re.escape(MARKS[self.decimal])
        grouped = f"|[1-9][0-9]{{0,2}}(?:[{MARKS[self.thousands]}][0-9]{{3}})+" if self.thousands else ""
        return f"[+-]?(?:(?:[0-9]+{grouped})(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]{{1,4}})?"

    def plain(self, text: str) -> str | None:
        """The trimmed text as configurations write the number that it spells in this form; None where it spells none."""
        trimmed = text.strip()
        if not re.fullmatch(self.pattern, trimmed):
            return None
        bare = re.sub(f"[{MARKS[self.thousands]}]", "", trimmed) if self.thousands else trimmed
        return bare.replace(MARKS[self.decimal], ".")

    def spelled(self, text: str) -> str:
        """The number in this form that configurations write so."""
        whole, dot, decimals = text.partition(".")
        if self.thousands:
            whole = re.sub(r"(?<=\d)(?=(\d{3})+$)", MARKS[self.thousands][0], whole)
        return whole + (dot and MARKS[self.decimal]) + decimals


USUAL = NumberForm()
