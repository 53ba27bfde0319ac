"""Tables in the memory of a notebook, as Arrow tables: frames of pandas and Polars, and Arrow's own.

Each cell becomes an Arrow value or a text that depends on the cell and on the dtype of its column, which is public. pandas'
`astype("string")` is not used, because its text for a date or a category depends on other rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.arrow import cell_type, is_cell, is_text, schema_types
from marginweave.base.arrow import compute as pc
from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.release import Configuration
from marginweave.runs.frame_cells import frame_chunks
from marginweave.sources.source import refuse_floats, types_as_read

if TYPE_CHECKING:
    import pandas as pd

NATIVE = "iufM"
"""The kinds of dtypes that do not become texts: numbers and dates."""
_NUMBERS = "iuf"
_DATES = "M"
_NATIVE = {"number": _NUMBERS, "date": _DATES, "datetime": _DATES}
"""The kinds of dtypes that do not become texts in columns of a declared type."""
_PLAIN = "iufb"
# Python that makes a usable column; {0} is the column as `frame["name"]`, {1} is its name.
_WHOLE = '{0}.astype("Int64"), or read it as text: pd.read_csv(…, dtype={{{1}: str}})'
_SECONDS = "{0}.dt.total_seconds()"
_DAYS = '{0}.dt.strftime("%Y-%m-%d")'
_STARTS = "{0}.dt.to_timestamp()"
_DENSE = "{0}.sparse.to_dense()"
_TEXTS = '{0}.map(str, na_action="ignore")'
_ASCII_TEXTS = (
    "{0}.map(lambda cell: cell if isinstance(cell, str | int | float | None) else ascii(cell))"
)
_MOMENTS = '{0}.where({0}.between("0001-01-01", "9999-12-31"))'
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
_DIGITS = 38
"""Most digits of Arrow's decimal numbers in 128 bits."""
_MOST_DIGITS = 76
"""Most digits of Arrow's decimal numbers in 256 bits."""


def as_table(data: Any, natives: Mapping[str, str] | None = None) -> pa.Table:
    """Return the columns that `natives` names, or all: of Arrow and Polars as they are, of pandas as they are or as texts.

    `natives` has for each column the kinds of dtypes that stay as they are; all others become texts, each cell by itself.

    Raises:
        InputError: it is no table, or has a column twice, or not at all, or with values or a type that are neither text nor
            number.
    """
    frame = _frame(data)
    all_names = list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)
    if natives is None:
        natives = dict.fromkeys(map(str, all_names), NATIVE)
    _check_names(all_names, natives)
    if isinstance(frame, pa.Table):
        types_as_read(frame.schema, list(natives))
        return _storable(frame.select(list(natives)))
    arrays = {name: _array(frame[name], native) for name, native in natives.items()}
    for name, array in arrays.items():
        if array is None:
            place = _in_python(name)
            raise InputError(
                f"the frame has the column {name!r} with a cell that is no number and no text that Unicode has; "
                f"write {place} = {_ASCII_TEXTS.format(place)}"
            )
    return _storable(pa.table(arrays))


def as_parquet(data: Any, configuration: Configuration) -> tuple[bytes, dict[str, str]]:
    """Return the declared columns as Parquet, and their types: numbers and dates of pandas as they are, all else as text.

    Raises:
        InputError: as `columns_as_parquet`.
    """
    columns = configuration.columns
    kinds = {
        name: columns[name].type if name in columns else "identifier"
        for name in configuration.stored_names
    }
    content = columns_as_parquet(data, configuration.source, kinds, configuration.spelled_names)
    return content, frame_types(data, configuration.output_names)


def columns_as_parquet(
    data: Any, form: SourceFile, kinds: Mapping[str, str], spelled: Collection[str]
) -> bytes:
    """Return these columns as Parquet; `kinds` and `spelled` are those of `refuse_types`, and `form` is what `source` declares.

    Raises:
        InputError: as `as_table`, or a column has a dtype whose cells have no faithful text, whatever the rows are; or a
            column of ids or of a private domain has a number that is not spelled as a whole number; or `source` says where in
            a file the table is.
    """
    keys = form.layout_keys
    if keys:
        raise InputError(
            f"source has {', '.join(keys)}, and a frame has only columns and rows; name the file instead of the frame, or "
            f"delete {', '.join(keys)} and name the frame's columns as the configuration does"
        )
    refuse_types(data, kinds, spelled)
    refuse_spellings(data, spelled)
    table = as_table(data, {name: _NATIVE.get(kind, "") for name, kind in kinds.items()})
    content = _parquet(table)
    if content is None:
        raise _not_storable(table, is_pandas=_is_pandas(data))
    return content


def _not_storable(table: pa.Table, *, is_pandas: bool) -> InputError:
    """Return the refusal of a table that Parquet cannot hold, with the first such column and how to mend it."""
    name = next((name for name in table.column_names if _parquet(table.select([name])) is None), "")
    place = _in_python(name)
    kind = table.schema.field(name).type
    is_moment = pa.types.is_timestamp(kind)
    if is_pandas:
        template = _MOMENTS if is_moment else _TEXTS
        advice = f"{place} = {template.format(place)}"
    else:
        advice = "such cells as null" if is_moment else "its cells as texts"
    return InputError(
        f"the frame has the column {name!r} with a cell that cannot be stored as {kind}; write {advice}"
    )


