"""The decorators of `marginweave.base.compiled`, of which nothing is kept: for a source with a fault in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit

kernel: Callable[..., Any] = partial(njit, nogil=True)
fast_kernel: Callable[..., Any] = partial(njit, nogil=True, fastmath=True)
lean_kernel: Callable[..., Any] = partial(njit, nogil=True, _nrt=False)
