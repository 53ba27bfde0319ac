"""Tries the lowest and the newest versions of dependencies that pyproject.toml allows: `make test-versions`.

An environment for each, in a folder that is removed; in it some tests of every stage, the ledger and the command line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.places import REPOSITORY

RESOLUTIONS = ("lowest-direct", "highest")
SMOKE = (
    "tests/unit/schemas",
    "tests/unit/prepare",
    "tests/unit/ledger/test_accounts_and_reservations.py",
    "tests/unit/publish/test_report.py",
    "tests/system/test_release.py",
)


def passes(resolution: str, place: Path) -> bool:
    """Whether the tests pass with the versions that a resolution chooses."""
    uv, python = [sys.executable, "-m", "uv"], str(place / "bin" / "python")
    extras = ".[dask,examples,test]"
    commands = (
        [*uv, "venv", "--quiet", "--python", sys.executable, str(place)],
        # --python: uv would install into the environment that it is itself in
        [
            *uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            "--resolution",
            resolution,
            "--editable",
            extras,
        ],
        [python, "-m", "pytest", "-q", "--numprocesses", "auto", "--dist", "loadfile", *SMOKE],
    )
    return not any(
        subprocess.run(command, cwd=REPOSITORY, check=False).returncode for command in commands
    )


def main() -> None:
    """End with 1 where one of them does not pass."""
    with tempfile.TemporaryDirectory() as folder:
        passed = {
            resolution: passes(resolution, Path(folder) / resolution) for resolution in RESOLUTIONS
        }
    sys.exit(
        "; ".join(f"the {name} versions do not pass" for name, well in passed.items() if not well)
        or 0
    )


if __name__ == "__main__":
    main()
