"""Counts of a marginal, compiled."""

from __future__ import annotations

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.compiled import kernel


@kernel
def add_counts(
    part: Integers,
    layout: Integers,
    counted: Integers,
) -> None:  # pragma: no cover - compiled
    """Count the rows of `part`, shape (attributes, rows), by the attributes and sizes that are the rows of `layout`."""
    flat = np.zeros(part.shape[1], np.int64)
    for attribute, size in layout:
        values = part[attribute]
        for i in range(len(flat)):
            flat[i] = flat[i] * size + values[i]
    for cell in flat:
        counted[cell] += 1
