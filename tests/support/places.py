"""Where the repository is, its examples, the installed program, test tables that are not part of it, and files in memory."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALLED = Path(sys.executable).parent / "marginweave"
EXAMPLES = REPOSITORY / "deployments" / "examples"
DATA = Path(os.environ.get("MARGINWEAVE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))


def in_memory() -> Path | None:
    """A folder in memory, if there is one with room: nothing waits for a disk, and no machine stops during a test."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30 else None
