"""Homes that an earlier version has made: packed as test data by `tests/data/make_homes.py`, unpacked for a test."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

ARCHIVES = Path(__file__).resolve().parents[1] / "data" / "homes-0.1.0"
HOMES = ("gdp", "zcdp", "sds", "joint", "laplace")


def unpack_home(name: str, place: Path) -> Path:
    """The home `name` below `place`, as 0.1.0 left it; the paths of its requests are those of the copy."""
    home = place / name
    home.mkdir(mode=0o700)
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(home, filter="tar")
    for file in home.glob("runs/*/internal/request.json"):
        request = json.loads(file.read_text())
        moved = {key: str(home / Path(path).name) for key, path in request.items()}
        file.write_text(json.dumps(moved))
    return home
