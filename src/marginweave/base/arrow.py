"""pyarrow's compute functions, whose names type checkers do not know, and its types by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow.compute

compute: Any = pyarrow.compute


def cell_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type of the cells, which may stand behind a dictionary."""
    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def is_text(kind: pyarrow.DataType) -> bool:
    """Whether cells of this type are texts, possibly behind a dictionary."""
    cell, types = cell_type(kind), pyarrow.types
    return bool(types.is_string(cell) or types.is_large_string(cell) or types.is_string_view(cell))


def is_cell(kind: pyarrow.DataType) -> bool:
    """Whether cells of this type have a text: numbers, texts, booleans, dates and times."""
    types = pyarrow.types
    bytes_of = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    others = (types.is_nested, types.is_interval, types.is_duration)
    return not isinstance(kind, pyarrow.BaseExtensionType) and not any(test(kind) for test in (*bytes_of, *others))


_PARAMETERS = re.compile(
    r"timestamp\[(\w+), tz=(.+)\]|decimal128\((\d+), (\d+)\)|dictionary<values=(.+), indices=int32, ordered=([01])>"
)
# Of pandas' own dtypes those that Arrow's type alone would not become again.
_DTYPES = re.compile(r"U?Int\d+|Float\d+|boolean|str|string|([a-z]+\d*(_string)?|(date|timestamp)\S*\[.+\])\[pyarrow\]")


def schema_types(schema: pyarrow.Schema, names: Iterable[str]) -> dict[str, str]:
    """The type of each of these columns, as far as there is such a column, once: `int64`, or of pandas `int64 (Int64)`.

    It is Arrow's name of it, but for the width of a dictionary's indices, which follows from how many values the data have, and
    for views of texts behind one, which Arrow can make nothing of.
    """
    described, found = (schema.pandas_metadata or {}).get("columns", []), {}
    dtypes = {column.get("name"): str(column.get("numpy_type")) for column in described}
    for name in names:
        place = schema.get_field_index(name)
        kind = pyarrow.null() if place < 0 else schema.field(place).type
        if pyarrow.types.is_dictionary(kind):
            cell = pyarrow.string() if pyarrow.types.is_string_view(kind.value_type) else kind.value_type
            kind = pyarrow.dictionary(pyarrow.int32(), cell, kind.ordered)
        if cell_type(kind) != pyarrow.null() and named_type(str(kind)) == kind:
            dtype = dtypes.get(name, "")
            found[name] = f"{kind} ({dtype})" if _DTYPES.fullmatch(dtype) else str(kind)
    return found


def named_type(name: str | None) -> pyarrow.DataType | None:
    """The type that `schema_types` has named so; None for another name."""
    with suppress(ValueError, TypeError):
        text = (name or "").partition(" (")[0]
        found = _PARAMETERS.fullmatch(text)
        if found is None:
            return pyarrow.type_for_alias(text)
        unit, zone, digits, scale, values, ordered = found.groups()
        if zone:
            return pyarrow.timestamp(unit, zone)
        if digits:
            return pyarrow.decimal128(int(digits), int(scale))
        return pyarrow.dictionary(pyarrow.int32(), named_type(values), ordered == "1")
    return None
