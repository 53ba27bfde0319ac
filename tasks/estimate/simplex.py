"""The nearest counts that are not negative and add up to a total."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]


def project_simplex(values: Array, total: float) -> Array:
    """The nearest point with no negative entry and the sum `total` >= 0: max(values - t, 0), t found by `to_simplex`.

    Any shape, float64. DP: post-processing.
    """
    nearest = np.array(values, np.float64, order="C")
    to_simplex(nearest.reshape(-1), float(total))
    return nearest


@njit(cache=True, nogil=True)
def to_simplex(values: Array, total: float) -> None:  # pragma: no cover - compiled
    """The same in place, for one axis.

    Michelot 1986: of the entries that are left, as many as lie below t = (their sum - total) / their number go, until none
    does; exact, and few passes where few entries are negative. A total that is not positive leaves zeros. DP: post-processing.
    """
    if values.size == 0 or total <= 0:
        values[:] = 0.0
        return
    values -= values.max()  # changes nothing but the rounding: the largest entry always stays positive
    left, threshold = values.size + 1, -np.inf
    while True:
        number, added = 0, 0.0
        for value in values:
            if value > threshold:
                number += 1
                added += value
        if number >= left:
            break
        left, threshold = number, (added - total) / number
    for i in range(values.size):
        values[i] = max(values[i] - threshold, 0.0)
