"""Tables that a notebook has in memory, as Arrow: frames of pandas and Polars, and Arrow's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.arrow import schema_types
from marginweave.base.errors import InputError
from marginweave.configuration.columns import DateColumn, NumberColumn
from marginweave.configuration.release import Configuration

if TYPE_CHECKING:
    import pandas as pd

NATIVE = "iufM"
"""The kinds of dtypes that do not become texts: numbers and dates."""
_NATIVE: dict[type[Any], str] = {NumberColumn: "iuf", DateColumn: "M"}


def as_table(data: Any, natives: Mapping[str, str] | None = None) -> pa.Table:
    """The columns that `natives` names, or all: of Arrow and Polars as they are, of pandas as they are or as texts.

    `natives` has for each column the kinds of dtypes that stay as they are; all others become texts.

    Raises:
        InputError: it is no table, or has a column twice, or not at all, or with values that are neither text nor number.
    """
    frame = _frame(data)
    columns = list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)
    natives = dict.fromkeys(map(str, columns), NATIVE) if natives is None else natives
    repeated = [name for name in natives if columns.count(name) > 1]
    if repeated:
        raise InputError(f"the frame has the column {', '.join(map(repr, repeated))} more than once")
    absent = [name for name in natives if name not in columns]
    if absent and not all(isinstance(name, str) for name in columns):
        raise InputError("column names must be texts; write frame.columns = frame.columns.map(str)")
    if absent:
        raise InputError(f"the frame lacks the declared column {', '.join(map(repr, absent))}")
    if isinstance(frame, pa.Table):
        return frame.select(list(natives))
    arrays = {name: _array(frame[name], native) for name, native in natives.items()}
    unusable = next((name for name, array in arrays.items() if array is None), None)
    if unusable is not None:
        raise InputError(f"the frame has the column {unusable!r} with values that are neither text nor number")
    return pa.table(arrays)


def as_parquet(data: Any, configuration: Configuration) -> tuple[bytes, dict[str, str]]:
    """The declared columns as Parquet, numbers and dates of pandas as they are, all else as text; and their types."""
    columns, sink = configuration.columns, pa.BufferOutputStream()
    natives = {name: _NATIVE.get(type(columns.get(name)), "") for name in configuration.source_names}
    pq.write_table(as_table(data, natives), sink)
    return bytes(sink.getvalue()), frame_types(data, configuration.output_names)


def frame_types(frame: Any, names: Iterable[str]) -> dict[str, str]:
    """The types of the columns that a table has, from its dtypes, as `schema_types`; pandas' `object` is none."""
    if not _is_pandas(frame):
        return schema_types(_frame(frame).schema, names)
    found: dict[str, str] = {}
    for name in names:
        with suppress(KeyError, pa.ArrowException):
            found |= schema_types(pa.Schema.from_pandas(frame.loc[:, [name]].iloc[:0], preserve_index=False), [name])
    return found


def _is_pandas(data: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(data).__mro__)  # without importing it


def _frame(data: Any) -> Any:
    if _is_pandas(data) and data.ndim == 2:
        return data
    if not _is_pandas(data) and hasattr(data, "__arrow_c_stream__"):
        with suppress(TypeError, ValueError, pa.ArrowException):  # an array, which is no table
            return pa.table(data)
    raise InputError("the data must be a frame of pandas or Polars, an Arrow table, or the path of a table")


def _array(series: pd.Series[Any], native: str) -> pa.Array | None:
    """The cells of a column; None of what is neither text nor number: the library's error would quote the value."""
    try:
        return pa.array(series if series.dtype.kind in native else series.astype("string"), from_pandas=True)
    except (ValueError, TypeError, pa.ArrowException):
        return None
