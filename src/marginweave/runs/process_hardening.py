"""What the kernel does for a process that holds private rows: no core dump, no debugger of others, no file for all to write."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_DUMPABLE = 4
_WRITTEN_BY_OTHERS, _FOR_OTHERS = 0o022, 0o077


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Make every file that is created meanwhile the owner's alone, by libraries and child processes as well (umask 077)."""
    before = os.umask(_FOR_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def protect_process() -> None:
    """Forbid what would carry memory or files of this process to other users; to be called before a private row is read.

    - RLIMIT_CORE 0: a crash writes no core file; children have the same limit.
    - PR_SET_DUMPABLE 0 (Linux): no core goes to a handler either (a pipe in `core_pattern` is fed whatever the limit is), and
      no other process of the same user may attach to this one or read its memory. `exec` lifts it, so that a Prefect worker
      has to have its flow process call this again: the flow does.
    - umask 022 at least: what is not closed by a mode of its own cannot be written by group or others.

    For a process of our own, a command's or a worker's: a notebook that fits a synthesizer keeps the settings it has.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.umask(os.umask(_WRITTEN_BY_OTHERS) | _WRITTEN_BY_OTHERS)


def outlive_the_reader() -> None:
    """Drop what is printed once nobody reads it any more: rich, which Prefect prints with, would end the process.

    The output of a flow process goes to its worker; one that is killed must not take the release with it.
    """
    from rich.console import Console

    def drop(self: Console) -> None:  # noqa: ARG001
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)

    Console.on_broken_pipe = drop
