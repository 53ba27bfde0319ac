"""One integer for each row of codes, in the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

LIMIT = 2**62
"""Numbers of rows stay below it."""


def row_keys(columns: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> tuple[IntArray, int]:
    """Number the rows of a table of codes so that the numbers sort as the rows do, column by column.

    The mixed-radix number sum_j code_j * prod_{i>j} size_i; wherever it would leave 62 bits, the digits so far are replaced
    by their ranks among the rows, which keeps order and equality. Two rows have the same key exactly when they are equal.

    Args:
        columns: Codes of each column, shape (n,), 0 <= code < size.
        sizes: Number of codes of each column, each below 2^31, as the number of rows is.

    Returns:
        The keys, shape (n,), int64, and a number that is above all of them. DP: post-processing.
    """
    keys, bound = columns[0].astype(np.int64), sizes[0]
    for codes, size in zip(columns[1:], sizes[1:], strict=True):
        if bound * size >= LIMIT:
            distinct, keys = np.unique(keys, return_inverse=True)
            bound = len(distinct)
        keys = keys * size + codes
        bound *= size
    return keys, bound
