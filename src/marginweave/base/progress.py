"""How far a long computation is, told to whoever listens: iterations alone, and nothing that depends on the table's rows."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

LISTENER: ContextVar[Callable[[str], None]] = ContextVar("listener", default=lambda _: None)


def listener() -> Callable[[str], None]:
    """What the run says progress to, or what hears nothing; to be asked for before threads are started."""
    return LISTENER.get()
