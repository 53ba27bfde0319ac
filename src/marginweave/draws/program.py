"""Computes the identity of the running program: a run is resumed by the program that began it, or refused."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from marginweave.base.errors import StageError
from marginweave.released.program import Program

_PACKAGES = ("marginweave", "marginweave.flows", "marginweave.schemas", "marginweave.tasks")
# Files that a wheel installs (pyproject.toml, package-data); caches and an editor's backups are not code.
_INSTALLED = frozenset(
    {".py", ".typed", ".j2", ".html", ".md", ".css", ".js", ".json", ".yaml", ".csv"}
)


@cache
def program_identity() -> Program:
    """Return version, and SHA-256 over name, length and bytes of every installed file of the program, in order of names.

    A file counts once, under its name in a wheel: there all packages are below `marginweave/`, in a checkout they are not.

    Raises:
        StageError: a package of the program is not installed.
    """
    files: dict[str, Path] = {}
    for package in _PACKAGES:
        folder = package.replace(".", "/")
        root = _folder_of(package)
        for path in root.rglob("*"):
            if path.suffix in _INSTALLED:
                files[f"{folder}/{path.relative_to(root).as_posix()}"] = path
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return Program(version=version("marginweave"), digest=digest.hexdigest())


def _folder_of(package: str) -> Path:
    """Return the folder of an installed package, or refuse a package that is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise StageError(f"the program is not completely installed: {package} is missing")
    return Path(next(iter(spec.submodule_search_locations)))
