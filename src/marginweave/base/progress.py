"""How far a long computation is, told to whoever listens: iterations alone, and nothing that depends on the table's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LISTENER: ContextVar[Callable[[str], None]] = ContextVar("listener", default=lambda _: None)


def listener() -> Callable[[str], None]:
    """What the run says progress to, or what hears nothing; to be asked for before threads are started."""
    return LISTENER.get()


@contextmanager
def told_as(words: str) -> Iterator[None]:
    """Tell these words whenever the computation inside says how far it is."""
    say = listener()
    token = LISTENER.set(lambda _: say(words))
    try:
        yield
    finally:
        LISTENER.reset(token)
