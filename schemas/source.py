"""Makes the contract of the raw table: columns that can be read, and with `outside: error` no value outside."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow

from marginweave.base.arrow import cell_type, is_cell
from marginweave.base.errors import InputError
from marginweave.columns import values_of
from marginweave.columns.base import ColumnValues
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.release import Configuration

from .contracts import Contract, whole_column

if TYPE_CHECKING:
    import pandera.pandas as pa
    from pandera.engines.pandas_engine import DataType


def source_contract(configuration: Configuration) -> Contract:
    """Return the contract of the raw columns (`raw_names`), exactly these and in order, of types that convert to text."""
    columns = {name: _column(configuration, name) for name in configuration.raw_names}
    return Contract.of("validate", columns, InputError)


def _column(configuration: Configuration, name: str) -> pa.Column:
    import pandera.pandas as pa

    column = configuration.columns[name]
    checks = []
    if isinstance(column, MeasuredColumn) and column.outside == "error":
        kind = values_of(column, configuration.missing_texts(name))
        checks = [whole_column(column.stopping_rule, lambda cells: _all_accepted(kind, cells))]
    return pa.Column(_type_with_texts(), checks, nullable=True)


def _all_accepted(kind: ColumnValues[Any], cells: pyarrow.Array) -> bool:
    """Return whether every cell is missing or a value of the column.

    `judge` looks at each text once. Of a dictionary only the distinct cells go to it.
    """
    distinct = cells.unique() if pyarrow.types.is_dictionary(cells.type) else cells
    return not kind.judge(distinct).unread.any()


@cache
def _type_with_texts() -> DataType:
    """Return one type of pandera for all types of a source: texts, numbers, booleans, dates, times, or dictionaries."""
    from pandera.engines.pandas_engine import DataType

    class WithTexts(DataType):  # pyright: ignore[reportUntypedBaseClass]
        type = "cells with texts"

        def __init__(self) -> None:
            """Skip pandera's `__init__`, which warns of a type that pandas does not know."""

        def check(self, pandera_dtype: Any, data_container: Any = None) -> bool:  # noqa: ARG002 - pandera's signature
            # pandera takes decimals of other widths than 128 bits for binary, so the column's own type is tested.
            return is_cell(cell_type(data_container.dtype.pyarrow_dtype))

    return WithTexts()
