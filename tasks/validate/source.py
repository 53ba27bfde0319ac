"""Reads the declared columns of a CSV, TSV or Parquet source as an Arrow table, and nothing else of it.

pyarrow's own messages quote rows, so none of them is ever passed on.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from marginweave.schemas.configuration import EXAMPLE_PREFIX
from marginweave.schemas.errors import InputError
from marginweave.tasks.validate.example import read_example

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_CHUNK = 1 << 20
_SMALL = 1 << 26
_BLOCK = 1 << 26  # a row must fit a block
csv.field_size_limit(_BLOCK)


@dataclass(frozen=True)
class LoadedSource:
    """All bytes of a source, read once: what is digested is what is parsed, even if the file changes meanwhile."""

    name: str
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
                are not UTF-8, or a row with another number of fields than the header.
        """
        delimiter = _delimiter(self.name)
        if delimiter:
            return _read_text(self.name, self.parts[0], delimiter, columns)
        if self.name.startswith(EXAMPLE_PREFIX):
            return _select(pa.ipc.open_stream(self.parts[0]).read_all(), columns)
        return _select(_read_parquet(self.name, self.parts), columns)


def load_source(source: str) -> LoadedSource:
    """Read a path, a folder of Parquet parts, or `example:NAME`.

    Raises:
        InputError: it is absent or unreadable.
    """
    if source.startswith(EXAMPLE_PREFIX):
        table = read_example(source.removeprefix(EXAMPLE_PREFIX))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return LoadedSource(source, (sink.getvalue(),))
    with _reading(source):
        return LoadedSource(source, tuple(part.read_bytes() for part in _parts(Path(source))))


def check_source(source: str, columns: Sequence[str]) -> None:
    """Refuse a source before a run begins: at once what its header tells, and, unless it is large, all of it.

    Raises:
        InputError: as `load_source` and `LoadedSource.table`.
    """
    _check_columns(source_columns(source), columns)
    if not source.startswith(EXAMPLE_PREFIX) and sum(part.stat().st_size for part in _parts(Path(source))) <= _SMALL:
        load_source(source).table(columns)


def source_columns(source: str) -> tuple[str, ...]:
    """Column names that the source has, in its own order; raises InputError as `load_source` does."""
    if source.startswith(EXAMPLE_PREFIX):
        return tuple(read_example(source.removeprefix(EXAMPLE_PREFIX)).column_names)
    first = _parts(Path(source))[0]
    delimiter = _delimiter(source)
    if delimiter:
        with _reading(source), first.open("rb") as file:
            return _header(source, file, delimiter)
    return tuple(_parquet_schema(source, first).names)


def source_chunks(source: str) -> Iterator[bytes]:
    """The bytes of the source, for a keyed digest; the parts of a folder in the order of their names.

    Every part is preceded by its length, so that moving bytes from one part to the next changes the digest.
    """
    if source.startswith(EXAMPLE_PREFIX):
        yield from load_source(source).chunks()
        return
    with _reading(source):
        for part in _parts(Path(source)):
            yield part.stat().st_size.to_bytes(8, "big")
            with part.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk


def _delimiter(source: str) -> str | None:
    return None if source.startswith(EXAMPLE_PREFIX) else DELIMITERS.get(Path(source).suffix.lower())


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
    _check_columns(table.column_names, columns)
    selected = table.select(list(columns))
    for name, declared in zip(columns, selected.schema.types, strict=True):
        kind = declared.value_type if pa.types.is_dictionary(declared) else declared
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise InputError(f"source has the column {name!r} with a type that is neither text nor number")
    return selected


def _check_columns(present: Sequence[str], columns: Sequence[str]) -> None:
    """Names of the source that were not declared are never repeated: a file without a header has data there."""
    missing = [name for name in columns if name not in present]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        plural = "s" if len(missing) > 1 else ""
        raise InputError(
            f"source lacks the declared column{plural} {names}; its first line must hold the column names, "
            "separated by commas in .csv and tabs in .tsv"
        )
    repeated = [name for name in columns if list(present).count(name) > 1]
    if repeated:
        raise InputError(f"source has the column {', '.join(map(repr, repeated))} more than once")


def _header(source: str, file: BinaryIO, delimiter: str) -> tuple[str, ...]:
    try:
        header = next(csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), delimiter=delimiter), None)
    except UnicodeDecodeError:
        raise InputError(f"source ({source}) must be UTF-8") from None
    except csv.Error:
        raise InputError(f"source ({source}) has a header that cannot be parsed") from None
    if not header:
        raise InputError(f"source ({source}) has no header: its first line must hold the column names")
    return tuple(name.strip() for name in header)


def _read_text(source: str, data: bytes, delimiter: str, columns: Sequence[str]) -> pa.Table:
    header = _header(source, io.BytesIO(data), delimiter)
    _check_columns(header, columns)
    _check_quotes(source, data, delimiter)
    # Positions as names: a repeated name among the ignored columns must not stop the run.
    positions = [str(i) for i in range(len(header))]
    wanted = [str(header.index(name)) for name in columns]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            read_options=pa_csv.ReadOptions(column_names=positions, block_size=max(_CHUNK, min(len(data), _BLOCK))),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        reason = _reason(str(error))
    else:
        return table.slice(1).rename_columns(list(columns))
    raise InputError(f"source ({source}) {reason}")


def _check_quotes(source: str, data: bytes, delimiter: str) -> None:
    """Refuse a quote that stays open: pyarrow would take the rest of the file for one value, losing rows in silence."""
    if data.count(b'"') % 2 == 0:
        return
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", errors="replace", newline="")
    try:
        for _ in csv.reader(text, delimiter=delimiter, strict=True):
            pass
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise InputError(f"source ({source}) has a quote that is never closed") from None


def _reason(message: str) -> str:
    if "UTF8" in message:
        return "must be UTF-8"
    if "Expected" in message and "columns" in message:
        return "has a row with another number of fields than its header"
    return "cannot be parsed"


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
