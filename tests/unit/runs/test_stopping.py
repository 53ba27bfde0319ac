"""A server that ends begins its command again, but not where the same stop has reached the command itself."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

COMMAND = """
import os, signal, sys, threading, time
from marginweave.base.interruption import INTERRUPTION, Stopped
from marginweave.runs import stopping
if stopping._SERVERS_ENDED in os.environ:
    os._exit(7)
INTERRUPTION.owns_process = True
stopping.obey_signals(lambda number: None)
def end_server():
    threading.Thread(target=stopping.begin_again, daemon=True).start()
    time.sleep(0.05)
def stop():
    os.kill(os.getpid(), signal.SIGTERM)
for event in sys.argv[1:]:
    try:
        {"server": end_server, "signal": stop}[event]()
    except Stopped:
        pass  # a library that waits for the server
time.sleep(30)
"""
"""Becomes a new process, with code 7, where the command is begun again."""


@pytest.mark.parametrize(
    ("events", "code"),
    [
        (["server"], 7),
        (["signal", "server"], 128 + signal.SIGTERM),
        (["server", "signal"], 128 + signal.SIGTERM),
    ],
)
def test_a_command_that_is_signalled_is_not_begun_again(events: list[str], code: int) -> None:
    """A service manager signals all processes at once, and the server can be the first to end."""
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND, *events],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
