"""Imports of what takes seconds, without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import inside, at the start of a process of our own: nothing is looked through for garbage, then or later.

    What is imported stays until the end, and looking through it, again and again while it grows, takes a fifth of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
