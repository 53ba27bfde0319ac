"""What is counted: the attributes into which columns and groups are encoded, and what can never stand together in them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from marginweave.schemas.configuration.columns import Column, MeasuredColumn
from marginweave.schemas.configuration.structure import GroupedColumns, Structure
from marginweave.schemas.configuration.values import ValueMatcher

MAX_FORBIDDEN = 100_000

Forbidden: TypeAlias = tuple[tuple[int, str], ...]
"""One combination that cannot be, as (attribute, label) in increasing order of the attribute."""


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One counted attribute: a measured column, or a group of columns that is released as one.

    `columns` are the source columns, in the order of the group; `labels` the public values, empty for a private domain
    (`private`); `optional` whether a record can lack a value; `width` the most values that one record has, above 1 for sets
    alone (`is_set`). `of_set`: one value of a set, counted by itself as `column=value`, which a record has or lacks.
    """

    name: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    private: bool = False
    optional: bool = True
    width: int = 1
    is_set: bool = False
    of_set: bool = False


def most_combinations(widths: Iterable[int], length: int) -> int:
    """How many combinations of `length` a record can hold that has at most so many values of each attribute.

    At most one value an attribute stands in a combination, so it is the elementary symmetric polynomial
    e_k(v_1, …, v_m) of the widths: e_k of the first j is e_k of the first j - 1 plus v_j times their e_{k-1}. Where no
    width is above 1, it is C(m, k).
    """
    counts = [1] + [0] * length
    for width in widths:
        for k in range(length, 0, -1):
            counts[k] += width * counts[k - 1]
    return counts[length]


def column_attribute(name: str, column: MeasuredColumn, optional: bool) -> Attribute:
    """The attribute of a measured column, whose value a record can lack if `optional`."""
    return Attribute(
        name=name,
        columns=(name,),
        labels=column.labels,
        private=column.private,
        optional=optional,
        width=column.width,
        is_set=column.is_set,
    )


def value_attributes(attribute: Attribute) -> tuple[Attribute, ...]:
    """The values of a set, an attribute each: its one value says that a record has it, a missing value that it lacks it."""
    return tuple(
        Attribute(name=f"{attribute.name}={label}", columns=attribute.columns, labels=(label,), of_set=True)
        for label in attribute.labels
    )


def group_attribute(group: GroupedColumns) -> Attribute:
    """The one attribute of a group of columns."""
    return Attribute(name=group.name, columns=group.columns, labels=group.labels, optional=group.outside == "null")


def forbidden_labels(
    structure: Structure, columns: Mapping[str, Column], attributes: Sequence[Attribute]
) -> tuple[Forbidden, ...]:
    """Every forbidden combination, lists multiplied out.

    Raises:
        ValueError: a value that the column does not have, or too many combinations.
    """
    whole = {name: j for j, a in enumerate(attributes) if not a.of_set for name in a.columns}
    apart = {(a.columns[0], a.labels[0]): j for j, a in enumerate(attributes) if a.of_set}
    found: list[Forbidden] = []
    for entry in structure.forbidden:
        if math.prod(len(texts) for texts in entry.values()) + len(found) > MAX_FORBIDDEN:
            raise ValueError(f"structure.forbidden must have at most {MAX_FORBIDDEN} combinations")
        labels = {name: [_label(name, columns[name], text) for text in texts] for name, texts in entry.items()}
        choices = [
            [(whole[name] if name in whole else apart[name, label], label) for label in known]
            for name, known in labels.items()
        ]
        found.extend(itertools.product(*sorted(choices)))
    return tuple(found)


def _label(name: str, column: Column, text: str) -> str:
    if column.private:
        return text.strip()
    code = column.code_of(text)
    if code < 0:
        raise ValueError(f"structure.forbidden names {text!r}, which is no value of column {name!r}")
    return column.labels[code]


def forbidden_codes(
    forbidden: Iterable[Forbidden], labels: Sequence[Sequence[str]]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Forbidden combinations as (attribute, code) over a domain; what was not released there needs no rule.

    DP: post-processing of the released labels.
    """
    places = [{label: code for code, label in enumerate(values)} for values in labels]
    found: list[tuple[tuple[int, int], ...]] = []
    for combination in forbidden:
        choices = []
        for attribute, text in combination:
            code = places[attribute].get(text)
            spelled = ValueMatcher([text])
            choices.append(
                [(attribute, code)]
                if code is not None
                else [(attribute, v) for label, v in places[attribute].items() if spelled.index(label) >= 0]
            )
        found.extend(itertools.product(*choices))
    return tuple(dict.fromkeys(found))
