"""The lock of a run: one holder at a time, also where the folder of a refused run is removed meanwhile."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from marginweave.flows.run.lookup import run_lock
from marginweave.schemas.errors import InputError
from marginweave.tasks.checkpoint.run_folder import RunFolder


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path, "refused")
    with pytest.raises(InputError), run_lock(folder):
        raise InputError("no")
    assert not folder.path.exists()
    with run_lock(folder):
        (folder.path / "begun").touch()
    assert {file.name for file in folder.path.iterdir()} == {".lock", "begun"}


def test_nobody_is_inside_with_another_while_folders_come_and_go(tmp_path: Path) -> None:
    """Eight threads take the lock, and each removes the folder when it goes: never are two inside."""
    folder, inside, most, entered = RunFolder.at(tmp_path, "run"), [0], [0], list[int]()

    def work() -> None:
        for _ in range(60):
            with run_lock(folder, waiting=True):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                entered.append(inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, entered) == ([1], [1] * 480)
