"""How `run`, `resume` and `serve` obey SIGTERM and SIGINT: within two seconds, wherever the process is."""

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
_SERVERS_ENDED = "MARGINWEAVE_SERVERS_ENDED"  # when servers of this command ended that it had started, in seconds
_HOUR = 3600.0
UNFINISHED: list[Callable[[BaseException], None]] = []
"""What says that a run ends with an error, of each that is under way: also where its main thread does not end in time."""
_PATIENCE = 1.2  # seconds that the main thread has to end in an orderly way, draws aside


def obey_signals(last_words: Callable[[int], None]) -> None:
    """End this process, if it is ours, on SIGTERM or SIGINT with exit code 128 + signal, from now on.

    The main thread gets `Stopped`, after the draw that it is in. Where it does not end in time (compiled code, a library that
    waits) a second thread says `last_words` and ends the process: every file and row is written so that this loses nothing.
    A second signal ends it at once. A parent that ignores SIGINT, as a shell does for `marginweave serve … &`, changes nothing.
    """
    if not INTERRUPTION.ours:
        return
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    take_signals()
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading, last_words), daemon=True, name="signals").start()


def take_signals() -> None:
    """Take the two signals, in a process of our own: Prefect's engine takes SIGTERM when a flow begins."""
    if INTERRUPTION.ours:
        for number in _SIGNALS:
            signal.signal(number, _ask)


def begin_again() -> None:
    """Replace the process by a new one of the same command, as its Prefect server has ended; not within a draw.

    Not in a process of somebody else (a notebook).
    """
    while not INTERRUPTION.may_end:
        time.sleep(0.01)
    if not INTERRUPTION.ours:
        return
    ended = f"{os.environ.get(_SERVERS_ENDED, '')} {time.time():.0f}".strip()
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment | {_SERVERS_ENDED: ended})  # noqa: S606


def check_servers(log: Path) -> None:
    """Start a Prefect server in the place of one that has ended, but no third one within an hour.

    Raises:
        StageError: this would be the third.
    """
    ended = [float(moment) for moment in os.environ.get(_SERVERS_ENDED, "").split()]
    if sum(time.time() - moment < _HOUR for moment in ended) > 1:
        raise StageError(f"the Prefect server of this command ended twice; {log} says why. The same command resumes it")


def _ask(number: int, _frame: FrameType | None) -> None:
    if INTERRUPTION.asked is not None:
        os._exit(128 + number)
    INTERRUPTION.ask(number)


def _watch(pipe: int, last_words: Callable[[int], None]) -> None:
    """Wait for one of the signals, which the interpreter writes to the pipe at once, whatever the main thread does."""
    number = _next_signal(pipe, None)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end or not INTERRUPTION.may_end:
        if _next_signal(pipe, 0.02):
            os._exit(128 + number)
    for say in UNFINISHED:
        say(Stopped(number))
    last_words(number)
    os._exit(128 + number)


def _next_signal(pipe: int, seconds: float | None) -> int:
    """One of our signals, or 0 where none came in time."""
    while select.select([pipe], [], [], seconds)[0]:
        (number,) = os.read(pipe, 1)
        if number in _SIGNALS:
            return number
    return 0
