"""Columns as a configuration declares them: their kind, their public domain, and what counts as missing or outside."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from marginweave.configuration.columns.base import (
    OTHER,
    ConstantColumn,
    IdentifierColumn,
    MeasuredColumn,
    Texts,
)
from marginweave.configuration.columns.category import BooleanColumn, Category, SetColumn
from marginweave.configuration.columns.date import DateColumn
from marginweave.configuration.columns.number import NumberColumn

__all__ = [
    "OTHER",
    "BooleanColumn",
    "Category",
    "Column",
    "Columns",
    "ConstantColumn",
    "DateColumn",
    "IdentifierColumn",
    "MeasuredColumn",
    "NamedColumns",
    "NumberColumn",
    "SetColumn",
    "Texts",
]

Column = Annotated[
    Category
    | BooleanColumn
    | NumberColumn
    | DateColumn
    | SetColumn
    | ConstantColumn
    | IdentifierColumn,
    Field(discriminator="type"),
]


def _named(columns: dict[str, Column]) -> dict[str, Column]:
    for name in columns:
        if not name.strip() or name != name.strip() or "\x00" in name:
            raise ValueError(
                f"has a column named {name!r}; a name must not be empty or begin or end with a space"
            )
    return columns


NamedColumns = Annotated[dict[str, Column], AfterValidator(_named)]
Columns = Annotated[NamedColumns, Field(min_length=1)]
