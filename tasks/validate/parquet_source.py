"""Reads a Parquet file, or the parts of a folder, into Arrow tables of one type.

pyarrow's own messages quote values, so none of them is ever passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.errors import InputError
from marginweave.tasks.validate.text_source import check_columns

_ROWS = 1 << 17


def read_parquet(source: str, parts: Sequence[Path], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The named columns in that order, some rows at a time; at least one table, if without rows.

    Raises:
        InputError: a part is no Parquet file, parts do not fit together, or a column is lacking or of an unusable type.
    """
    types = declared_types(_common_schema(source, parts), columns)
    yield types.empty_table()
    for part in parts:
        for batch in _batches(source, part, columns):
            try:
                table = _plain_views(pa.Table.from_batches([batch]).select(list(columns))).cast(types)
            except pa.ArrowException:
                table = None
            if table is None:
                raise InputError(_UNFIT.format(source=source))
            yield table


def declared_types(present: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The types in which the declared columns are read: texts behind dictionaries, everything else as it is.

    Raises:
        InputError: a column is lacking, repeated, or of a type that has no text.
    """
    check_columns(present.names, columns)
    for name in columns:
        if not _is_cell(_inner(present.field(name).type)):
            raise InputError(f"source has the column {name!r} with a type that is neither text nor number nor date")
    return pa.schema([(name, _read_as(present.field(name).type)) for name in columns])


def parquet_schema(source: str, part: Path) -> pa.Schema:
    """Names and types of a part; raises InputError if it is no Parquet file."""
    try:
        return pq.read_schema(part)
    except (pa.ArrowException, OSError):
        raise InputError(_UNREADABLE.format(source=source)) from None


_UNREADABLE = "source ({source}) is neither .csv, .tsv nor Parquet"
_UNFIT = "source ({source}) has parts whose column types do not fit together"


def _common_schema(source: str, parts: Sequence[Path]) -> pa.Schema:
    schemas = [parquet_schema(source, part).remove_metadata() for part in parts]
    if any(schema.names != schemas[0].names for schema in schemas):
        raise InputError(f"source ({source}) has parts with different columns")
    if len(set(schemas[0].names)) < len(schemas[0].names):  # which cannot be unified; a declared one is refused anyway
        return schemas[0]
    try:
        return pa.unify_schemas([_plain(schema) for schema in schemas], promote_options="permissive")
    except pa.ArrowException:
        raise InputError(_UNFIT.format(source=source)) from None


def _batches(source: str, part: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Batches of one part; columns of texts come as the dictionaries that the file has."""
    reason = None
    try:
        with pq.ParquetFile(part) as file:
            texts = [name for name in columns if _is_text(_inner(file.schema_arrow.field(name).type))]
        with pq.ParquetFile(part, read_dictionary=texts, memory_map=False, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=_ROWS, columns=list(columns))
    except (pa.ArrowException, OSError):
        reason = _UNREADABLE.format(source=source)
    if reason is not None:
        raise InputError(reason)


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, pa.string() if _is_text(_inner(field.type)) else field.type) for field in schema])


def _plain_views(table: pa.Table) -> pa.Table:
    """Viewed texts in Arrow's plain layout, which alone can be put behind a dictionary."""
    kinds = [pa.string() if pa.types.is_string_view(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _inner(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Texts of any layout, and columns without a single value, behind a dictionary of plain texts."""
    inner = _inner(kind)
    return pa.dictionary(pa.int32(), pa.string()) if _is_text(inner) or pa.types.is_null(inner) else inner


def _is_cell(kind: pa.DataType) -> bool:
    """Whether cells of this type have a text: numbers, texts, booleans, dates and times."""
    bytes_of = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    others = (pa.types.is_nested, pa.types.is_interval, pa.types.is_duration)
    return not any(test(kind) for test in (*bytes_of, *others))
