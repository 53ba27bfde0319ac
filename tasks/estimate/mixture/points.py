"""A mixture at single combinations: where a table of all of them would be too large."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]


@njit(cache=True, nogil=True)
def mixed_points(weights: Array, factors: Array, places: NDArray[np.int64]) -> Array:  # pragma: no cover - compiled
    """sum_k weights[k] prod_j factors[places[i, j], k] for each i, shape (n,).

    What a combination has in common with the one before it, from the first factor on, is not multiplied again: combinations in
    canonical order cost little more than one product of vectors each. DP: post-processing.

    Args:
        weights: shape (components,).
        factors: shape (rows, components).
        places: rows of the factors of each combination, at least one, shape (n, factors).
    """
    last = places.shape[1] - 1
    products = np.empty((last + 1, len(weights)))
    products[0] = weights
    found = np.empty(len(places))
    for i in range(len(places)):
        first = 0
        while i > 0 and first < last and places[i, first] == places[i - 1, first]:
            first += 1
        for j in range(first, last):
            for k in range(len(weights)):
                products[j + 1, k] = products[j, k] * factors[places[i, j], k]
        found[i] = np.dot(products[last], factors[places[i, last]])
    return found
