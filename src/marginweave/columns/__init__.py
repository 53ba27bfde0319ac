"""Values of every kind of column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from marginweave.base.arrays import Floats
from marginweave.columns.base import ColumnValues
from marginweave.columns.category import BooleanValues, CategoryValues, SetValues
from marginweave.columns.date import DateValues
from marginweave.columns.number import NumberValues
from marginweave.configuration.columns import (
    BooleanColumn,
    Category,
    Column,
    DateColumn,
    MeasuredColumn,
    NumberColumn,
    SetColumn,
)

KINDS: dict[type[MeasuredColumn], type[ColumnValues[Any]]] = {
    Category: CategoryValues,
    BooleanColumn: BooleanValues,
    NumberColumn: NumberValues,
    DateColumn: DateValues,
    SetColumn: SetValues,
}


def values_of(
    column: Column,
    missing: Sequence[str],
    counts: Floats | None = None,
    kind: pa.DataType | None = None,
) -> ColumnValues[Any]:
    """Return the values of a measured column; `missing` are the texts that mean "no value".

    `counts` are the released counts of its labels, which samples may follow; `kind` is the type of the column in the source.
    """
    assert isinstance(column, MeasuredColumn)  # no other kind has values
    return KINDS[type(column)](column, missing, counts, kind)
