"""Compiles functions over arrays with numba, and keeps what was compiled for later processes where a folder can be written.

Numba looks for a folder beside the source, then in the cache of the user. A container may have neither: then each process
compiles again. NUMBA_CACHE_DIR names another folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function; other threads run while it does."""
    return _compiled(function)


def fast_kernel(function: F) -> F:
    """Compile a function whose sums of floats may be taken in another order than it is written."""
    return _compiled(function, fastmath=True)


def lean_kernel(function: F) -> F:
    """Compile without numba's runtime a function that is called for every record and makes no array.

    Otherwise each call would count the references to thirty arrays. That took more time than everything else, and still more
    on two cores at once.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: F, **options: bool) -> F:
    """Return a function that is compiled at its first call, or read from the cache."""
    every_option: dict[str, Any] = {"nogil": True, **options}
    try:
        compiled: Any = njit(cache=True, **every_option)(function)
    except RuntimeError:  # numba finds no folder that it can write
        compiled = njit(**every_option)(function)
    return cast("F", compiled)
