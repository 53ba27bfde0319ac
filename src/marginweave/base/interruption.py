"""Lets a signal stop this process at once, but never in the middle of a draw."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(BaseException):
    """A signal asked this process to end; `number` is the signal's. No `Exception`: no handler may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interruption:
    """State of this process: the signal that asked it to end, if any, and the draws that it is making.

    A draw that is cut short is made again byte for byte, and costs nothing; but until then the ledger shows it as begun.
    """

    def __init__(self) -> None:
        self.owns_process = (
            # whether a command or a service started this process, which may be ended and started again
            False
        )
        self.asked: int | None = None
        self._draws = 0

    @property
    def may_end(self) -> bool:
        """Return whether no draw is between its charge and its commit."""
        return not self._draws

    def ask(self, number: int) -> None:
        """Take signal `number`, in the main thread.

        Raises:
            Stopped: no draw is being made; otherwise `deferred` raises it after the draw.
        """
        self.asked = number
        if self.may_end:
            raise Stopped(number)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Delay a stop until the draw in this block has ended; raises Stopped then."""
        self._draws += 1
        try:
            yield
        finally:
            self._draws -= 1
        if self.asked is not None and self.may_end:
            raise Stopped(self.asked)


INTERRUPTION = Interruption()
