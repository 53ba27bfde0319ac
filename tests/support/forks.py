"""Processes forked from the one of the tests: as warm as it is, and free to be killed or to change what they like."""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

RAISED = 97
"""The exit code of a fork whose work has raised an error: the traceback is in its standard error."""


@dataclass(frozen=True)
class Ended:
    """How a fork has ended: its exit code, or the negative number of the signal, and what it has said."""

    code: int
    message: str


class Fork:
    """A process that does `work` and ends with the exit code that this returns."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object
        self.pid = os.fork()
        if self.pid == 0:
            _end_with(work, self._out, self._err)

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return _text(self._out)

    @property
    def err(self) -> str:
        """What it has written to standard error so far."""
        return _text(self._err)

    def wait(self, seconds: float = 400) -> int:
        """Return the exit code, or the negative number of the signal that ended it; kill it where it takes longer."""
        if not self.has_ended(seconds):
            self.kill()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within some time."""
        descriptor = os.pidfd_open(self.pid)
        ended, _, _ = select.select([descriptor], [], [], seconds)
        os.close(descriptor)
        return bool(ended)

    def wait_until_stopped(self) -> None:
        """Wait until it has stopped itself by a signal."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), (os.waitstatus_to_exitcode(status), self.err)

    def go_on(self) -> None:
        """Wake it after a stop."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Send it SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)


def _text(stream: IO[bytes]) -> str:
    """Read a file that another process appends to, whose place in it is also ours: without moving that."""
    return os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0).decode()


def _end_with(work: Callable[[], int], out: IO[bytes], err: IO[bytes]) -> NoReturn:
    """Do the work with streams of its own, without what pytest and its plugins have registered for their end."""
    code = RAISED
    try:
        atexit._clear()
        _redirect(out, err)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(out: IO[bytes], err: IO[bytes]) -> None:
    with Path(os.devnull).open("rb") as nothing:
        for number, stream in enumerate((nothing, out, err)):
            os.dup2(stream.fileno(), number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
