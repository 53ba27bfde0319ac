"""Arrow tables that wait in files: texts behind dictionaries that hold what occurs and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.tasks.checkpoint.codecs import unpack_table


@dataclass(frozen=True)
class TableBlocks:
    """The tables that `pack_table` packed, one at a time in memory; a pass over them can be repeated."""

    payloads: Sequence[bytes]

    def __iter__(self) -> Iterator[pa.Table]:
        return map(unpack_table, self.payloads)


def used_texts(values: pa.DictionaryArray) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.bool_]]:
    """The entries of a dictionary that occur, the position of every cell among them, and which cells are null (position 0).

    Files and slices carry dictionaries with entries that no row has; they must not be taken for values.
    """
    null = values.indices.is_null().to_numpy(zero_copy_only=False)
    indices = values.indices.fill_null(0).to_numpy(zero_copy_only=False) if null.any() else values.indices.to_numpy()
    size = len(values.dictionary)
    seen = np.bincount(indices[~null] if null.any() else indices, minlength=size) > 0
    if seen.all():
        return values.dictionary, indices, null
    places = np.cumsum(seen) - 1
    positions = np.maximum(places[indices], 0) if size else np.zeros(len(values), np.int64)
    return values.dictionary.filter(pa.array(seen)), positions, null


def compact_table(table: pa.Table) -> pa.Table:
    """The same cells: texts behind a dictionary of those that occur, with the smallest indices; one chunk a column."""
    return pa.table({name: _compact(_whole(table.column(name))) for name in table.column_names})


def plain_table(table: pa.Table) -> pa.Table:
    """The same cells without dictionaries."""
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def in_blocks(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of `rows` rows, the last one of fewer; at least one, as long as there is a table at all."""
    waiting: list[pa.Table] = []
    held, given = 0, False
    for table in tables:
        waiting.append(table)
        held += table.num_rows
        while held >= rows:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, rows)
            waiting, held = [whole.slice(rows)], held - rows
            given = True
    if held or (waiting and not given):
        yield pa.concat_tables(waiting)


def _whole(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _compact(values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        values = values.dictionary_encode()
    if not pa.types.is_dictionary(values.type):
        return values
    texts, positions, null = used_texts(values)
    kind = next(t for t in (np.int8, np.int16, np.int32) if len(texts) <= np.iinfo(t).max)
    indices = pa.array(positions.astype(kind), mask=null if null.any() else None)
    return pa.DictionaryArray.from_arrays(indices, texts)
