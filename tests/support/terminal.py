"""A command on a terminal of its own, at which somebody types."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path

from tests.support.command_line import CommandLine


def _own_terminal() -> None:
    """Ctrl-C is a signal, whatever the parent ignores."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_terminal(
    cli: CommandLine, *arguments: str | Path, typed: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run to the end; one of the `typed` texts answers each prompt, and all that the terminal shows is standard output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        cli.command(*arguments),
        cwd=cli.home,
        env=cli.variables | {"COLUMNS": "200"},
        start_new_session=True,
        preexec_fn=_own_terminal,  # noqa: PLW1509
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown, left = b"", list(typed)
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        shown += piece
        if left and shown.endswith(b": "):
            text = left.pop(0)
            os.write(ours, f"{text}\n".encode())
    process.wait()
    os.close(ours)
    return subprocess.CompletedProcess(process.args, process.returncode, shown.decode())
