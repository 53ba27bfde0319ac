"""Protection by the kernel for a process that holds private rows: no core dump, no debugger, no file that others may write."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_DUMPABLE = 4
_WRITABLE_BY_OTHERS = 0o022
_OPEN_TO_OTHERS = 0o077


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Inside, make every new file readable by its owner only, also those of libraries and child processes (umask 077)."""
    previous_mask = os.umask(_OPEN_TO_OTHERS)
    try:
        yield
    finally:
        os.umask(previous_mask)


def protect_process() -> None:
    """Keep memory and files of this process from other users; call this before a private row is read.

    - RLIMIT_CORE 0: a crash writes no core file; children have the same limit.
    - PR_SET_DUMPABLE 0 (Linux): no core goes to a handler either (a pipe in `core_pattern` gets one whatever the limit is), and
      no other process of the same user may attach to this one or read its memory. `exec` resets it, so the flow calls this
      again in the process that a Prefect worker starts for it.
    - umask 022 at least: group and others cannot write a file, whatever mode it is created with.

    Only for processes that we start ourselves, of a command or a worker. A notebook that fits a synthesizer keeps its settings.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    current_mask = os.umask(_WRITABLE_BY_OTHERS)
    os.umask(current_mask | _WRITABLE_BY_OTHERS)


def outlive_the_reader() -> None:
    """Drop printed text once nobody reads it any more: rich, which Prefect prints with, would end the process.

    The output of a flow process goes to its worker. When the worker is killed, the release must still finish.
    """
    from rich.console import Console

    def drop(self: Console) -> None:  # noqa: ARG001
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)

    Console.on_broken_pipe = drop
