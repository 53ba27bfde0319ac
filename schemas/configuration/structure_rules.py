"""The rules that a structure has to keep with the columns it names; every one is a ValueError that names the key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from marginweave.schemas.configuration.columns import Column
from marginweave.schemas.configuration.structure import DeterminedColumn, GroupedColumns, Structure


def check_structure(structure: Structure, columns: Mapping[str, Column]) -> None:
    """Refuse a structure that does not fit the declared columns."""
    determined = _once((rule.column for rule in structure.determined), "determined")
    grouped = _once((name for group in structure.grouped for name in group.columns), "grouped")
    _once((group.name for group in structure.grouped), "grouped")
    for name in (*determined, *grouped, *(rule.by for rule in structure.determined), *_forbidden(structure)):
        if name not in columns:
            raise ValueError(f"structure names {name!r}, which is not among columns")
    for group in structure.grouped:
        _check_group(group, columns, determined)
    for rule in structure.determined:
        _check_determined(rule, columns, determined, grouped)
    for name in _forbidden(structure):
        if not columns[name].measured or name in determined or name in grouped or columns[name].buys_bounds:
            raise ValueError(
                f"structure.forbidden names {name!r}, which is not counted by itself: a group lists its own combinations, "
                "and columns that are dropped, determined or have private bounds cannot be forbidden anything"
            )


def _once(names: Iterable[str], key: str) -> tuple[str, ...]:
    given = tuple(names)
    for name in given:
        if given.count(name) > 1:
            raise ValueError(f"structure.{key} names {name!r} twice")
    return given


def _forbidden(structure: Structure) -> list[str]:
    return [name for combination in structure.forbidden for name in combination]


def _check_group(group: GroupedColumns, columns: Mapping[str, Column], determined: tuple[str, ...]) -> None:
    if group.name in columns:
        raise ValueError(f"structure.grouped has the name {group.name!r}, which is a column's; give the group its own")
    for name in group.columns:
        if name in determined or not columns[name].public_cells:
            raise ValueError(
                f"group {group.name!r} has column {name!r}; only measured columns with one public value a cell can be grouped"
            )
    if any(len(texts) != len(group.columns) for texts in group.combinations):
        raise ValueError(f"group {group.name!r} needs one value a column in every combination")
    if len(set(group.labels)) < len(group.labels):
        raise ValueError(f"group {group.name!r} names a combination twice")


def _check_determined(
    rule: DeterminedColumn, columns: Mapping[str, Column], determined: tuple[str, ...], grouped: tuple[str, ...]
) -> None:
    column, by = columns[rule.column], columns[rule.by]
    if rule.column in grouped or not column.public_cells:
        raise ValueError(
            f"structure.determined has {rule.column!r}, which must be a column with public values of its own"
        )
    if rule.by in determined or not by.can_determine:
        raise ValueError(
            f"structure.determined computes {rule.column!r} by {rule.by!r}, which must be a measured category, boolean or "
            "number of 0 decimals"
        )
    for text in (*rule.mapping.values(), *(() if rule.default is None else (rule.default,))):
        if not column.accepts(text.strip()):
            raise ValueError(
                f"structure.determined gives {rule.column!r} the value {text!r}, which it does not declare"
            )
    named: dict[Hashable, str] = {}
    for text in rule.mapping:
        key = by.value_key(text)
        if key is None:
            raise ValueError(f"structure.determined maps {text!r}, which is no value of {rule.by!r}")
        earlier = named.setdefault(key, text)
        if earlier is not text:
            raise ValueError(
                f"structure.determined maps {earlier!r} and {text!r}, which are one value of {rule.by!r}; keep one"
            )
