"""What one worker of the suite starts, and all of them use."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all workers of this run of the suite have."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """The folder, in which the first worker that asks for it has made something."""
    with (folder.with_name(f"{folder.name}.lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_name(f"{folder.name}.made")
        if not done.exists():
            make(folder)
            done.touch()
    return folder


@contextmanager
def started_once(
    folder: Path, start: Callable[[Path], AbstractContextManager[str]]
) -> Iterator[str]:
    """The address of what the first worker that asks for it starts in the folder. That worker waits for the others' end."""
    address = folder / "address"
    with (folder / "users.lock").open("w") as users, (folder / "start.lock").open("w") as starting:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(starting, fcntl.LOCK_EX)
        if address.exists():
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield address.read_text()
            return
        with start(folder) as made:
            address.write_text(made)
            fcntl.flock(starting, fcntl.LOCK_UN)
            try:
                yield made
            finally:
                fcntl.flock(users, fcntl.LOCK_EX)
                address.unlink()
