"""The bin of a number or a date, by public edges."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.configuration.columns import DateColumn, NumberColumn
from marginweave.schemas.configuration.columns.periods import DAY

_MONDAY = 3  # 1970-01-01 was a Thursday


def bin_numbers(values: pa.Array, column: NumberColumn) -> NDArray[np.int64]:
    """Bin codes of float64 `values`, clamped to the bounds; null becomes the missing code, the number of bins."""
    bins = len(column.edges) - 1
    numbers = values.fill_null(column.edges[0]).to_numpy(zero_copy_only=False)
    code = np.searchsorted(np.asarray(column.edges), numbers, side="right") - 1
    np.clip(code, 0, bins - 1, out=code)
    return _missing(values, code, bins)


def bin_dates(values: pa.Array, column: DateColumn) -> NDArray[np.int64]:
    """Bin codes of dates inside the bounds; null becomes the missing code, the number of bins."""
    whole = values.cast(pa.int32() if column.type == "date" else pa.int64())
    units = whole.fill_null(column.edges[0]).to_numpy(zero_copy_only=False).astype(np.int64)
    if column.bins == "weekday":
        code = (units * column.seconds // DAY + _MONDAY) % 7
    else:
        code = np.searchsorted(np.asarray(column.edges), units, side="right") - 1
        np.clip(code, 0, len(column.labels) - 1, out=code)
    return _missing(values, code, len(column.labels))


def _missing(values: pa.Array, code: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    if values.null_count:
        code[values.is_null().to_numpy(zero_copy_only=False)] = bins
    return code
