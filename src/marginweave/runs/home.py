"""Home: the folder in which `runs/` lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from marginweave.base.errors import InputError, must_be
from marginweave.base.places import scheme_of


def home_directory(option: str | Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which `runs/` lives: `--home`, else MARGINWEAVE_HOME, else the working directory.

    Raises:
        InputError: it is a URL or a file, or cannot be found.
    """
    must_be("home", option, (str, Path, type(None)), 'home="FOLDER"')
    named = option or environment.get("MARGINWEAVE_HOME")
    if scheme_of(str(named)) is not None:
        raise InputError(
            "home is a URL; it must be a folder on a disk of this machine: runs are locked and synced there"
        )
    try:
        place = Path(named or ".").expanduser().resolve()
        existing = place
        while not existing.exists():
            existing = existing.parent
    except (RuntimeError, OSError):
        raise InputError(f"home ({named}) cannot be found") from None
    if not existing.is_dir():
        raise InputError(f"home ({named}) must be a folder; {existing} is a file")
    return place


def service_directory(home: Path) -> Path:
    """Return the folder of Prefect's files and of the ledger for examples: in the home, never in the user's own folders."""
    return home / ".marginweave"
