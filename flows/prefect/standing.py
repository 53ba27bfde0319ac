"""A Prefect server that keeps running in a home until somebody stops it, so that releases need not start one.

Its process holds a lock: whoever finds the lock free knows that the server has ended, however it did.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from marginweave.base.durable import PRIVATE_MODE, at_place, replace_file
from marginweave.base.errors import InputError
from marginweave.runs.home import service_directory
from marginweave.runs.lookup import exclusive_lock
from marginweave.runs.stopping import begin_again

from .environment import prepare_environment
from .servers import alone_at_start, check_port, started

_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class StandingServer:
    """Process and port of the server of a home."""

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
    """The server that runs in `home`; None where there is none, or it has not answered yet."""
    try:
        with _lock(home).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # the server has it
        with suppress(OSError, ValueError):
            return StandingServer(**json.loads(_facts(home).read_text()))
    except OSError:
        pass
    return None


def start_server(home: Path, port: int) -> StandingServer:
    """Start a server in `home` that goes on when this process ends; the one that runs already, if there is one.

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
    with exclusive_lock(_lock(home), "another process starts a server in this home right now") as lock:
        with at_place(_facts(home), "removed"):
            _facts(home).unlink(missing_ok=True)
        check_port(port)
        with alone_at_start(place / "prefect"):
            process, _ = started(place / "prefect", place / "prefect-server.log", port, keeping=lock)
        server = StandingServer(process.pid, port)
        replace_file(_facts(home), json.dumps(asdict(server)).encode(), PRIVATE_MODE)
    return server


def stop_server(home: Path) -> StandingServer | None:
    """Stop the server of `home`; None where none ran. A release that uses it starts its own and continues."""
    server = standing_server(home)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if server is not None and standing_server(home) == server:
            with suppress(ProcessLookupError):
                os.kill(server.process, number)
            end = time.monotonic() + _STOP_SECONDS
            while standing_server(home) == server and time.monotonic() < end:
                time.sleep(0.1)
    return server


@contextmanager
def used(home: Path, server: StandingServer) -> Iterator[str]:
    """The URL of the running server, which the environment names meanwhile; where it ends, the command begins again."""
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


def _lock(home: Path) -> Path:
    return service_directory(home) / "server.lock"


def _facts(home: Path) -> Path:
    return service_directory(home) / "server.json"
