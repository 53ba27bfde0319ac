"""Reports how far a long computation is to a listener: iterations alone, and nothing that depends on the table's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LISTENER: ContextVar[Callable[[str], None]] = ContextVar("listener", default=lambda _: None)


def listener() -> Callable[[str], None]:
    """Return the listener of the run, or one that does nothing; call it before threads are started."""
    return LISTENER.get()


@contextmanager
def progress_as(words: str) -> Iterator[None]:
    """Report these words whenever the computation inside reports how far it is."""
    report = listener()
    token = LISTENER.set(lambda _: report(words))
    try:
        yield
    finally:
        LISTENER.reset(token)


@contextmanager
def unreported() -> Iterator[None]:
    """Report nothing of the computation inside: it is not of the release that a listener waits for."""
    token = LISTENER.set(lambda _: None)
    try:
        yield
    finally:
        LISTENER.reset(token)
