"""What goes wrong during the soak, each kind as often as the others, at random moments."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.soak.services import Stand

FULL_SECONDS = 40.0  # as long as a disk stays full
DISK = "1g"  # of the runs


def _flow(stand: Stand) -> None:
    for process in stand.flows()[:1]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _worker(stand: Stand) -> None:
    stand.worker.kill()


def _both(stand: Stand) -> None:
    stand.worker.kill()
    for process in stand.flows():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _stopped_worker(stand: Stand) -> None:
    stand.worker.kill(signal.SIGTERM)


def _server(stand: Stand) -> None:
    stand.server.kill()


def _cut(stand: Stand) -> None:
    """Every connection of the ledger is cut."""
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'ledger'"
    stand.databases.run(stand.databases.text(), cut)


def _database(stand: Stand) -> None:
    """PostgreSQL stops at once, for ledger and Prefect alike, and recovers when it is started again."""
    stand.database.kill(signal.SIGQUIT)


def _full_disk(stand: Stand) -> None:
    """The disk of the runs has no room for a while."""
    runs = stand.home / "runs"
    ballast = runs / "ballast"
    with suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
    end = time.monotonic() + FULL_SECONDS
    while time.monotonic() < end:
        stand.look()
        time.sleep(1)
    ballast.unlink()


def _supervisor(stand: Stand) -> None:
    stand.supervisor.kill()


FAULTS: dict[str, Callable[[Stand], None]] = {
    "flow killed": _flow,
    "worker killed": _worker,
    "worker and flows killed": _both,
    "worker stopped (SIGTERM)": _stopped_worker,
    "Prefect's server killed": _server,
    "ledger's connections cut": _cut,
    "PostgreSQL stopped at once": _database,
    "disk of the runs full": _full_disk,
    "supervisor killed": _supervisor,
}


def mounted(runs: Path) -> None:
    """A disk of its own for the runs, so that one can be full; root alone may mount."""
    runs.mkdir(exist_ok=True)
    if not runs.is_mount():
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(runs)], check=True
        )
