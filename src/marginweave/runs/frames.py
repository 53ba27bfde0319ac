"""Tables that a notebook has in memory, as Arrow: frames of pandas and Polars, and Arrow's own.

A cell becomes an Arrow value or a text by itself: by its own content and the dtype of its column, which is public. pandas'
`astype("string")` is not used, as it spells dates and categories by what other rows hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.arrow import cell_type, is_cell, schema_types
from marginweave.base.arrow import compute as pc
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.sources.source import declared_types, refuse_floats

if TYPE_CHECKING:
    import pandas as pd

NATIVE = "iufM"
"""The kinds of dtypes that do not become texts: numbers and dates."""
_NUMBERS, _DATES = "iuf", "M"
_NATIVE = {"number": _NUMBERS, "date": _DATES, "datetime": _DATES}
"""Those that do not in columns of a type."""
_PLAIN = "iufb"
_WHOLE = '{0}.astype("Int64"), or read it as text: pd.read_csv(…, dtype={{{1}: str}})'
_SECONDS, _DAYS, _STARTS = "{0}.dt.total_seconds()", '{0}.dt.strftime("%Y-%m-%d")', "{0}.dt.to_timestamp()"
_DENSE = "{0}.sparse.to_dense()"
_TEXTS = '{0}.map(str, na_action="ignore")'


def as_table(data: Any, natives: Mapping[str, str] | None = None) -> pa.Table:
    """The columns that `natives` names, or all: of Arrow and Polars as they are, of pandas as they are or as texts.

    `natives` has for each column the kinds of dtypes that stay as they are; all others become texts, each cell by itself.

    Raises:
        InputError: it is no table, or has a column twice, or not at all, or with values or a type that are neither text nor
            number.
    """
    frame = _frame(data)
    every = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    natives = dict.fromkeys(map(str, every), NATIVE) if natives is None else natives
    _check_names(list(every), natives)
    if isinstance(frame, pa.Table):
        declared_types(frame.schema, list(natives))
        return frame.select(list(natives))
    arrays = {name: _array(frame[name], native) for name, native in natives.items()}
    unusable = next((name for name, array in arrays.items() if array is None), None)
    if unusable is not None:
        raise InputError(f"the frame has the column {unusable!r} with values that are neither text nor number")
    return pa.table(arrays)


def as_parquet(data: Any, configuration: Configuration) -> tuple[bytes, dict[str, str]]:
    """The declared columns as Parquet, numbers and dates of pandas as they are, all else as text; and their types.

    Raises:
        InputError: as `as_table`, or a column has a dtype whose cells have no faithful text, whatever the rows are.
    """
    columns, sink = configuration.columns, pa.BufferOutputStream()
    kinds = {name: columns[name].type if name in columns else "identifier" for name in configuration.source_names}
    refuse_types(data, kinds, configuration.spelled_names)
    table = as_table(data, {name: _NATIVE.get(kind, "") for name, kind in kinds.items()})
    pq.write_table(table, sink)
    return bytes(sink.getvalue()), frame_types(data, configuration.output_names)


def refuse_types(data: Any, kinds: Mapping[str, str], spelled: Collection[str]) -> None:
    """Refuse a column of a dtype whose cells have no faithful text, with the line that mends it; raises InputError.

    `kinds` has the types that are declared of the columns that are read; the cells of those in `spelled` are known by their
    texts. DP: a function of dtypes, which are public, and of nothing in the rows.
    """
    frame = _frame(data)
    if isinstance(frame, pa.Table):
        refuse_floats(frame.schema, spelled)
        return
    _check_names(list(frame.columns), kinds)
    for name, kind in kinds.items():
        _check_dtype(name, frame[name].dtype, _NATIVE.get(kind, ""), is_spelled=name in spelled)


def _check_names(columns: list[Any], names: Iterable[str]) -> None:
    """Refuse a frame that has a column of these names twice or not at all; raises InputError."""
    repeated = [name for name in names if columns.count(name) > 1]
    if repeated:
        raise InputError(f"the frame has the column {', '.join(map(repr, repeated))} more than once")
    absent = [name for name in names if name not in columns]
    if absent and not all(isinstance(name, str) for name in columns):
        raise InputError("column names must be texts; write frame.columns = frame.columns.map(str)")
    if absent:
        raise InputError(f"the frame lacks the declared column {', '.join(map(repr, absent))}")


def _check_dtype(name: str, dtype: Any, native: str, *, is_spelled: bool) -> None:
    inner = _inner(dtype)
    line = _mended(inner, native, is_spelled=is_spelled)
    if line is not None:
        place = f"frame[{json.dumps(name, ensure_ascii=False)}]"
        said = f"{inner}" if inner == dtype else f"{inner} (behind {type(dtype).__name__})"
        raise InputError(
            f"the frame has the column {name!r} with the dtype {said}, which has no faithful text for each cell; write "
            f"{place} = {line.format(place, json.dumps(name, ensure_ascii=False))}"
        )


def _inner(dtype: Any) -> Any:
    """The dtype of the categories of a categorical one, or of those of a dictionary of Arrow; any other as it is."""
    import pandas as pd

    if isinstance(dtype, pd.ArrowDtype):
        return pd.ArrowDtype(cell_type(dtype.pyarrow_dtype))
    return dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype


def _mended(dtype: Any, native: str, *, is_spelled: bool) -> str | None:
    """The line that makes a usable column of one of this dtype; None where it is one."""
    import pandas as pd

    is_sparse = isinstance(dtype, pd.SparseDtype)
    if is_sparse or (dtype.kind == "f" and is_spelled):
        return _DENSE if is_sparse else _WHOLE
    if isinstance(dtype, pd.ArrowDtype):
        return None if is_cell(dtype.pyarrow_dtype) else _TEXTS
    if pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.StringDtype) or dtype.kind in _PLAIN + native:
        return None
    if dtype.kind == "m" and native == _NUMBERS:
        return _SECONDS
    if isinstance(dtype, pd.PeriodDtype) and native == _DATES:
        return _STARTS
    return _DAYS if dtype.kind == "M" else _TEXTS


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
        return _cells(series, native)
    except (ValueError, TypeError, pa.ArrowException):
        return None


def _cells(series: pd.Series[Any], native: str) -> pa.Array:
    """The cells of a column, each by itself: as they are, or as texts. Raises the errors of pandas and Arrow."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        return _cells(pd.Series(dtype.categories), native).take(pa.array(codes, mask=codes < 0))
    if isinstance(dtype, pd.SparseDtype):
        return _cells(series.sparse.to_dense(), native)
    if dtype.kind == "b":
        return pc.if_else(pa.array(series, from_pandas=True), "True", "False")
    is_arrow = isinstance(dtype, pd.ArrowDtype) and is_cell(cell_type(dtype.pyarrow_dtype))
    if is_arrow or dtype.kind in native or isinstance(dtype, pd.StringDtype):
        return pa.array(series, from_pandas=True)
    if dtype.kind in _PLAIN:
        return pc.cast(pa.array(series, from_pandas=True), pa.string())
    absent = series.isna().to_numpy()
    return pa.array([None if lacks else _text(cell) for cell, lacks in zip(series, absent, strict=True)], pa.string())


def _text(cell: Any) -> str:
    """A cell of any Python type as a text, by itself."""
    return cell.decode() if isinstance(cell, bytes) else str(cell)
