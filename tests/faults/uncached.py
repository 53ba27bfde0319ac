"""The decorators of `marginweave.base.compiled`, of which nothing is kept: for a source with a fault in it."""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import njit

_COMPILE: Any = njit

kernel = partial(_COMPILE, nogil=True)
fast_kernel = partial(_COMPILE, nogil=True, fastmath=True)
lean_kernel = partial(_COMPILE, nogil=True, _nrt=False)
