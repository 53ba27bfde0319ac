"""The process environment that Prefect and Great Expectations are imported in, and how they are imported."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from marginweave.schemas.errors import InputError, must_be
from marginweave.schemas.places import scheme_of

# Usage analytics go to other machines; a run talks to loopback only.
ANALYTICS_OFF = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "GX_ANALYTICS_ENABLED": "false"}
# Prefect's console lines would drown the progress; its own log goes to a file of the run instead.
QUIET = {
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_LOGGING_COLORS": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
}
# The database of a server of our own stops growing: Prefect forgets flow runs, with logs and artifacts, after 90 days.
RETENTION = {"PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs"}

# Process id of `marginweave serve`, for the releases that it starts: they end with it, and go on at its next start.
SERVICE = "MARGINWEAVE_SERVICE"


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


def makes_database(home: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a server of our own would make its database first."""
    return "PREFECT_API_URL" not in environment and not (service_directory(home) / "prefect" / "prefect.db").exists()


def prepare_environment(home: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Switch analytics off, and give Prefect a place in the home; must run before it is imported."""
    environment.update(ANALYTICS_OFF)
    own_home = str(service_directory(home) / "prefect")
    if "PREFECT_API_URL" in environment:
        environment.setdefault("PREFECT_HOME", own_home)
    else:
        # Our own server for one run: nobody reads logs there. A server that was named keeps the settings it came with.
        environment.update(QUIET | {name: environment.get(name, value) for name, value in RETENTION.items()})
        environment["PREFECT_HOME"] = own_home


@contextmanager
def importing() -> Iterator[None]:
    """Import inside, at the start of a process of our own: nothing is looked through for garbage, then or later.

    What is imported stays until the end, and looking through it, again and again while it grows, takes a fifth of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
