"""Cells without a value where nothing is declared missing: they become draws of a public distribution, by imputation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marginweave.configuration.columns import Column, MeasuredColumn
from marginweave.configuration.sections import Sections

_DRAW = {"distribution": "uniform"}
_INSTEAD = 'declare missing: [""] (or other texts), or leave outside out, and such a cell is replaced by a draw'


def with_draws(raw: Mapping[str, Any], declared: Sections) -> dict[str, Any]:
    """What was written, `declared`, with a uniform imputation of each column and group that is not said to be missing.

    Left as they are: sets, whose cell without a value is a value; private domains, which have a level for what is not
    released; records that are joined from rows which can disagree.
    DP: a function of public facts alone.

    Raises:
        ValueError: `outside: null` where nothing can be missing.
    """
    changed = {**raw, "columns": dict(raw["columns"])}
    if declared.privacy.subject is not None and declared.privacy.subject.join:
        return changed
    structure = declared.structure
    for name, column in declared.columns.items():
        if structure is not None and (structure.group_of(name) or structure.rule_of(name)):
            continue  # the value comes from the group, or from another column
        if _is_drawn(declared, name, column):
            changed["columns"][name] = {**raw["columns"][name], "impute": _DRAW}
    if structure is not None and structure.grouped:
        groups = [
            {**written, "impute": _DRAW} if _group_is_drawn(declared, place) else written
            for place, written in enumerate(raw["structure"]["grouped"])
        ]
        changed["structure"] = {**raw["structure"], "grouped": groups}
    return changed


def _is_drawn(declared: Sections, name: str, column: Column) -> bool:
    if not isinstance(column, MeasuredColumn) or column.is_set or column.private or column.impute is not None:
        return False
    if declared.missing_texts(name) or column.outside != "null":
        return False
    difference = declared.structure.difference_of(name) if declared.structure else None
    if difference is not None and any(map(declared.missing_texts, (difference.of, difference.since))):
        return False  # as missing as what it is between
    if "outside" in column.model_fields_set:
        raise ValueError(f"columns.{name} has outside: null, but nothing is declared missing there: {_INSTEAD}")
    return True


def _group_is_drawn(declared: Sections, place: int) -> bool:
    assert declared.structure is not None
    group = declared.structure.grouped[place]
    known = [name for name in group.columns if name in declared.columns]  # others are refused elsewhere
    if group.impute is not None or group.outside != "null" or all(map(declared.missing_texts, known)):
        return False
    if "outside" in group.model_fields_set:
        sure = next(name for name in known if not declared.missing_texts(name))
        raise ValueError(
            f"group {group.name!r} has outside: null, but nothing is declared missing in {sure!r}: {_INSTEAD}"
        )
    return True
