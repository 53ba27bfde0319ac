"""Stops that a signal asks for: at once, but never within the milliseconds of a draw."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(BaseException):
    """A signal asked this process to end; `number` is the signal's. No `Exception`: nothing may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interruption:
    """Whether this process has been asked to end, and whether it is in the middle of a draw.

    A draw that is cut short is made again byte for byte, and costs nothing; but whoever looks meanwhile finds it begun.
    """

    def __init__(self) -> None:
        self.ours = False  # whether this process is a command's or a service's own, which may be ended and begun again
        self.asked: int | None = None
        self._draws = 0

    @property
    def may_end(self) -> bool:
        """Whether no draw is between its charge and its commit."""
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
        """Let a draw come to its end before a stop that is asked for meanwhile; raises Stopped then."""
        self._draws += 1
        try:
            yield
        finally:
            self._draws -= 1
        if self.asked is not None and self.may_end:
            raise Stopped(self.asked)


INTERRUPTION = Interruption()
