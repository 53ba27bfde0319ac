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
    types = declared_types(_common_schema(source, parts, columns), columns)
    yield types.empty_table()
    for number, part in enumerate(parts, 1):
        for batch in _batches(source, part, columns):
            table = _plain_views(pa.Table.from_batches([batch]).select(list(columns)))
            cells = {name: _cast(table.column(name), types.field(name).type) for name in columns}
            for name, values in cells.items():
                if values is None:
                    raise InputError(_UNFIT.format(source=source, column=name, number=number, part=part.name))
            yield pa.table(cells, schema=types)


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
_UNFIT = "source ({source}) has the column {column!r} with a type in part {number} ({part}) that does not fit the parts before"


def _common_schema(source: str, parts: Sequence[Path], columns: Sequence[str]) -> pa.Schema:
    """The declared columns, found by their names in every part, with types that hold what all parts have."""
    kinds: dict[str, pa.Schema] = {}
    for number, part in enumerate(parts, 1):
        present = parquet_schema(source, part)
        if number == 1:
            check_columns(present.names, columns)
        elif any(present.names.count(name) != 1 for name in columns):
            raise InputError(
                f"source ({source}) has parts with different columns: part {number} ({part.name}) lacks a declared column, or "
                "has it twice"
            )
        for name in columns:
            alone = _plain(pa.schema([present.field(name)]))
            try:
                kinds[name] = pa.unify_schemas([kinds.get(name, alone), alone], promote_options="permissive")
            except pa.ArrowException:
                raise InputError(_UNFIT.format(source=source, column=name, number=number, part=part.name)) from None
    return pa.schema([kinds[name].field(0) for name in columns])


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    try:
        return values.cast(kind)
    except pa.ArrowException:
        return None


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
