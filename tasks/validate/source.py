"""Reads the declared columns of a CSV, TSV or Parquet source as Arrow tables, and nothing else of it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from marginweave.schemas.configuration.source import EXAMPLE_PREFIX, SourceFile
from marginweave.schemas.errors import InputError
from marginweave.tasks.checkpoint.codecs import plain_table
from marginweave.tasks.validate.parquet_source import declared_types, parquet_schema, read_parquet
from marginweave.tasks.validate.text_source import check_columns, delimiter_of, read_header, read_text

_CHUNK = 1 << 20
_SMALL = 1 << 26


@dataclass(frozen=True)
class TableSource:
    """A source that is read some rows at a time, as often as it is asked for."""

    name: str
    form: SourceFile

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The declared `columns` in declared order, piece by piece, all of the same types; at least one, if without rows.

        Texts stand behind dictionaries, which may have entries that no row has; Parquet's other types as they are.

        Raises:
            InputError: no header, a declared column that is lacking, repeated or of a type that cannot be used, bytes that
                are not in the declared encoding, or a row with another number of fields than the header.
        """
        delimiter = delimiter_of(self.name, self.form)
        if delimiter:
            with _reading(self.name):
                yield from read_text(self.name, _parts(Path(self.name))[0], delimiter, columns, self.form)
        elif self.name.startswith(EXAMPLE_PREFIX):
            example = read_example(self.name.removeprefix(EXAMPLE_PREFIX))
            yield example.select(list(columns)).cast(declared_types(example.schema, columns))
        else:
            with _reading(self.name):
                yield from read_parquet(self.name, _parts(Path(self.name)), columns)

    def table(self, columns: Sequence[str]) -> pa.Table:
        """All of it at once, without dictionaries. Raises InputError as `tables`."""
        return plain_table(pa.concat_tables(self.tables(columns)))

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the source, for a keyed digest; the parts of a folder in the order of their names.

        Every part is preceded by its length, so that moving bytes from one part to the next changes the digest.
        """
        if self.name.startswith(EXAMPLE_PREFIX):
            content = _example_bytes(self.name)
            yield from (len(content).to_bytes(8, "big"), content)
            return
        with _reading(self.name):
            for part in _parts(Path(self.name)):
                yield part.stat().st_size.to_bytes(8, "big")
                with part.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        yield chunk

    def state(self) -> tuple[tuple[str, int, int, int, int], ...]:
        """Name, inode, size and times of every part: another one if a part was written to, even if it was written back."""
        if self.name.startswith(EXAMPLE_PREFIX):
            return ()
        with _reading(self.name):
            found = [(part.name, part.stat()) for part in _parts(Path(self.name))]
        return tuple((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found)


def check_source(source: str, columns: Sequence[str], form: SourceFile) -> None:
    """Refuse a source before a run begins: at once what its header tells, and, unless it is large, all of it.

    Raises:
        InputError: as `TableSource.tables`.
    """
    check_columns(source_columns(source, form), columns)
    if not source.startswith(EXAMPLE_PREFIX) and sum(part.stat().st_size for part in _parts(Path(source))) <= _SMALL:
        for _ in TableSource(source, form).tables(columns):
            pass


def source_columns(source: str, form: SourceFile) -> tuple[str, ...]:
    """Column names that the source has, in its own order; raises InputError as `TableSource.tables` does."""
    if source.startswith(EXAMPLE_PREFIX):
        return tuple(read_example(source.removeprefix(EXAMPLE_PREFIX)).column_names)
    first = _parts(Path(source))[0]
    delimiter = delimiter_of(source, form)
    if delimiter:
        with _reading(source), first.open("rb") as file:
            return read_header(source, file, delimiter, form)
    return tuple(parquet_schema(source, first).names)


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


EXAMPLES = ("affairs",)


def read_example(name: str) -> pa.Table:
    """The table of `example:NAME`; `affairs` is the survey of Fair (1978), 6366 x 9, from statsmodels.

    Raises:
        InputError: no such example, or statsmodels is not installed.
    """
    if name not in EXAMPLES:
        raise InputError(f"source (example:{name}) must be one of {', '.join('example:' + e for e in EXAMPLES)}")
    try:
        from statsmodels.datasets import fair
    except ImportError:
        raise InputError("source (example:affairs) needs statsmodels: pip install 'marginweave[examples]'") from None
    return pa.Table.from_pandas(fair.load_pandas().data, preserve_index=False)
