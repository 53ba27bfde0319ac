"""What is counted: the attributes into which columns and groups are encoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.schemas.configuration.structure import GroupedColumns


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
