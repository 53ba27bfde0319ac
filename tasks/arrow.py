"""pyarrow's compute functions, which come into being when it is loaded: type checkers do not know their names."""

from __future__ import annotations

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
