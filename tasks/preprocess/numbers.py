"""Cleaning of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marginweave.schemas.configuration.columns import NumberColumn
from marginweave.schemas.configuration.values import NUMBER_PATTERN, declared_number
from marginweave.tasks.preprocess.texts import is_text

_NUMBER = f"^{NUMBER_PATTERN}$"


def clean_number(values: pa.Array, column: NumberColumn, missing: Sequence[str]) -> pa.Array:
    """Texts or numbers to float64 inside the bounds: x -> min(max(x, lower), upper).

    docs/sources/data-processing.md. Nulls are preserved; NaN, infinity and a text that is no number are missing (`outside:
    error` stopped before). Private bounds clamp to their public range.
    """
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = pc.cast(values, pa.float64(), safe=False)
    else:
        numbers = _parse(values, missing)
    array = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    array[~np.isfinite(array) & ~_beyond(values, array)] = np.nan
    absent = [float(value) for text in missing if (value := declared_number(text.strip())) is not None]
    if absent:
        array[np.isin(array, absent)] = np.nan
    np.clip(array, *column.clamp, out=array)
    return pa.array(array, mask=np.isnan(array))


def _parse(values: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Texts to numbers; null for what is missing or no number."""
    if pa.types.is_dictionary(values.type):
        return _parse(values.dictionary, missing).take(values.indices)
    texts = pc.utf8_trim_whitespace(pc.cast(values, pa.string()))
    known = pc.match_substring_regex(texts, _NUMBER)
    given = pa.array([text.strip() for text in missing], pa.string())
    known = pc.and_not(known, pc.is_in(texts, value_set=given))
    return pc.cast(pc.if_else(known, texts, None), pa.float64())


def _beyond(values: pa.Array, array: np.ndarray) -> np.ndarray:
    """Where a text spells a finite number beyond the range of doubles: it is clamped like any other."""
    return np.isinf(array) if is_text(values) else np.zeros(len(array), np.bool_)
