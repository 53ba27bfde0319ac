"""What a configuration says of one column: its kind, its public domain, and what counts as missing or outside."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from marginweave.schemas.configuration.columns.base import (
    OTHER,
    ConstantColumn,
    IdentifierColumn,
    MeasuredColumn,
    Texts,
)
from marginweave.schemas.configuration.columns.category import BooleanColumn, Category, SetColumn
from marginweave.schemas.configuration.columns.date import DateColumn
from marginweave.schemas.configuration.columns.number import NumberColumn

__all__ = [
    "OTHER",
    "BooleanColumn",
    "Category",
    "Column",
    "ConstantColumn",
    "DateColumn",
    "IdentifierColumn",
    "MeasuredColumn",
    "NumberColumn",
    "SetColumn",
    "Texts",
]

Column = Annotated[
    Category | BooleanColumn | NumberColumn | DateColumn | SetColumn | ConstantColumn | IdentifierColumn,
    Field(discriminator="type"),
]
