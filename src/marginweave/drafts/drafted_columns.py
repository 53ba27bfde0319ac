"""Proposes what to declare about a column, by the facts of its cells. Private until somebody confirms it. DP: none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from marginweave.base.arrow import compute as pc
from marginweave.configuration.columns.base import RESERVED
from marginweave.configuration.number_texts import USUAL, NumberForm
from marginweave.configuration.values import number
from marginweave.drafts.column_draft import MOST_VALUES, ColumnDraft
from marginweave.drafts.drafted_dates import looks_like_dates, propose_date
from marginweave.drafts.drafted_numbers import propose_number
from marginweave.drafts.orders import in_order
from marginweave.drafts.private_costs import prefix_group
from marginweave.drafts.spellings import same_values
from marginweave.drafts.table_facts import CURRENCY, FORMATS, ColumnCells, mostly

_FREE_TEXT = 40  # texts longer than this on average are no values
_BOOLEANS = (
    frozenset(("true", "false")),
    frozenset(("yes", "no")),
    frozenset(("t", "f")),
    frozenset(("y", "n")),
)
_MOST_SPELLINGS = 20
_LOOKED_AT = 10_000
# where this share of the cells differs, no list of values has room for them, private or not
_ALMOST_ALL = 0.9
_DIFFERENT = "nearly every cell is different, as ids are; it is dropped"
_NO_VALUE = "no value was seen; it is dropped"
_SAME = "same names other spellings of a value: is each one?"
_MAY_BE_CODE = "NA is taken for no value; if it is a code as the others are, such as Namibia, move it to values"
_NA = "NA is taken for a code, as the others have two letters; if it means no value, move it to missing"
_FLOATS = "floats cannot have a private domain: to buy the values, write the column as integers or texts, and draft again"
_SEPARATORS = (";", "|", ",")
_IDENTIFIER = re.compile(
    r"(?i)(^|[^a-z])(u?id|uuid|guid|key|ssn|number|nr|no|name|e?mail|phone)([^a-z]|$)|[a-z](ID|Id)$"
)
# A UUID or an address of e-mail.
_IDENTIFIER_FORM = re.compile(
    r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^@\s]+@[^@\s]+\.[^@\s]+"
)
_DIGITS = r"[+-]?[0-9][0-9.,' \u00a0\u202f]*"
_SIZES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        CURRENCY,
        "cells have a currency sign: as numbers they are type: number, text: {unit: the sign}",
    ),
    (
        re.compile(rf"{_DIGITS}%"),
        "cells have a percent sign: as numbers they are type: number, text: {unit: '%'}",
    ),
    (
        re.compile(r"-?[0-9]{1,3}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?( ?[AaPp]\.?[Mm]\.?)?"),
        "cells are times of day or durations: write hours or minutes as numbers",
    ),
    (
        re.compile(r"P(?=[0-9T])([0-9]+[YMWD])*(T([0-9.]+[HMS])+)?|-?[0-9]+ days?( .*)?"),
        "cells are durations: write them as numbers of one unit",
    ),
    (
        re.compile(rf"{_DIGITS}[A-Za-zµ°][A-Za-zµ°²³/]{{0,5}}"),
        "cells have a unit: remove it from the table",
    ),
)
"""Forms of cells that are sizes and no numbers, and what to do about each."""
_ROW_NUMBER = "^(0|[1-9][0-9]{0,14})$"
_BRACKETS = re.compile(rf"\({_DIGITS}\)")
_IN_BRACKETS = "cells in brackets are negative numbers: write -123 for (123)"


def propose_column(column: ColumnCells, numbers: NumberForm = USUAL) -> ColumnDraft:
    """Return the draft for one column: its kind, and the facts that its cells show.

    Integers beyond 2^53, dates in several formats and texts among numbers make a category: nothing is bent to fit.

    Args:
        column: The facts of the column.
        numbers: The form in which the source writes numbers.
    """
    present = column.present
    if not present:
        return ColumnDraft("identifier", remark=_NO_VALUE)
    missing = {"missing": sorted(column.gaps)} if column.gaps else {}
    draft = _propose_kind(column, numbers, missing)
    if draft.is_private and column.are_floats:
        draft = ColumnDraft("category", {"values": in_order(present), **missing}, _FLOATS)
    if len(present) == 1 and not column.gaps:
        return ColumnDraft("constant", {"value": present[0]})
    return draft


def _propose_kind(
    column: ColumnCells, numbers: NumberForm, missing: Mapping[str, Any]
) -> ColumnDraft:
    """Return the draft of the first kind that fits; every column can be a category."""
    present = column.present
    return (
        _boolean(present, missing)
        or propose_date(column, missing)
        or _identifier(column)
        or propose_number(column, numbers, missing)
        or _set(present, missing)
        or _category(column, missing)
    )


def _boolean(present: Sequence[str], missing: Mapping[str, Any]) -> ColumnDraft | None:
    """Propose a boolean with the source's two texts, in which the synthetic CSV file is then written."""
    if len(present) > _MOST_SPELLINGS:
        return None
    texts = sorted(present, key=str.casefold)
    if frozenset(map(str.casefold, texts)) not in _BOOLEANS:
        return None
    if len(texts) > 2 or texts == ["false", "true"]:
        return ColumnDraft("boolean", {**missing})
    # False comes before true in all pairs.
    return ColumnDraft("boolean", {"true_values": texts[1:], "false_values": texts[:1], **missing})


