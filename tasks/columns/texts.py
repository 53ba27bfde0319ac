"""Distinct texts of a column: what is decided of a text is decided once, however many cells have it."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.configuration.columns.periods import DAY, day_number
from marginweave.tasks.arrow import compute as pc
from marginweave.tasks.checkpoint.codecs import used_texts

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of a second in each unit of Arrow's timestamps."""


def distinct_texts(values: pa.Array) -> tuple[pa.Array, NDArray[np.integer]]:
    """Distinct texts of a column and, for each cell, its position among them; null counts as the empty text.

    A native number has its shortest spelling; NaN and infinity, which frames write for a gap, count as null, and so does a
    date or moment outside the years 1 to 9999, which has no spelling. A text may stand there twice.
    DP: 1-stable preprocessing; the order of the texts is private, as they are.
    """
    if pa.types.is_dictionary(values.type):
        held, positions, null = used_texts(values)
    else:
        encoded = values.dictionary_encode()
        held, null = encoded.dictionary, encoded.indices.is_null().to_numpy(zero_copy_only=False)
        positions = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(held.type):
        held = pc.if_else(pc.is_finite(held), held, None)
    if pa.types.is_date(held.type) or pa.types.is_timestamp(held.type):
        held = pc.if_else(_has_year(held), held, None)
    texts = pc.fill_null(pc.cast(held, pa.string()), "")
    if not null.any():
        return texts, positions
    return pa.concat_arrays([texts, pa.array([""], pa.string())]), np.where(null, len(texts), positions)


def _has_year(values: pa.Array) -> pa.Array:
    """Whether native dates or moments lie in the years 1 to 9999."""
    if pa.types.is_timestamp(values.type):
        length = DAY * UNITS[values.type.unit]
    else:
        length = 1 if pa.types.is_date32(values.type) else DAY * UNITS["ms"]
    ticks = values.cast(pa.int32() if length == 1 else pa.int64()).cast(pa.int64())
    low, high = day_number(date.min) * length, (day_number(date.max) + 1) * length - 1
    if high >= 2**63:  # nanoseconds do not reach so far
        return values.is_valid()
    return pc.and_(pc.greater_equal(ticks, low), pc.less_equal(ticks, high))


def is_text(values: pa.Array) -> bool:
    """Whether the cells are texts, possibly behind a dictionary."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
