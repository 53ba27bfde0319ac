"""All cells of a table in memory as bytes, which the keyed digest of a frame is of: by them the ledger knows it again.

They follow from the columns in their order, their names, types and cells: not from how they lie in memory, such as in chunks or
behind a dictionary, and not from what a configuration declares. The index of pandas is no column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from marginweave.base.arrow import cell_type, is_text
from marginweave.base.arrow import compute as pc

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 1 << 16
_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object in memory: another one in every process
_TEXT = "text"


def frame_chunks(frame: Any) -> Iterator[bytes]:
    """The bytes of a frame of pandas or of an Arrow table, column by column, each with its name, its type and its length."""
    is_arrow = isinstance(frame, pa.Table)
    names = frame.column_names if is_arrow else list(frame.columns)
    yield _length(len(names))
    for place, name in enumerate(names):
        cells = frame.column(place) if is_arrow else _series_cells(frame.iloc[:, place])
        kind = cells.type
        while isinstance(kind, pa.BaseExtensionType) or cell_type(kind) != kind:
            kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else cell_type(kind)
        head = json.dumps([_spelled(name), _TEXT if is_text(kind) else str(kind), len(cells)]).encode()
        yield _length(len(head)) + head
        for start in range(0, len(cells), _ROWS):
            yield from _block_bytes(cells.slice(start, _ROWS))


def _series_cells(series: pd.Series[Any]) -> pa.Array | pa.ChunkedArray:
    """The cells of a column of pandas by its dtype alone; what Arrow has no type for as texts."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        return _series_cells(pd.Series(dtype.categories)).take(pa.array(codes, mask=codes < 0))
    if isinstance(dtype, pd.SparseDtype):
        return _series_cells(series.sparse.to_dense())
    try:  # of `object` Arrow would infer a type from the cells
        return pa.array(series, pa.string() if _is_object(dtype) else None, from_pandas=True)
    except (ValueError, TypeError, ArithmeticError, RuntimeError, pa.ArrowException):
        return pa.array([_spelled(cell).encode("utf-8", "backslashreplace") for cell in series], pa.large_binary())


def _is_object(dtype: Any) -> bool:
    import pandas as pd

    return not isinstance(dtype, pd.StringDtype | pd.ArrowDtype) and pd.api.types.is_object_dtype(dtype)


def _spelled(cell: Any) -> str:
    """A text of any Python object, the same in every process, also of one that has none."""
    try:
        return _text(cell)
    except Exception:
        return type(cell).__name__


def _text(cell: Any) -> str:
    if isinstance(cell, Mapping):
        return f"{{{', '.join(f'{_spelled(key)}: {_spelled(value)}' for key, value in cell.items())}}}"
    if isinstance(cell, set | frozenset):
        return f"{{{', '.join(sorted(map(_spelled, cell)))}}}"
    if isinstance(cell, list | tuple):
        return f"[{', '.join(map(_spelled, cell))}]"
    if isinstance(cell, str | bytes):
        return repr(cell)
    if isinstance(getattr(cell, "shape", None), tuple):  # numpy leaves out what is long
        return _spelled(cell.tolist())
    return f"{type(cell).__name__} {_PLACE.sub('', str(cell))}"


def _block_bytes(block: pa.Array | pa.ChunkedArray) -> Iterator[bytes]:
    """The bytes of some rows: which have a value, and the values."""
    array = pa.concat_arrays(map(_plain, block.chunks)) if isinstance(block, pa.ChunkedArray) else _plain(block)
    present = pc.is_valid(array).to_numpy(zero_copy_only=False)
    yield np.packbits(present).tobytes()
    kind, types = array.type, pa.types
    if types.is_large_binary(kind):
        yield from _text_bytes(array)
    elif types.is_boolean(kind):
        yield np.packbits(pc.fill_null(array, False).to_numpy(zero_copy_only=False)).tobytes()
    elif types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        yield _fixed_bytes(array, present)
    elif not types.is_null(kind):
        yield _nested_bytes(array)


def _plain(array: pa.Array) -> pa.Array:
    """The cells themselves: of any kind of text or bytes in one layout, and of a dictionary what its places stand for."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return _plain(array.dictionary).take(array.indices)
    if isinstance(array, pa.RunEndEncodedArray):
        rows = np.arange(array.offset, array.offset + len(array))
        return _plain(array.values).take(pa.array(np.searchsorted(array.run_ends.to_numpy(), rows, side="right")))
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return array.cast(pa.large_binary()) if is_bytes or is_text(kind) else array


def _text_bytes(array: pa.Array) -> Iterator[bytes]:
    """The length of each text, and then the texts."""
    cells = pc.fill_null(array, b"") if array.null_count else array
    _, offsets, content = cells.buffers()
    places = np.frombuffer(offsets, "<i8")[cells.offset : cells.offset + len(cells) + 1]
    yield np.diff(places).tobytes()
    if content is not None and len(places):
        yield memoryview(content)[places[0] : places[-1]].tobytes()


def _fixed_bytes(array: pa.Array, present: np.ndarray[Any, np.dtype[np.bool_]]) -> bytes:
    """Values of one width, zeros in the place of those that are missing: what lies there follows from nothing."""
    width = array.type.bit_width // 8
    content = array.buffers()[1]
    if content is None or not len(array):
        return b""
    cells = np.frombuffer(content, np.uint8, len(array) * width, array.offset * width).reshape(len(array), width)
    return (cells if array.null_count == 0 else cells * present[:, None]).tobytes()


def _nested_bytes(array: pa.Array) -> bytes:
    """Lists and the like as Arrow writes them."""
    with suppress(pa.ArrowException):  # a copy, which has nothing of what lies in memory beside the rows
        array = array.cast(_without_views(array.type)).take(pa.array(np.arange(len(array))))
    return pa.record_batch([array], ["cells"]).serialize().to_pybytes()


def _without_views(kind: pa.DataType) -> pa.DataType:
    """The type with texts in one layout, in which lists and records of them can be copied."""
    if is_text(kind):
        return pa.large_string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_views(field.type)) for field in kind])
    return kind


def _length(number: int) -> bytes:
    return number.to_bytes(8, "big")
