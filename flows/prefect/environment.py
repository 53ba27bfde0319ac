"""The process environment that Prefect is imported in, and how it is imported."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from marginweave.runs.home import service_directory

# Usage analytics go to other machines; a run talks to loopback only.
ANALYTICS_OFF = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
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
