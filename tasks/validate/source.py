"""Reads the declared columns of a CSV, TSV or Parquet source as an Arrow table, and nothing else of it.

pyarrow's own messages quote rows, so none of them is ever passed on.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.errors import InputError
from marginweave.schemas.source import EXAMPLE_PREFIX, SourceFile
from marginweave.tasks.validate.example import read_example
from marginweave.tasks.validate.text_source import check_columns, delimiter_of, read_header, read_text

_CHUNK = 1 << 20
_SMALL = 1 << 26


@dataclass(frozen=True)
class LoadedSource:
    """All bytes of a source, read once: what is digested is what is parsed, even if the file changes meanwhile."""

    name: str
    form: SourceFile
    parts: tuple[bytes, ...]

    def chunks(self) -> Iterator[bytes]:
        """The bytes for a keyed digest, as `source_chunks` gives them."""
        for part in self.parts:
            yield len(part).to_bytes(8, "big")
            yield part

    def table(self, columns: Sequence[str]) -> pa.Table:
        """The declared `columns` in declared order; texts for CSV, native types for Parquet.

        A header without rows gives a table of zero rows.

        Raises:
            InputError: no header, a declared column that is lacking, repeated or of a type that cannot be used, bytes that
                are not in the declared encoding, or a row with another number of fields than the header.
        """
        delimiter = delimiter_of(self.name, self.form)
        if delimiter:
            return read_text(self.name, self.parts[0], delimiter, columns, self.form)
        if self.name.startswith(EXAMPLE_PREFIX):
            return _select(pa.ipc.open_stream(self.parts[0]).read_all(), columns)
        return _select(_read_parquet(self.name, self.parts), columns)


def load_source(source: str, form: SourceFile) -> LoadedSource:
    """Read a path, a folder of Parquet parts, or `example:NAME`; `form` says how a text file is written.

    Raises:
        InputError: it is absent or unreadable.
    """
    if source.startswith(EXAMPLE_PREFIX):
        return LoadedSource(source, form, (_example_bytes(source),))
    with _reading(source):
        return LoadedSource(source, form, tuple(part.read_bytes() for part in _parts(Path(source))))


def check_source(source: str, columns: Sequence[str], form: SourceFile) -> None:
    """Refuse a source before a run begins: at once what its header tells, and, unless it is large, all of it.

    Raises:
        InputError: as `load_source` and `LoadedSource.table`.
    """
    check_columns(source_columns(source, form), columns)
    if not source.startswith(EXAMPLE_PREFIX) and sum(part.stat().st_size for part in _parts(Path(source))) <= _SMALL:
        load_source(source, form).table(columns)


def source_columns(source: str, form: SourceFile) -> tuple[str, ...]:
    """Column names that the source has, in its own order; raises InputError as `load_source` does."""
    if source.startswith(EXAMPLE_PREFIX):
        return tuple(read_example(source.removeprefix(EXAMPLE_PREFIX)).column_names)
    first = _parts(Path(source))[0]
    delimiter = delimiter_of(source, form)
    if delimiter:
        with _reading(source), first.open("rb") as file:
            return read_header(source, file, delimiter, form)
    return tuple(_parquet_schema(source, first).names)


def source_chunks(source: str) -> Iterator[bytes]:
    """The bytes of the source, for a keyed digest; the parts of a folder in the order of their names.

    Every part is preceded by its length, so that moving bytes from one part to the next changes the digest.
    """
    if source.startswith(EXAMPLE_PREFIX):
        content = _example_bytes(source)
        yield from (len(content).to_bytes(8, "big"), content)
        return
    with _reading(source):
        for part in _parts(Path(source)):
            yield part.stat().st_size.to_bytes(8, "big")
            with part.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk


def _example_bytes(source: str) -> bytes:
    table = read_example(source.removeprefix(EXAMPLE_PREFIX))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@contextmanager
def _reading(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"source ({source}) cannot be read: {error.strerror or 'input error'}") from None


def _parts(path: Path) -> list[Path]:
    with _reading(str(path)):
        if path.is_dir():
            parts = sorted(p for p in path.iterdir() if p.suffix.lower() == ".parquet" and p.is_file())
            if not parts:
                raise InputError(f"source ({path}) is a folder without parquet files")
            return parts
        if not path.exists():
            raise InputError(f"source ({path}) does not exist")
        if not path.is_file():
            raise InputError(f"source ({path}) must be a file or a folder of Parquet files")
        return [path]


def _select(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    check_columns(table.column_names, columns)
    selected = table.select(list(columns))
    for name, declared in zip(columns, selected.schema.types, strict=True):
        if not _is_cell(declared.value_type if pa.types.is_dictionary(declared) else declared):
            raise InputError(f"source has the column {name!r} with a type that is neither text nor number nor date")
    kinds = [pa.string() if _is_spelled_otherwise(kind) else kind for kind in selected.schema.types]
    return selected.cast(pa.schema(list(zip(columns, kinds, strict=True))))


def _is_spelled_otherwise(kind: pa.DataType) -> bool:
    """Whether cells are texts in another layout than Arrow's plain one, which not every kernel knows, or all null."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_large_string(inner) or pa.types.is_string_view(inner) or pa.types.is_null(inner))


def _is_cell(kind: pa.DataType) -> bool:
    """Whether cells of this type have a text: numbers, texts, booleans, dates and times."""
    bytes_of = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    others = (pa.types.is_nested, pa.types.is_interval, pa.types.is_duration)
    return not any(test(kind) for test in (*bytes_of, *others))


def _parquet_schema(source: str, part: Path) -> pa.Schema:
    try:
        return pq.read_schema(part)
    except (pa.ArrowException, OSError):
        raise InputError(f"source ({source}) is neither .csv, .tsv nor Parquet") from None


def _read_parquet(source: str, parts: Sequence[bytes]) -> pa.Table:
    tables: list[pa.Table] = []
    for part in parts:
        try:
            table = pq.ParquetFile(pa.BufferReader(part)).read()
        except (pa.ArrowException, OSError):
            raise InputError(f"source ({source}) is neither .csv, .tsv nor Parquet") from None
        if tables and table.schema.names != tables[0].schema.names:
            raise InputError(f"source ({source}) has parts with different columns")
        tables.append(table)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        raise InputError(f"source ({source}) has parts whose column types do not fit together") from None