def _identifier(column: ColumnCells) -> ColumnDraft | None:
    """Propose an identifier for numbers of rows, and where nearly every cell differs and the name or the form says so."""
    if _is_row_number(column):
        return ColumnDraft("identifier", remark="it numbers the rows; it is dropped")
    if not _nearly_all_differ(column):
        return None
    if _IDENTIFIER.search(column.name) or all(map(_IDENTIFIER_FORM.fullmatch, column.present)):
        return ColumnDraft("identifier", remark=_DIFFERENT)
    return None


def _is_row_number(column: ColumnCells) -> bool:
    """Return whether the cells are whole numbers without a gap, each once: from 0 or 1 on, or many of them."""
    texts, counts = column.values
    if column.gaps or len(texts) != int(counts.sum()):
        return False
    if not pc.all(pc.match_substring_regex(texts, _ROW_NUMBER)).as_py():
        return False
    numbers = pc.min_max(pc.cast(texts, pa.int64())).as_py()
    first = numbers["min"]
    are_consecutive = numbers["max"] - first == column.filled - 1
    return are_consecutive and (column.filled > MOST_VALUES or first <= 1)


def _nearly_all_differ(column: ColumnCells) -> bool:
    distinct = len(column.present)
    return distinct > MOST_VALUES and distinct >= _ALMOST_ALL * column.filled


def _set(present: Sequence[str], missing: Mapping[str, Any]) -> ColumnDraft | None:
    """Propose a set where cells hold several values: few distinct ones, each in several distinct cells."""
    if mostly(map(CURRENCY.fullmatch, present)):  # €1,50 would be split at its comma
        return None
    for separator in _SEPARATORS:
        values, most = _parts_of(present, separator)
        # A comma also occurs within names: it must save a long list to be taken for a separator.
        enough = MOST_VALUES if separator == "," else 2
        has_parts = most > 1 and len(values) < len(present)
        if has_parts and len(present) > enough and len(values) <= MOST_VALUES:
            facts = {
                "separator": separator,
                "values": in_order(sorted(values)),
                "max_values": most,
                **missing,
            }
            return ColumnDraft("set", facts)
    return None


def _parts_of(texts: Sequence[str], separator: str) -> tuple[set[str], int]:
    """Return the distinct parts of all texts and the most parts of one; no further than to more than `MOST_VALUES` parts.

    Names of cells without a value are left out of the distinct parts.
    """
    values: set[str] = set()
    most = 0
    for text in texts:
        parts = {part.strip() for part in text.split(separator)} - {""}
        most = max(most, len(parts))
        values |= parts - RESERVED
        if len(values) > MOST_VALUES:
            break
    return values, most


def _category(column: ColumnCells, missing: Mapping[str, Any]) -> ColumnDraft:
    """Propose a category, with a private domain where its values are many; free text, sizes and ids are dropped."""
    present = column.present
    are_long = sum(map(len, present)) > _FREE_TEXT * len(present)
    if are_long and any(" " in text for text in present):
        return ColumnDraft(
            "identifier",
            remark="free text: it is not released; group it before, or leave the line out",
        )
    size = _size(present)
    if size and len(present) > MOST_VALUES:
        return ColumnDraft("identifier", remark=f"{size}, and draft again; it is dropped")
    remark = f"{size}, and draft again" if size else _resemblance(present)
    if not remark and _nearly_all_differ(column):
        return ColumnDraft("identifier", remark=_DIFFERENT)
    if len(present) > 2 * MOST_VALUES:
        return _private(column, remark)
    values, same = same_values({text: column.cells[text] for text in present})
    if len(values) > MOST_VALUES:
        return _private(column, remark)
    facts = {"values": values, **({"same": same} if same else {}), **missing}
    na_remark = _NA if column.has_code_na else _MAY_BE_CODE if column.na_may_be_code else ""
    remarks = (remark, _SAME if same else "", na_remark)
    return ColumnDraft("category", facts, "; ".join(text for text in remarks if text))


def _private(column: ColumnCells, remark: str) -> ColumnDraft:
    """Propose a private domain; only that a cell can be empty is declared, which says nothing of the data."""
    facts: dict[str, Any] = {"domain": "private"}
    if "" in column.gaps:
        facts["missing"] = [""]
    _, value_cells = column.values
    return ColumnDraft(
        "category",
        facts,
        remark,
        value_cells=value_cells.tolist(),
        group=prefix_group(column.present),
    )


def _size(present: Sequence[str]) -> str:
    """Return what most of these texts are, if they are sizes and no numbers; nothing where they are not.

    Of many texts, some that are spread over all of them are looked at.
    """
    present = present[:: -(-len(present) // _LOOKED_AT)]
    for form, advice in _SIZES:
        if mostly(map(form.fullmatch, present)):
            return advice
    in_brackets = sum(map(bool, map(_BRACKETS.fullmatch, present)))
    numbers = sum(number(text.replace(",", "")) is not None for text in present)
    is_all = in_brackets and 2 * (in_brackets + numbers) > len(present)
    return _IN_BRACKETS if is_all and numbers else ""


def _resemblance(present: Sequence[str]) -> str:
    """Return what most of these texts look like, and what to do about it; nothing where they look like values."""
    for layout in (None, *FORMATS):
        if looks_like_dates(present, layout):
            form = f', format: "{layout}"' if layout else ""
            return f"most cells look like dates: {{type: date{form}}}, bounds and bins; which of the others mean no value?"
    if len(present) <= MOST_VALUES:
        return ""
    looked_at = present[:: -(-len(present) // _LOOKED_AT)]
    numbers = sum(number(text) is not None for text in looked_at)
    return "numbers and texts are mixed" if 0 < numbers < len(looked_at) else ""