def frame_columns(data: Any) -> tuple[str, ...]:
    """Return the names of the columns of a frame. Raises InputError: it is no table."""
    frame = _frame(data)
    return tuple(map(str, frame.column_names if isinstance(frame, pa.Table) else frame.columns))


def frame_bytes(data: Any) -> Iterator[bytes]:
    """Return all cells of all columns as bytes (`frame_chunks`), for the keyed digest. Raises InputError: it is no table."""
    return frame_chunks(_frame(data))


def _in_python(name: str) -> str:
    """Return the column as it is written in Python."""
    return f"frame[{json.dumps(name, ensure_ascii=False)}]"


def _parquet(table: pa.Table) -> bytes | None:
    """Return the table as Parquet; None where a cell cannot be stored, because the library's error would quote the cell."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(table, sink)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        return None
    return bytes(sink.getvalue())


def _storable(table: pa.Table) -> pa.Table:
    """Return the same cells in types that Parquet has. The new type of a column depends on its type alone, not on its cells."""
    columns = {}
    for name in table.column_names:
        kind = _stored_as(table.field(name).type)
        chunks = [_decoded(chunk, kind) for chunk in table.column(name).chunks]
        columns[name] = pa.chunked_array(chunks, kind)
    return pa.table(columns)


def _stored_as(kind: pa.DataType) -> pa.DataType:
    """Return the type of the cells in Parquet.

    Parquet has no dictionary with views of texts or with a missing value, and no decimal of a negative scale (100 as 1E+2).
    """
    inner = cell_type(kind)
    if pa.types.is_decimal(inner) and inner.scale < 0:
        digits = inner.precision - inner.scale
        if digits <= _DIGITS:
            return pa.decimal128(digits, 0)
        if digits <= _MOST_DIGITS:
            return pa.decimal256(digits, 0)
    return pa.large_string() if inner != kind and is_text(inner) else inner


def _decoded(chunk: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the cells as this type; those of a dictionary as plain cells."""
    if isinstance(chunk, pa.DictionaryArray):
        return chunk.dictionary.cast(kind).take(chunk.indices)
    return chunk if chunk.type == kind else chunk.cast(kind)


def refuse_types(data: Any, kinds: Mapping[str, str], spelled: Collection[str]) -> None:
    """Refuse a column of a dtype whose cells have no faithful text, with the line that mends it; raises InputError.

    `kinds` has the declared types of the columns that are read; the cells of those in `spelled` are identified by their
    texts. DP: a function of dtypes, which are public, and of nothing in the rows.
    """
    frame = _frame(data)
    if isinstance(frame, pa.Table):
        refuse_floats(frame.schema, spelled)
        return
    _check_names(list(frame.columns), kinds)
    for name, kind in kinds.items():
        _check_dtype(name, frame[name].dtype, _NATIVE.get(kind, ""), is_spelled=name in spelled)


def refuse_spellings(data: Any, spelled: Iterable[str]) -> None:
    """Refuse a number that is not spelled as a whole number, in columns of Python objects whose cells are identified by texts.

    Such a column may hold 7, 7.0, Decimal("7.0") and True: one number in several spellings, each of which would be another
    person with `max_records` rows. Of a categorical dtype all categories are looked at. DP: it can only stop a run.

    Raises:
        InputError: there is one; the message has its column alone.
    """
    if not _is_pandas(data):
        return
    import pandas as pd

    for name in spelled:
        series = data[name]
        if isinstance(series.dtype, pd.CategoricalDtype):
            series = pd.Series(series.dtype.categories)
        if _is_untyped(series.dtype) and not all(map(_is_spelled_whole, series[series.notna()])):
            place = _in_python(name)
            quoted_name = json.dumps(name, ensure_ascii=False)
            raise InputError(
                f"the frame has the column {name!r} with a cell that is a float, a Boolean or a decimal with a fraction, so "
                f"that one id or value can have several spellings; write {place} = {_WHOLE.format(place, quoted_name)}"
            )


def _is_spelled_whole(cell: Any) -> bool:
    """Return whether a cell is no number, or one that is spelled as a whole number."""
    if type(cell) in (str, int):  # most cells, in a tenth of the time
        return True
    return not isinstance(cell, Number | np.bool_) or _WHOLE_NUMBER.fullmatch(str(cell)) is not None


def _check_names(columns: list[Any], names: Iterable[str]) -> None:
    """Refuse a frame that has a column of these names twice or not at all; raises InputError."""
    repeated = [name for name in names if columns.count(name) > 1]
    if repeated:
        raise InputError(
            f"the frame has the column {', '.join(map(repr, repeated))} more than once"
        )
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
        dtype_text = f"{inner}" if inner == dtype else f"{inner} (behind {type(dtype).__name__})"
        quoted_name = json.dumps(name, ensure_ascii=False)
        raise InputError(
            f"the frame has the column {name!r} with the dtype {dtype_text}, which has no faithful text for each cell; write "
            f"{place} = {line.format(place, quoted_name)}"
        )


