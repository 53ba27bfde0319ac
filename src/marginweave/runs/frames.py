"""Tables that a notebook has in memory, as Arrow: frames of pandas and Polars, and Arrow's own.

A cell becomes an Arrow value or a text by itself: by its own content and the dtype of its column, which is public. pandas'
`astype("string")` is not used, as it spells dates and categories by what other rows hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.arrow import cell_type, is_cell, is_text, schema_types
from marginweave.base.arrow import compute as pc
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.runs.frame_cells import frame_chunks
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
_OTHERS = "{0}.map(lambda cell: cell if isinstance(cell, str | int | float | None) else ascii(cell))"
_MOMENTS = '{0}.where({0}.between("0001-01-01", "9999-12-31"))'
_DIGITS, _MOST_DIGITS = 38, 76
"""Of Arrow's decimal numbers in 128 and in 256 bits."""


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
        return _storable(frame.select(list(natives)))
    arrays = {name: _array(frame[name], native) for name, native in natives.items()}
    unusable = next((name for name, array in arrays.items() if array is None), None)
    if unusable is not None:
        place = _in_python(unusable)
        raise InputError(
            f"the frame has the column {unusable!r} with a cell that is neither text nor number and has no text; "
            f"write {place} = {_OTHERS.format(place)}"
        )
    return _storable(pa.table(arrays))


def as_parquet(data: Any, configuration: Configuration) -> tuple[bytes, dict[str, str]]:
    """The declared columns as Parquet, numbers and dates of pandas as they are, all else as text; and their types.

    Raises:
        InputError: as `as_table`, or a column has a dtype whose cells have no faithful text, whatever the rows are.
    """
    columns = configuration.columns
    kinds = {name: columns[name].type if name in columns else "identifier" for name in configuration.source_names}
    refuse_types(data, kinds, configuration.spelled_names)
    table = as_table(data, {name: _NATIVE.get(kind, "") for name, kind in kinds.items()})
    content = _parquet(table)
    if content is None:
        name = next((name for name in table.column_names if _parquet(table.select([name])) is None), "")
        place, kind = _in_python(name), table.schema.field(name).type
        mended, said = (
            (_MOMENTS, "such cells as null") if pa.types.is_timestamp(kind) else (_TEXTS, "its cells as texts")
        )
        line = f"{place} = {mended.format(place)}" if _is_pandas(data) else said
        raise InputError(f"the frame has the column {name!r} with a cell that cannot be stored as {kind}; write {line}")
    return content, frame_types(data, configuration.output_names)


def frame_bytes(data: Any) -> Iterator[bytes]:
    """All cells of all columns, as `frame_chunks`: for the keyed digest of the frame. Raises InputError: it is no table."""
    return frame_chunks(_frame(data))


def _in_python(name: str) -> str:
    """The column as a line of Python names it."""
    return f"frame[{json.dumps(name, ensure_ascii=False)}]"


def _parquet(table: pa.Table) -> bytes | None:
    """The table as Parquet; None where a cell has no place in it: the library's error would quote the cell."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(table, sink)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        return None
    return bytes(sink.getvalue())


def _storable(table: pa.Table) -> pa.Table:
    """The same cells in types that Parquet has: each column by its own type alone, whatever its cells are."""
    columns = [(table.column(name), _stored_as(table.field(name).type)) for name in table.column_names]
    cells = [pa.chunked_array(map(partial(_decoded, kind=kind), column.chunks), kind) for column, kind in columns]
    return pa.table(dict(zip(table.column_names, cells, strict=True)))


def _stored_as(kind: pa.DataType) -> pa.DataType:
    """The type of the cells in Parquet, which has no dictionary with views of texts or a missing value, nor 100 as 1E+2."""
    inner = cell_type(kind)
    if pa.types.is_decimal(inner) and inner.scale < 0 and (digits := inner.precision - inner.scale) <= _MOST_DIGITS:
        return pa.decimal128(digits, 0) if digits <= _DIGITS else pa.decimal256(digits, 0)
    return pa.large_string() if inner != kind and is_text(inner) else inner


def _decoded(chunk: pa.Array, kind: pa.DataType) -> pa.Array:
    """The cells as this type, in the place of a dictionary of them."""
    if isinstance(chunk, pa.DictionaryArray):
        return chunk.dictionary.cast(kind).take(chunk.indices)
    return chunk if chunk.type == kind else chunk.cast(kind)


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
        place = _in_python(name)
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
    if is_sparse or (_kind(dtype) == "f" and is_spelled):
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
    """The types of the columns that a table has, from its dtypes, as `schema_types`; pandas' `object` is none.

    Neither are categories of it: Arrow would infer a type from what they are, which rows say.
    """
    if not _is_pandas(frame):
        return schema_types(_frame(frame).schema, names)
    found: dict[str, str] = {}
    for name in names:
        if name not in frame.columns or _is_untyped(frame[name].dtype):
            continue
        with suppress(KeyError, pa.ArrowException):
            found |= schema_types(pa.Schema.from_pandas(frame.loc[:, [name]].iloc[:0], preserve_index=False), [name])
    return found


def _is_untyped(dtype: Any) -> bool:
    """Whether cells of a dtype may be anything, also behind categories and the like."""
    import pandas as pd

    while isinstance(dtype, pd.CategoricalDtype | pd.SparseDtype):
        dtype = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype.subtype
    return not isinstance(dtype, pd.ArrowDtype) and pd.api.types.is_object_dtype(dtype)


def _kind(dtype: Any) -> str:
    """Numpy's letter for a dtype; that of an object for types of Arrow that numpy has none for, such as views of texts."""
    try:
        return str(dtype.kind)
    except RuntimeError:  # what pandas raises
        return "O"


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
    except MemoryError:
        raise
    except Exception:  # what a cell of any class raises when it is asked for its text
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
    if _kind(dtype) == "b":
        return pc.if_else(pa.array(series, from_pandas=True), "True", "False")
    is_arrow = isinstance(dtype, pd.ArrowDtype) and is_cell(cell_type(dtype.pyarrow_dtype))
    if is_arrow or _kind(dtype) in native or isinstance(dtype, pd.StringDtype):
        return pa.array(series, from_pandas=True)
    if _kind(dtype) in _PLAIN:
        return pc.cast(pa.array(series, from_pandas=True), pa.string())
    absent = series.isna().to_numpy()
    return pa.array([None if lacks else _text(cell) for cell, lacks in zip(series, absent, strict=True)], pa.string())


def _text(cell: Any) -> str:
    """A cell of any Python type as a text, by itself."""
    return cell.decode() if isinstance(cell, bytes) else str(cell)
