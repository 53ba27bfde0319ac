"""`protect_process` as the kernel sees it afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.protection_hook import heard, witness

_CALL = "import os; os.umask({umask}); from marginweave.runs.process_hardening import protect_process; {call}"


@pytest.mark.parametrize(
    ("umask", "kept"), [(0, 0o022), (0o002, 0o022), (0o022, 0o022), (0o077, 0o077), (0o027, 0o027)]
)
def test_nothing_is_dumped_and_nothing_written_by_others(
    tmp_path: Path, umask: int, kept: int
) -> None:
    """No core file, not dumpable, and a umask that is never wider than 022 and otherwise the user's own."""
    call = "protect_process(); protect_process()"
    environment = {**os.environ, **witness(tmp_path / "hook")}
    subprocess.run(
        [sys.executable, "-c", _CALL.format(umask=umask, call=call)], env=environment, check=True
    )
    (seen,) = heard(tmp_path / "hook")
    assert (seen["core"], seen["dumpable"], seen["umask"]) == ([0, 0], 0, kept)


def test_the_witness_can_tell(tmp_path: Path) -> None:
    """A process that is not protected says so: the test above has power."""
    environment = {**os.environ, **witness(tmp_path / "hook")}
    subprocess.run(
        [sys.executable, "-c", _CALL.format(umask=0, call="pass")], env=environment, check=True
    )
    (seen,) = heard(tmp_path / "hook")
    assert (seen["dumpable"], seen["umask"]) == (1, 0)
