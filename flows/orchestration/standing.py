"""A Prefect server that stands in a home until somebody stops it, for releases that shall not wait for one of their own.

The server's process holds the lock on a file that says where it is: whoever finds the lock free knows that it has ended,
however it did.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from marginweave.flows.orchestration.environment import prepare_environment, service_directory
from marginweave.flows.orchestration.servers import alone_at_start, check_port, started
from marginweave.flows.run.stopping import begin_again
from marginweave.schemas.errors import InputError, StageError
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, at_place

_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class StandingServer:
    """Where the server of a home is."""

    process: int
    port: int

    @property
    def pages(self) -> str:
        """The address of Prefect's pages."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address of Prefect's API."""
        return f"{self.pages}/api"


def standing_server(home: Path) -> StandingServer | None:
    """The server that stands in `home`, or is about to; None where there is none."""
    try:
        with _lock_file(home).open() as file:
            return None if _taken(file.fileno()) else StandingServer(**json.loads(file.read()))
    except (OSError, ValueError):  # there is no file, or nothing in it so far
        return None


def answers(server: StandingServer) -> bool:
    """Whether its API does."""
    try:
        urllib.request.urlopen(f"{server.url}/health", timeout=5).close()  # noqa: S310 - loopback
    except OSError:
        return False
    return True


def start_server(home: Path, port: int) -> StandingServer:
    """Start a server in `home` that stays when this process ends; the one that stands already, if there is one.

    Raises:
        InputError: the port is taken, or the environment names another server.
        MachineError: the disk refuses.
        StageError: the server does not start, or another process starts one right now.
    """
    if "PREFECT_API_URL" in os.environ:
        raise InputError("PREFECT_API_URL is set: releases use the server that it names; unset it first")
    if server := standing_server(home):
        return server
    place = service_directory(home)
    prepare_environment(home)
    with at_place(place, "created"):
        (place / "prefect").mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(_lock_file(home), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
    with os.fdopen(descriptor, "r+") as file:
        if not _taken(file.fileno()):
            raise StageError("another process starts a server in this home right now")
        file.truncate()
        check_port(port)
        with alone_at_start(place / "prefect"):
            process, _ = started(place / "prefect", place / "prefect-server.log", port, keeping=file.fileno())
        server = StandingServer(process.pid, port)
        file.write(json.dumps(asdict(server)))
    return server


def stop_server(home: Path) -> StandingServer | None:
    """Stop the server of `home`; None where none stood. A release that uses it starts one of its own and goes on."""
    server = standing_server(home)
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + _STOP_SECONDS
        with suppress(ProcessLookupError):
            while server and standing_server(home) == server and time.monotonic() < end:
                os.kill(server.process, number)
                time.sleep(0.1)
    return server


@contextmanager
def used(home: Path, server: StandingServer) -> Iterator[str]:
    """The URL of the server that stands, which the environment names meanwhile; where it ends, the command begins again."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            if standing_server(home) != server and not over.is_set():
                begin_again()
                return

    threading.Thread(target=watch, daemon=True, name="server").start()
    os.environ["PREFECT_API_URL"] = server.url
    try:
        yield server.url
    finally:
        over.set()
        os.environ.pop("PREFECT_API_URL", None)


def _lock_file(home: Path) -> Path:
    return service_directory(home) / "server.json"


def _taken(descriptor: int) -> bool:
    """Whether the lock was free, and is ours until the file is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
