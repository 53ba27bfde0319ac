"""Merged values told apart again in synthetic records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marginweave.tasks.aggregate.selection.compress import Compression


def expand_records(
    records: NDArray[np.int32], compression: Compression, generator: np.random.Generator
) -> NDArray[np.int32]:
    """Synthetic records in the old codes: a merged value becomes one of its values, in proportion to their noisy counts.

    Counts below 0 stand for 0; where none is positive, the values are equally likely. Shape (rows, attributes).
    DP: post-processing.
    """
    expanded = np.empty_like(records)
    for attribute, (new, counts) in enumerate(zip(compression.codes, compression.counts, strict=True)):
        column = expanded[:, attribute]
        column[:] = np.unique(new, return_index=True)[1][records[:, attribute]]
        for merged in np.flatnonzero(np.bincount(new) > 1).tolist():
            values = np.flatnonzero(new == merged)
            rows = np.flatnonzero(records[:, attribute] == merged)
            weights = np.maximum(counts[values], 0.0)
            weights = weights if weights.any() else np.ones(len(values))
            column[rows] = generator.choice(values, len(rows), p=weights / weights.sum())
    return expanded
