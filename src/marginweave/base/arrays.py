"""Names of the array types that pass between modules; each use says what an array holds, and its shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.integer]
"""Codes of a column, in the smallest unsigned type that holds them, or as a stage needs them."""
Records = NDArray[np.int32]
"""Codes of synthetic records, shape (records, attributes)."""
Integers = NDArray[np.int64]
Counts = NDArray[np.int64]
"""Exact or noisy counts: noise is made in integers."""
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]
"""Random bits, 64 in each entry."""
