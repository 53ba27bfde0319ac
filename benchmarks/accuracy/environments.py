"""Environments of peers: each holds one peer with what its requirements file pins, and nothing of this project."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import venv
from pathlib import Path

PLACE = Path(__file__).parent
REQUIREMENTS = PLACE / "requirements"


def pinned(package: str) -> str:
    """The version of a peer."""
    lines = (REQUIREMENTS / f"{package}.txt").read_text(encoding="utf-8").splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{package}=="))


def environment(package: str, folder: Path) -> Path | None:
    """The interpreter of an environment with a peer in `folder`, made if it is not there; None if it cannot be had.

    Its name has the digest of the requirements: other versions are another environment.
    """
    wanted = REQUIREMENTS / f"{package}.txt"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()[:8]
    place = folder / f"{package}-{pinned(package)}-{digest}"
    python, complete = place / "bin" / "python", place / "complete"
    if complete.exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        wanted,
    ]
    done = subprocess.run([python, *install], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    complete.touch()
    return python
