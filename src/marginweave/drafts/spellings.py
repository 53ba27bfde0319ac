"""Finds texts that spell one value in several ways: f, F and Female. DP: none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from marginweave.configuration.values import number
from marginweave.drafts.orders import in_order

_WORDS = {
    "f": ("female", "frau", "femenino", "feminin", "féminin", "femme"),
    "m": ("male", "mann", "männlich", "maschio", "masculino", "masculin", "homme"),
    "w": ("weiblich", "woman"),
    "y": ("yes",),
    "n": ("no", "nein", "non"),
    "j": ("ja",),
    "t": ("true",),
    "u": ("unknown", "unbekannt"),
}
"""Letters that people write in place of a word."""


def same_values(cells: Mapping[str, int]) -> tuple[list[str], dict[str, str]]:
    """Return the values in their order, each in its usual spelling, and for every other spelling its value.

    The usual spelling is that of the form, such as one small letter, in which the most cells of all values are.
    Texts are one value if they differ in case or in spaces alone, or if one is the letter by which people abbreviate the
    other. Numbers are no spellings of each other. DP: none.
    """
    spellings: dict[str, list[str]] = {}
    for text in cells:
        folded = text if number(text) is not None else " ".join(text.casefold().split())
        spellings.setdefault(folded, []).append(text)
    for letter, words in _WORDS.items():
        written = [word for word in words if word in spellings]
        if letter in spellings and len(written) == 1:
            spellings[letter] += spellings.pop(written[0])
    cells_of_form: Counter[tuple[bool, ...]] = Counter()
    for texts in spellings.values():
        for text in texts:
            cells_of_form[_form(text)] += cells[text]
    values: list[str] = []
    same: dict[str, str] = {}
    for texts in spellings.values():
        value = max(sorted(texts), key=lambda text: (cells_of_form[_form(text)], cells[text]))
        values.append(value)
        same |= {text: value for text in texts if text != value}
    return in_order(values), same


def _form(text: str) -> tuple[bool, ...]:
    """Return whether a text is a letter, lower or upper case, or a title."""
    return len(text) == 1, text.islower(), text.isupper(), text.istitle()
