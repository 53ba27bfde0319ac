"""All cells of a table in memory as bytes. The ledger recognizes a frame by their keyed digest.

The bytes depend on the columns in their order, their names, types and cells. They do not depend on the layout in memory, such
as chunks or a dictionary, nor on what a configuration declares. The index of pandas is not a column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from marginweave.base.arrow import cell_type, is_text, to_numpy
from marginweave.base.arrow import compute as pc

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 1 << 16
# address of an object in memory, different in every process
_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")
_TEXT = "text"


def frame_chunks(frame: Any) -> Iterator[bytes]:
    """Yield the bytes of a frame of pandas or of an Arrow table by columns, each with its name, type and length."""
    is_arrow = isinstance(frame, pa.Table)
    names = frame.column_names if is_arrow else list(frame.columns)
    yield _length(len(names))
    for place, name in enumerate(names):
        cells = frame.column(place) if is_arrow else _series_cells(frame.iloc[:, place])
        kind = _stored_type(cells.type)
        kind_name = _TEXT if is_text(kind) else str(kind)
        head = json.dumps([_spelled(name), kind_name, len(cells)]).encode()
        yield _length(len(head)) + head
        for start in range(0, len(cells), _ROWS):
            yield from _block_bytes(cells.slice(start, _ROWS))


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the cells behind extension types, dictionaries and the like."""
    while isinstance(kind, pa.BaseExtensionType) or cell_type(kind) != kind:
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else cell_type(kind)
    return kind


def _series_cells(series: pd.Series[Any]) -> pa.Array | pa.ChunkedArray:
    """Return the cells of a column of pandas by its dtype alone; those that Arrow has no type for become texts."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        return _series_cells(pd.Series(dtype.categories)).take(pa.array(codes, mask=codes < 0))
    if isinstance(dtype, pd.SparseDtype):
        return _series_cells(series.sparse.to_dense())
    # For dtype `object` Arrow would infer a type from the cells.
    try:
        return pa.array(series, pa.string() if _is_object(dtype) else None, from_pandas=True)
    except (ValueError, TypeError, ArithmeticError, RuntimeError, pa.ArrowException):
        texts = [_spelled(cell).encode("utf-8", "backslashreplace") for cell in series]
        return pa.array(texts, pa.large_binary())


def _is_object(dtype: Any) -> bool:
    import pandas as pd

    if isinstance(dtype, pd.StringDtype | pd.ArrowDtype):
        return False
    return pd.api.types.is_object_dtype(dtype)


def _spelled(cell: Any) -> str:
    """Return a text for any Python object, the same in every process; the name of its class where it has no text."""
    try:
        return _text(cell)
    except Exception:
        return type(cell).__name__


def _text(cell: Any) -> str:
    if isinstance(cell, Mapping):
        items = [f"{_spelled(key)}: {_spelled(value)}" for key, value in cell.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(cell, set | frozenset):
        members = sorted(map(_spelled, cell))
        return "{" + ", ".join(members) + "}"
    if isinstance(cell, list | tuple):
        return "[" + ", ".join(map(_spelled, cell)) + "]"
    if isinstance(cell, str | bytes):
        return repr(cell)
    # the text of a long numpy array leaves cells out
    if isinstance(getattr(cell, "shape", None), tuple):
        return _spelled(cell.tolist())
    return f"{type(cell).__name__} {_PLACE.sub('', str(cell))}"


def _block_bytes(block: pa.Array | pa.ChunkedArray) -> Iterator[bytes]:
    """Yield the bytes of a block of rows: first which rows have a value, then the values."""
    is_chunked = isinstance(block, pa.ChunkedArray)
    array = pa.concat_arrays(map(_plain, block.chunks)) if is_chunked else _plain(block)
    present = to_numpy(pc.is_valid(array))
    yield np.packbits(present).tobytes()
    types = pa.types
    kind = array.type
    if types.is_large_binary(kind):
        yield from _text_bytes(array)
    elif types.is_boolean(kind):
        flags = to_numpy(pc.fill_null(array, False))
        yield np.packbits(flags).tobytes()
    elif types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        yield _fixed_bytes(array, present)
    elif not types.is_null(kind):
        yield _nested_bytes(array)


def _plain(array: pa.Array) -> pa.Array:
    """Return the cells themselves: all kinds of text or bytes in one layout, and the values behind a dictionary."""
    types = pa.types
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return _plain(array.dictionary).take(array.indices)
    if isinstance(array, pa.RunEndEncodedArray):
        rows = np.arange(array.offset, array.offset + len(array))
        run_of_row = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
        return _plain(array.values).take(pa.array(run_of_row))
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return array.cast(pa.large_binary()) if is_bytes or is_text(kind) else array


def _text_bytes(array: pa.Array) -> Iterator[bytes]:
    """Yield the length of each text (int64), and then the texts."""
    cells = pc.fill_null(array, b"") if array.null_count else array
    _, offsets, content = cells.buffers()
    first = cells.offset
    places = np.frombuffer(offsets, "<i8")[first : first + len(cells) + 1]
    yield np.diff(places).tobytes()
    if content is not None and len(places):
        yield memoryview(content)[places[0] : places[-1]].tobytes()


def _fixed_bytes(array: pa.Array, present: np.ndarray[Any, np.dtype[np.bool_]]) -> bytes:
    """Return values of a fixed width, zeros in the place of missing ones, whose bytes in memory are arbitrary."""
    width = array.type.bit_width // 8
    content = array.buffers()[1]
    if content is None or not len(array):
        return b""
    flat = np.frombuffer(content, np.uint8, len(array) * width, array.offset * width)
    cells = flat.reshape(len(array), width)
    if array.null_count:
        cells = cells * present[:, None]
    return cells.tobytes()


def _nested_bytes(array: pa.Array) -> bytes:
    """Return lists and the like as Arrow writes them."""
    with suppress(pa.ArrowException):  # a copy, without the bytes around the rows in memory
        array = array.cast(_without_views(array.type))
        array = array.take(pa.array(np.arange(len(array))))
    return pa.record_batch([array], ["cells"]).serialize().to_pybytes()


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type with texts in one layout, in which lists and records of them can be copied."""
    if is_text(kind):
        return pa.large_string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        fields = [(field.name, _without_views(field.type)) for field in kind]
        return pa.struct(fields)
    return kind


def _length(number: int) -> bytes:
    return number.to_bytes(8, "big")
