"""The attributes that declared columns and groups are counted as."""

from __future__ import annotations

from marginweave.schemas.configuration.attributes import Attribute
from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.schemas.configuration.structure import GroupedColumns


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
