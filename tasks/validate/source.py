"""Reads the declared columns of a CSV, TSV or Parquet source as an Arrow table, and nothing else of it.

pyarrow's own messages quote rows, so none of them is ever passed on.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from marginweave.schemas.configuration import EXAMPLE_PREFIX
from marginweave.schemas.errors import InputError
from marginweave.tasks.validate.example import read_example

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_CHUNK = 1 << 20
_SMALL = 1 << 26


def read_source(source: str, columns: Sequence[str]) -> pa.Table:
    """The declared `columns` of `source` in declared order; texts for CSV, native types for Parquet.

    `source` is a path or `example:NAME`. A header without rows gives a table of zero rows.

    Raises:
        InputError: the source is absent, unreadable, has no header, repeats or lacks a declared column, is not UTF-8, or
            has a row with another number of fields than its header.
    """
    if source.startswith(EXAMPLE_PREFIX):
        return _select(read_example(source.removeprefix(EXAMPLE_PREFIX)), columns)
    path = Path(source)
    if path.suffix.lower() in DELIMITERS:
        return _read_text(path, DELIMITERS[path.suffix.lower()], columns)
    return _select(_read_parquet(path), columns)


def check_source(source: str, columns: Sequence[str]) -> None:
    """Refuse a source before a run begins: at once what its header tells, and, unless it is large, all of it.

    Raises:
        InputError: as `read_source`.
    """
    _check_columns(source_columns(source), columns)
    path = Path(source)
    if path.suffix.lower() in DELIMITERS and path.stat().st_size <= _SMALL:
        read_source(source, columns)


def source_columns(source: str) -> tuple[str, ...]:
    """Column names that the source has, in its own order; raises InputError as `read_source` does."""
    if source.startswith(EXAMPLE_PREFIX):
        return tuple(read_example(source.removeprefix(EXAMPLE_PREFIX)).column_names)
    path = Path(source)
    if path.suffix.lower() in DELIMITERS:
        return _header(path, DELIMITERS[path.suffix.lower()])
    return tuple(_parquet_schema(path).names)


def source_chunks(source: str) -> Iterator[bytes]:
    """The bytes of the source, for a keyed digest; the parts of a folder in the order of their names.

    Every part is preceded by its length, so that moving bytes from one part to the next changes the digest.
    """
    if source.startswith(EXAMPLE_PREFIX):
        table = read_example(source.removeprefix(EXAMPLE_PREFIX))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        yield sink.getvalue()
        return
    for part in _parts(Path(source)):
        yield part.stat().st_size.to_bytes(8, "big")
        with part.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk


def _parts(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            parts = sorted(p for p in path.iterdir() if p.suffix.lower() == ".parquet" and p.is_file())
            if not parts:
                raise InputError(f"source ({path}) is a folder without parquet files")
            return parts
        if not path.exists():
            raise InputError(f"source ({path}) does not exist")
        with path.open("rb"):
            return [path]
    except OSError as error:
        raise InputError(f"source ({path}) cannot be read: {error.strerror}") from None


def _select(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    _check_columns(table.column_names, columns)
    return table.select(list(columns))


def _check_columns(present: Sequence[str], columns: Sequence[str]) -> None:
    """Names of the source that were not declared are never repeated: a file without a header has data there."""
    missing = [name for name in columns if name not in present]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        raise InputError(f"source lacks the declared column {names}; does its first line hold the column names?")
    repeated = [name for name in columns if list(present).count(name) > 1]
    if repeated:
        raise InputError(f"source has the column {', '.join(map(repr, repeated))} more than once")


def _header(path: Path, delimiter: str) -> tuple[str, ...]:
    _parts(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file, delimiter=delimiter), None)
    except UnicodeDecodeError:
        raise InputError(f"source ({path}) must be UTF-8") from None
    except csv.Error:
        raise InputError(f"source ({path}) has a header that is not {path.suffix[1:].upper()}") from None
    except OSError as error:
        raise InputError(f"source ({path}) cannot be read: {error.strerror}") from None
    if not header:
        raise InputError(f"source ({path}) has no header: its first line must hold the column names")
    return tuple(name.strip() for name in header)


def _read_text(path: Path, delimiter: str, columns: Sequence[str]) -> pa.Table:
    header = _header(path, delimiter)
    _check_columns(header, columns)
    _check_quotes(path, delimiter)
    # Positions as names: a repeated name among the ignored columns must not stop the run.
    positions = [str(i) for i in range(len(header))]
    wanted = [str(header.index(name)) for name in columns]
    try:
        table = pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(column_names=positions, skip_rows=0),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise InputError(f"source ({path}) {_reason(str(error))}") from None
    except OSError as error:
        raise InputError(f"source ({path}) cannot be read: {error.strerror or 'input error'}") from None
    return table.slice(1).rename_columns(list(columns))


def _check_quotes(path: Path, delimiter: str) -> None:
    """Refuse a quote that stays open: pyarrow would take the rest of the file for one value, losing rows in silence."""
    with path.open("rb") as file:
        if sum(chunk.count(b'"') for chunk in iter(lambda: file.read(_CHUNK), b"")) % 2 == 0:
            return
    with path.open(encoding="utf-8", errors="replace", newline="") as text:
        try:
            for _ in csv.reader(text, delimiter=delimiter, strict=True):
                pass
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise InputError(f"source ({path}) has a quote that is never closed") from None


def _reason(message: str) -> str:
    if "UTF8" in message:
        return "must be UTF-8"
    if "Expected" in message and "columns" in message:
        return "has a row with another number of fields than its header"
    return "cannot be parsed"


def _parquet_schema(path: Path) -> pa.Schema:
    first = _parts(path)[0]
    try:
        return pq.read_schema(first)
    except (pa.ArrowInvalid, OSError):
        raise InputError(f"source ({path}) is neither .csv, .tsv nor Parquet") from None


def _read_parquet(path: Path) -> pa.Table:
    schema = _parquet_schema(path)
    tables = []
    for part in _parts(path):
        try:
            table = pq.ParquetFile(part).read()
        except (pa.ArrowInvalid, OSError):
            raise InputError(f"source ({path}) has a part that is not Parquet") from None
        if table.schema.names != schema.names:
            raise InputError(f"source ({path}) has parts with different columns")
        tables.append(table)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise InputError(f"source ({path}) has parts whose column types do not fit together") from None
