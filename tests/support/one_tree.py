"""The product as one tree: its wheel, unpacked. In a checkout its folders lie apart, and tools that follow imports need one."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from tests.support.places import REPOSITORY

FOLDERS = {
    "marginweave/flows": "flows",
    "marginweave/tasks": "tasks",
    "marginweave/schemas": "schemas",
}


@cache
def unpacked_wheel() -> Path:
    """Build the wheel of this checkout, and return a folder that has its content until this process ends."""
    place = Path(tempfile.mkdtemp(prefix="marginweave-tree-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    unpack_wheel(place)
    return place


def unpack_wheel(folder: Path, checkout: Path = REPOSITORY) -> None:
    """Build the wheel of `checkout` and unpack it into `folder`; nothing of an earlier build is in it."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    with tempfile.TemporaryDirectory() as temporary:
        work = [
            "--config-settings=--build-option=build",
            f"--config-settings=--build-option=--build-base={temporary}/b",
        ]
        subprocess.run(
            [*build, *work, "--wheel-dir", temporary, str(checkout)],
            check=True,
            capture_output=True,
        )
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


def tracked_files() -> set[str]:
    """Return the names that the tracked files of the product have in a wheel, such as marginweave/flows/release.py."""
    command = ["git", "ls-files", "flows", "tasks", "schemas", "src/marginweave"]
    paths = subprocess.run(
        command, cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.split()
    return {
        path.removeprefix("src/") if path.startswith("src/") else f"marginweave/{path}"
        for path in paths
    }


def module_of(file: str) -> str:
    """Return the module that a file of a wheel is: `marginweave.flows` of marginweave/flows/__init__.py."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
