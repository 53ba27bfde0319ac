"""Reads columns of an Arrow file (Feather, version 2), a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from marginweave.sources.parts import Part


def arrow_schema(part: Part) -> pa.Schema:
    """Return the names and types of its columns. Raises ArrowException or OSError if it is no Arrow file."""
    with _opened(part) as reader:
        return reader.schema


def arrow_batches(part: Part, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the named columns, at most `rows` at a time; one batch of the file is in memory.

    Raises ArrowException or OSError if it is no Arrow file.
    """
    places = [arrow_schema(part).get_field_index(name) for name in columns]
    with _opened(part, pa.ipc.IpcReadOptions(included_fields=places)) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _opened(
    part: Part, options: pa.ipc.IpcReadOptions | None = None
) -> pa.ipc.RecordBatchFileReader:
    place = part.for_arrow()
    file = place if isinstance(place, pa.NativeFile) else pa.OSFile(str(place))
    return pa.ipc.open_file(file, options=options)
