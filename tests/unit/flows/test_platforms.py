"""Where it runs: Linux; macOS, which lacks calls of Linux, as far as these tests can tell; Windows gets a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marginweave.base.durable import Reserve, staged_file, write_once
from marginweave.base.parallel import available_cores


def test_windows_gets_a_sentence() -> None:
    """Without the locks of POSIX the command ends before it imports what needs them (exit 2), and says where it runs."""
    program = (
        "import sys; sys.modules['fcntl'] = None; from marginweave.flows.cli import main; main()"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert "inside WSL" in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_what_macos_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores are counted, room is set aside by zeros, and a file that is shorter than its room has nothing of it."""
    monkeypatch.delattr(os, "posix_fallocate")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert available_cores() == os.cpu_count()
    reserve = Reserve(tmp_path / "reserve", 5000)
    assert reserve.make()
    assert reserve.place.stat().st_blocks * 512 >= 5000
    with staged_file(tmp_path / "draw", 100) as staged:
        staged.write(b"drawn")
        staged.name_it()
    assert write_once(tmp_path / "once", b"whole")
    assert [(tmp_path / name).read_bytes() for name in ("draw", "once")] == [b"drawn", b"whole"]
