"""The home: the folder in which `runs/` lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from marginweave.base.errors import InputError, must_be
from marginweave.base.places import scheme_of


def home_directory(option: str | Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Where `runs/` lives: `--home`, else MARGINWEAVE_HOME, else the working directory."""
    must_be("home", option, (str, Path, type(None)), 'home="FOLDER"')
    named = option or environment.get("MARGINWEAVE_HOME")
    if scheme_of(str(named)) is not None:
        raise InputError(
            "home is a URL; it must be a folder on a disk of this machine: runs are locked and synced there"
        )
    try:
        place = Path(named or ".").expanduser().resolve()
        existing = next(path for path in (place, *place.parents) if path.exists())
    except (RuntimeError, OSError):
        raise InputError(f"home ({named}) cannot be found") from None
    if not existing.is_dir():
        raise InputError(f"home ({named}) must be a folder; {existing} is a file")
    return place


def service_directory(home: Path) -> Path:
    """Where Prefect and the ledger of the examples keep their files: in the home, never in the user's own folders."""
    return home / ".marginweave"
