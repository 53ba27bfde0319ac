"""Spells the texts of number columns as configurations do, whatever the source's form of numbers is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import is_text
from marginweave.configuration.number_texts import MARKS, NumberForm
from marginweave.configuration.values import NUMBER_PATTERN


@dataclass(frozen=True)
class NumberTexts:
    """How the texts of a column spell numbers, and which of them mean "no value"."""

    form: NumberForm
    missing: Sequence[str] = ()


def plain_numbers(table: pa.Table, columns: Mapping[str, NumberTexts]) -> pa.Table:
    """Return the table with the texts of `columns` spelled with a decimal point, nothing between thousands, and no unit.

    A text that is no number in its column's form and would be read as one is put in quotes, so that it is none; one that means
    "no value" stays as it is. DP: 1-stable preprocessing, a function of one cell and public constants.
    """
    for place, name in enumerate(table.column_names):
        if name in columns and is_text(table.schema.field(name).type):
            cells = table.column(name)
            chunks = [_spelled(chunk, columns[name]) for chunk in cells.chunks]
            table = table.set_column(place, name, pa.chunked_array(chunks, cells.type))
    return table


def _spelled(cells: pa.Array, written: NumberTexts) -> pa.Array:
    """Return texts as `plain_numbers` says."""
    if pa.types.is_dictionary(cells.type):
        dictionary = _spelled(cells.dictionary, written)
        return pa.DictionaryArray.from_arrays(cells.indices, dictionary)
    texts = pc.utf8_trim_whitespace(cells)
    form = written.form
    bare = texts
    for pattern, reading in form.readings:
        whole_text = f"^(?:{pattern})$"
        read = pc.replace_substring_regex(texts, whole_text, reading)
        bare = pc.if_else(pc.match_substring_regex(texts, whole_text), read, bare)
    if form.thousands:
        thousands_marks = f"[{MARKS[form.thousands]}]"
        bare = pc.replace_substring_regex(bare, thousands_marks, "")
    decimal_mark = MARKS[form.decimal]
    bare = pc.replace_substring(bare, decimal_mark, ".")
    quoted = pc.binary_join_element_wise("'", texts, "'", "")
    trimmed = [text.strip() for text in written.missing]
    missing_texts = pa.array(trimmed, pa.string())
    are_missing = pc.is_in(texts, value_set=missing_texts)
    would_be_numbers = pc.match_substring_regex(texts, f"^(?:{NUMBER_PATTERN})$")
    are_numbers = pc.match_substring_regex(texts, f"^(?:{form.pattern})$")
    unread = pc.if_else(would_be_numbers, quoted, cells)
    spelled = pc.if_else(are_numbers, bare, unread)
    return pc.if_else(are_missing, cells, spelled)