def _inner(dtype: Any) -> Any:
    """Return the dtype of the categories of a categorical dtype, or of an Arrow dictionary; any other dtype as it is."""
    import pandas as pd

    if isinstance(dtype, pd.ArrowDtype):
        return pd.ArrowDtype(cell_type(dtype.pyarrow_dtype))
    return dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype


def _mended(dtype: Any, native: str, *, is_spelled: bool) -> str | None:
    """Return the expression that makes a usable column from one of this dtype; None where it is usable."""
    import pandas as pd

    if isinstance(dtype, pd.SparseDtype):
        return _DENSE
    if _kind(dtype) == "f" and is_spelled:
        return _WHOLE
    if isinstance(dtype, pd.ArrowDtype):
        return None if is_cell(dtype.pyarrow_dtype) else _TEXTS
    if (
        pd.api.types.is_object_dtype(dtype)
        or isinstance(dtype, pd.StringDtype)
        or dtype.kind in _PLAIN + native
    ):
        return None
    line = _DAYS if dtype.kind == "M" else _TEXTS
    if dtype.kind == "m" and native == _NUMBERS:
        line = _SECONDS
    elif isinstance(dtype, pd.PeriodDtype) and native == _DATES:
        line = _STARTS
    return line


def frame_types(frame: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the types of a table's columns, from its dtypes, as `schema_types`; pandas' `object` has no type.

    pandas finds out the type of categories from their values, which depend on the rows: all categories are texts here.
    """
    if not _is_pandas(frame):
        return schema_types(_frame(frame).schema, names)
    import pandas as pd

    types: dict[str, str] = {}
    for name in names:
        if name not in frame.columns or _is_untyped(frame[name].dtype):
            continue
        dtype = frame[name].dtype
        if isinstance(dtype, pd.CategoricalDtype):
            texts = pa.dictionary(pa.int32(), pa.string(), ordered=bool(dtype.ordered))
            types |= schema_types(pa.schema([(name, texts)]), [name])
            continue
        with suppress(KeyError, pa.ArrowException):
            no_rows = frame.loc[:, [name]].iloc[:0]
            schema = pa.Schema.from_pandas(no_rows, preserve_index=False)
            types |= schema_types(schema, [name])
    return types


def _is_untyped(dtype: Any) -> bool:
    """Return whether cells of a dtype may be any Python object, also of a sparse one."""
    import pandas as pd

    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    return not isinstance(
        dtype, pd.ArrowDtype | pd.CategoricalDtype
    ) and pd.api.types.is_object_dtype(dtype)


def _kind(dtype: Any) -> str:
    """Return numpy's letter for a dtype; that of `object` for Arrow types without one, such as views of texts."""
    try:
        return str(dtype.kind)
    except RuntimeError:  # pandas raises it for a type that numpy does not have
        return "O"


def _is_pandas(data: Any) -> bool:
    """Return whether an object is of a class of pandas, without importing pandas."""
    packages = [kind.__module__.partition(".")[0] for kind in type(data).__mro__]
    return "pandas" in packages


def _frame(data: Any) -> Any:
    if _is_pandas(data) and data.ndim == 2:
        return data
    if not _is_pandas(data) and hasattr(data, "__arrow_c_stream__"):
        # raised for an array, which is not a table
        with suppress(TypeError, ValueError, pa.ArrowException):
            return pa.table(data)
    raise InputError(
        "the data must be a frame of pandas or Polars, an Arrow table, or the path of a table"
    )


def _array(series: pd.Series[Any], native: str) -> pa.Array | None:
    """Return the cells of a column; None where a cell is neither text nor number: the library's error would quote it."""
    try:
        return _cells(series, native)
    except MemoryError:
        raise
    except Exception:  # the text of a cell comes from its class, which may raise anything
        return None


def _cells(series: pd.Series[Any], native: str) -> pa.Array:
    """Return the cells of a column, each by itself: as they are, or as texts. Raises the errors of pandas and Arrow."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        return _cells(pd.Series(dtype.categories), native).take(pa.array(codes, mask=codes < 0))
    if isinstance(dtype, pd.SparseDtype):
        return _cells(series.sparse.to_dense(), native)
    if _kind(dtype) == "b":
        return pc.if_else(pa.array(series, from_pandas=True), "true", "false")
    is_arrow = isinstance(dtype, pd.ArrowDtype) and is_cell(cell_type(dtype.pyarrow_dtype))
    if is_arrow or _kind(dtype) in native or isinstance(dtype, pd.StringDtype):
        return pa.array(series, from_pandas=True)
    if _kind(dtype) in _PLAIN:
        return pc.cast(pa.array(series, from_pandas=True), pa.string())
    is_missing = series.isna().to_numpy()
    texts = [
        None if missing else _text(cell) for cell, missing in zip(series, is_missing, strict=True)
    ]
    return pa.array(texts, pa.string())


def _text(cell: Any) -> str:
    """Return a cell of any Python type as a text, by itself."""
    return cell.decode() if isinstance(cell, bytes) else str(cell)
