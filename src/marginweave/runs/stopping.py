"""Signals for `run`, `resume` and `serve`: SIGTERM and SIGINT end them within two seconds, wherever the process is."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from marginweave.base.errors import StageError
from marginweave.base.interruption import INTERRUPTION, Stopped

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# times (seconds) at which servers ended that this command had started
_SERVERS_ENDED = "MARGINWEAVE_SERVERS_ENDED"
_HOUR = 3600.0
UNFINISHED: list[Callable[[BaseException], None]] = []
"""For each run in progress, a function that reports its end by an error, also where its main thread does not end in time."""
_PATIENCE = 1.2  # seconds that the main thread has to end in an orderly way, not counting a draw
_SIGNALLED = (
    threading.Event()
)  # set when a signal has come, also where the main thread has not handled it yet
# Seconds for which an ended server may be the first that one stop has reached: a service manager signals all processes.
_SERVER_FIRST = 0.5


def obey_signals(last_words: Callable[[int], None]) -> None:
    """From now on, end this process, if it is ours, on SIGTERM or SIGINT with exit code 128 + signal.

    The main thread gets `Stopped`, after the draw that it is in. Where it does not end in time (compiled code, a library that
    waits) a second thread says `last_words` and ends the process: every file and row is written so that this loses nothing.
    A second signal ends it at once. A parent that ignores SIGINT, as a shell does for `marginweave serve … &`, changes nothing.
    """
    if not INTERRUPTION.owns_process:
        return
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    take_signals()
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    watcher = threading.Thread(
        target=_watch, args=(read_end, last_words), daemon=True, name="signals"
    )
    watcher.start()


def take_signals() -> None:
    """Handle the two signals, if this process is ours. Prefect's engine takes SIGTERM for itself when a flow begins."""
    if INTERRUPTION.owns_process:
        for number in _SIGNALS:
            signal.signal(number, _handle)


def begin_again() -> None:
    """Replace the process by a new one of the same command, because its Prefect server has ended; never within a draw.

    Does nothing in a process that is not ours (a notebook), nor in one that has been signalled, or is within `_SERVER_FIRST`:
    this one ends.
    """
    if not INTERRUPTION.owns_process:
        return
    deadline = time.monotonic() + _SERVER_FIRST
    while time.monotonic() < deadline or not INTERRUPTION.may_end:
        if _SIGNALLED.wait(0.01):
            return
    earlier_times = os.environ.get(_SERVERS_ENDED, "")
    environment = dict(os.environ)
    environment.pop("PREFECT_API_URL", None)
    environment[_SERVERS_ENDED] = f"{earlier_times} {time.time():.0f}".strip()
    command = [sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)  # noqa: S606


def check_servers(log: Path) -> None:
    """Refuse to start a third Prefect server within an hour, in the place of servers that have ended.

    Raises:
        StageError: this would be the third.
    """
    end_times = [float(moment) for moment in os.environ.get(_SERVERS_ENDED, "").split()]
    recent_ends = sum(time.time() - moment < _HOUR for moment in end_times)
    if recent_ends > 1:
        raise StageError(
            f"the Prefect server of this command ended twice; {log} says why. The same command resumes it"
        )


def _handle(number: int, _frame: FrameType | None) -> None:
    if INTERRUPTION.asked is not None:
        os._exit(128 + number)
    INTERRUPTION.ask(number)


def _watch(pipe: int, last_words: Callable[[int], None]) -> None:
    """Wait for one of the signals, which the interpreter writes to the pipe at once, whatever the main thread does."""
    number = _next_signal(pipe, None)
    _SIGNALLED.set()
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline or not INTERRUPTION.may_end:
        if _next_signal(pipe, 0.02):
            os._exit(128 + number)
    for report_stop in UNFINISHED:
        report_stop(Stopped(number))
    last_words(number)
    os._exit(128 + number)


def _next_signal(pipe: int, seconds: float | None) -> int:
    """Return the next of our two signals, or 0 where none came within `seconds` (None waits without a limit)."""
    while select.select([pipe], [], [], seconds)[0]:
        (number,) = os.read(pipe, 1)
        if number in _SIGNALS:
            return number
    return 0
