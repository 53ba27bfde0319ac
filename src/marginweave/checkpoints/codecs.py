"""Packs arrays and tables into bytes: the same input gives the same bytes, and reading them executes nothing."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.base.arrow import to_numpy

T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_EPOCH = (1980, 1, 1, 0, 0, 0)
_META = "meta.json"
# numpy parses an array's header as an expression. Of two threads that do so at once one may get a SystemError about the
# parser's depth of recursion (CPython, gh-106905), as seen where the garbage collector has a callback.
_PARSING = threading.Lock()


def pack_arrays(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Json]) -> bytes:
    """Return named arrays of any shape and plain dtype, and JSON, as an uncompressed npz of fixed dates.

    The arrays are numbered members (0.npy, …) in sorted order of name; `meta.json` holds the names.

    Raises:
        ValueError: an array of Python objects, or a number in `meta` that JSON does not have.
    """
    names = sorted(arrays)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        content = {"names": names, "meta": meta}
        head = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        archive.writestr(zipfile.ZipInfo(_META, _EPOCH), head)
        for index, name in enumerate(names):
            array = np.asanyarray(arrays[name])
            entry = zipfile.ZipInfo(f"{index}.npy", _EPOCH)
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def unpack_arrays(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays by name and the JSON that `pack_arrays` packed.

    Raises:
        ValueError, zipfile.BadZipFile: other bytes.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        head = json.loads(archive.read(_META))
        arrays: dict[str, NDArray[Any]] = {}
        for index, name in enumerate(head["names"]):
            content = archive.read(f"{index}.npy")
            start = content.find(b"\n") + 1
            with _PARSING:
                shape, by_columns, dtype = _header(content[:start])
            cells = bytearray(memoryview(content)[start:])
            flat = np.frombuffer(cells, dtype)
            arrays[name] = flat.reshape(shape, order="F" if by_columns else "C")
    return arrays, head["meta"]


@lru_cache(maxsize=1024)
def _header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether the first index runs fastest, and the dtype.

    Many headers are alike, and numpy takes .1 ms to parse one.
    """
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("the header of an array is of another version than 1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    return shape, by_columns, dtype


def pack_number(value: int) -> bytes:
    """Return the bytes of a released integer."""
    return pack_arrays({"value": np.array([value], np.int64)}, {})


def unpack_number(payload: bytes) -> int:
    """Return the integer that `pack_number` packed."""
    arrays, _ = unpack_arrays(payload)
    (value,) = arrays["value"]
    return int(value)


def pack_codes(codes: Sequence[NDArray[np.integer]]) -> bytes:
    """Return the bytes of codes of records, one array an attribute."""
    arrays = {f"{j:05d}": values for j, values in enumerate(codes)}
    return pack_arrays(arrays, {})


def unpack_codes(payload: bytes) -> tuple[NDArray[Any], ...]:
    """Return the codes that `pack_codes` packed."""
    arrays, _ = unpack_arrays(payload)
    return tuple(arrays[name] for name in sorted(arrays))


@dataclass(frozen=True)
class Unpacked(Generic[T]):
    """Packed codes or tables, unpacked one at a time on every pass over them."""

    unpack: Callable[[bytes], T]
    payloads: Sequence[bytes] = field(repr=False)

    def __iter__(self) -> Iterator[T]:
        return map(self.unpack, self.payloads)


def pack_table(table: pa.Table) -> bytes:
    """Return an Arrow table as an IPC stream, one record batch a chunk after the chunks are combined."""
    combined = table.combine_chunks()
    sink_of_sizes = pa.MockOutputStream()
    _write_stream(combined, sink_of_sizes)
    # A sink that grows would take twice the memory and leave holes in the heap.
    packed = bytearray(sink_of_sizes.size())
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(packed))
    _write_stream(combined, sink)
    return bytes(packed)


def _write_stream(table: pa.Table, sink: pa.NativeFile) -> None:
    """Write a table to a sink as an IPC stream."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def unpack_table(data: bytes) -> pa.Table:
    """Return the table that `pack_table` packed.

    Raises:
        pyarrow.ArrowInvalid: other bytes.
    """
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def used_texts(values: pa.DictionaryArray) -> tuple[pa.Array, Integers, Flags]:
    """Return the entries of a dictionary that occur, the position of every cell among them, and which cells are null.

    A null cell has position 0. Files and slices have dictionaries with entries that no row has, which are no values.
    """
    null = to_numpy(values.indices.is_null())
    if null.any():
        indices = to_numpy(values.indices.fill_null(0))
        indices_of_values = indices[~null]
    else:
        indices = values.indices.to_numpy()
        indices_of_values = indices
    cells_of_entry = np.bincount(indices_of_values, minlength=len(values.dictionary))
    occurs = cells_of_entry > 0
    if occurs.all():
        return values.dictionary, indices, null
    used = values.dictionary.filter(pa.array(occurs))
    place_of_entry = np.cumsum(occurs) - 1
    # a null cell may have an entry before those that occur, whose place is -1
    positions = np.maximum(place_of_entry[indices], 0)
    return used, positions, null


def compact_table(table: pa.Table) -> pa.Table:
    """Return the table with its texts behind a dictionary of those that occur, with the smallest indices, in one chunk."""
    return pa.table({name: _compact(table.column(name)) for name in table.column_names})


def plain_table(table: pa.Table) -> pa.Table:
    """Return the table without dictionaries."""
    fields = []
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        fields.append((name, plain))
    return table.cast(pa.schema(fields))


def in_blocks(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of `rows` rows, the last of fewer; at least one table, unless there is none."""
    pending = None
    has_yielded = False
    for table in tables:
        pending = table if pending is None else pa.concat_tables([pending, table])
        while pending.num_rows >= rows:
            yield pending.slice(0, rows)
            pending = pending.slice(rows)
            has_yielded = True
    if pending is not None and (pending.num_rows or not has_yielded):
        yield pending


def _compact(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one chunk, texts behind a dictionary of those that occur."""
    values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_string(values.type):
        values = values.dictionary_encode()
    if not pa.types.is_dictionary(values.type):
        return values
    texts, positions, null = used_texts(values)
    positions = positions.astype(_index_type(len(texts)))
    indices = pa.array(positions, mask=null if null.any() else None)
    return pa.DictionaryArray.from_arrays(indices, texts)


def _index_type(entries: int) -> type[np.signedinteger[Any]]:
    """Return the smallest type of indices into a dictionary of this many entries."""
    if entries <= np.iinfo(np.int8).max:
        return np.int8
    if entries <= np.iinfo(np.int16).max:
        return np.int16
    return np.int32
