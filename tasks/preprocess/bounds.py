"""Private bounds of a number column: what the percentile mechanism is shown, and what becomes of its answers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LOW_PERCENTILE = 1.0
HIGH_PERCENTILE = 99.0


def candidate_histogram(values: pa.Array, candidates: tuple[float, ...]) -> NDArray[np.int64]:
    """How many values lie above candidate i - 1 and up to candidate i, i = 1 … candidates; shape (candidates + 1,).

    Entry 0 is empty: candidates are counted from 1, as `select_percentile` does, and values outside the public range were
    clamped to it. Nulls are left out. F(i), the sum up to entry i, is the number of values at most candidate i exactly.
    A row is in one entry at most. Private.
    """
    present = values.drop_null().to_numpy(zero_copy_only=False)
    index = np.searchsorted(np.asarray(candidates), present, side="left")
    index = np.minimum(index, len(candidates) - 1)
    return np.bincount(index + 1, minlength=len(candidates) + 1).astype(np.int64)


def released_bounds(low: int, high: int, candidates: tuple[float, ...]) -> tuple[float, float]:
    """The bounds from the numbers (from 1) of the two chosen candidates; swapped if they came out the wrong way round.

    Equal ones stay equal: the column itself widens what is too narrow for its bins (`NumberColumn.with_bounds`).
    DP: post-processing.
    """
    return candidates[min(low, high) - 1], candidates[max(low, high) - 1]
