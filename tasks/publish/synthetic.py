"""The files of the synthetic table, written block by block: the same bytes however the records are cut into blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from marginweave.tasks.checkpoint.files import DigestedStream, streamed_file
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.publish.tables import CSV_OPTIONS, PARQUET_OPTIONS, ROW_GROUP, as_written


class TableWriter(Protocol):
    """Writes a table of which it is given one part after the other."""

    def write(self, table: pa.Table) -> None:
        """Take the next rows."""

    def close(self) -> None:
        """Write what is left."""


class ParquetParts:
    """Parquet in row groups of fixed size, without statistics (`parquet_bytes`)."""

    def __init__(self, stream: DigestedStream, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(stream, schema, **PARQUET_OPTIONS)
        self._left = schema.empty_table()
        self._written = False

    def write(self, table: pa.Table) -> None:
        """Write the row groups that are full."""
        rows = pa.concat_tables([self._left, table])
        full = rows.num_rows - rows.num_rows % ROW_GROUP
        for start in range(0, full, ROW_GROUP):
            self._group(rows.slice(start, ROW_GROUP))
        self._left = rows.slice(full)

    def close(self) -> None:
        """Write the last row group, which may be smaller; a table without rows has one, which is empty."""
        if self._left.num_rows or not self._written:
            self._group(self._left)
        self._writer.close()

    def _group(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks(), row_group_size=ROW_GROUP)
        self._written = True


class CsvParts:
    """CSV with one header (`csv_bytes`)."""

    def __init__(self, stream: DigestedStream, schema: pa.Schema) -> None:
        self._writer = pa_csv.CSVWriter(stream, as_written(schema.empty_table()).schema, write_options=CSV_OPTIONS)

    def write(self, table: pa.Table) -> None:
        """Write the rows."""
        self._writer.write_table(as_written(table))

    def close(self) -> None:
        """Nothing is left."""
        self._writer.close()


_KINDS: dict[str, Callable[[DigestedStream, pa.Schema], TableWriter]] = {
    "synthetic.parquet": ParquetParts,
    "synthetic.csv": CsvParts,
}


def write_synthetic(place: Path, tables: Iterable[pa.Table]) -> dict[str, str]:
    """Write `synthetic.parquet` and `synthetic.csv` to the folder `place`, block by block, and return their SHA-256 by name.

    `tables` has at least one table. DP: post-processing.

    Raises:
        MachineError: the disk refuses; what stood there stands.
    """
    blocks = iter(tables)
    first = next(blocks)
    with ExitStack() as files:
        streams = {name: files.enter_context(streamed_file(place / name)) for name in _KINDS}
        writers = [kind(streams[name], first.schema) for name, kind in _KINDS.items()]
        _write(writers, first)
        for table in blocks:
            _write(writers, table)
        for writer in writers:
            writer.close()
        return {name: stream.digest for name, stream in streams.items()}


def _write(writers: Sequence[TableWriter], table: pa.Table) -> None:
    """Give the rows to every writer, all at once."""
    for _ in LocalEngine().map(lambda writer: writer.write(table), writers):
        pass
