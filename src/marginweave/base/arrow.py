"""Gives pyarrow's compute functions, whose names type checkers do not know, and its types by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow.compute

compute: Any = pyarrow.compute


def to_numpy(values: pyarrow.Array) -> Any:
    """Return the values of an array as NumPy's, shape (values,); a copy where Arrow packs them, as it does booleans."""
    return values.to_numpy(zero_copy_only=False)


def cell_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type of the cells, which may be behind a dictionary."""
    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def is_text(kind: pyarrow.DataType) -> bool:
    """Return whether cells of this type are texts, possibly behind a dictionary."""
    cell = cell_type(kind)
    types = pyarrow.types
    return bool(types.is_string(cell) or types.is_large_string(cell) or types.is_string_view(cell))


def is_cell(kind: pyarrow.DataType) -> bool:
    """Return whether cells of this type have a text: numbers, texts, booleans, dates and times."""
    types = pyarrow.types
    if isinstance(kind, pyarrow.BaseExtensionType):
        return False
    are_bytes = (
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_binary_view,
    )
    have_no_text = (*are_bytes, types.is_nested, types.is_interval, types.is_duration)
    return not any(test(kind) for test in have_no_text)


_PARAMETERS = re.compile(
    r"timestamp\[(\w+), tz=(.+)\]|decimal128\((\d+), (\d+)\)|dictionary<values=(.+), indices=int32, ordered=([01])>"
)
# Dtypes of pandas that do not follow from Arrow's type alone.
_DTYPES = re.compile(
    r"U?Int\d+|Float\d+|boolean|str|string|([a-z]+\d*(_string)?|(date|timestamp)\S*\[.+\])\[pyarrow\]"
)


def schema_types(schema: pyarrow.Schema, names: Iterable[str]) -> dict[str, str]:
    """Return the type of each of these columns that the schema has once: `int64`, or for pandas `int64 (Int64)`.

    It is Arrow's name of the type with two exceptions. The indices of a dictionary are `int32`, as their width depends on the
    number of values in the data; and views of texts behind a dictionary are texts, as Arrow cannot name them.
    """
    described = (schema.pandas_metadata or {}).get("columns", [])
    named: dict[str, str] = {}
    dtypes = {column.get("name"): str(column.get("numpy_type")) for column in described}
    for name in names:
        place = schema.get_field_index(name)
        kind = pyarrow.null() if place < 0 else schema.field(place).type
        if pyarrow.types.is_dictionary(kind):
            cell = (
                pyarrow.string()
                if pyarrow.types.is_string_view(kind.value_type)
                else kind.value_type
            )
            kind = pyarrow.dictionary(pyarrow.int32(), cell, kind.ordered)
        if cell_type(kind) != pyarrow.null() and named_type(str(kind)) == kind:
            dtype = dtypes.get(name, "")
            named[name] = f"{kind} ({dtype})" if _DTYPES.fullmatch(dtype) else str(kind)
    return named


def named_type(name: str | None) -> pyarrow.DataType | None:
    """Return the type with this name from `schema_types`; None for another name."""
    with suppress(ValueError, TypeError):
        text = (name or "").partition(" (")[0]
        parameters = _PARAMETERS.fullmatch(text)
        if parameters is None:
            return pyarrow.type_for_alias(text)
        unit, zone, digits, scale, values, ordered = parameters.groups()
        if zone:
            return pyarrow.timestamp(unit, zone)
        if digits:
            return pyarrow.decimal128(int(digits), int(scale))
        return pyarrow.dictionary(pyarrow.int32(), named_type(values), ordered == "1")
    return None
