"""Prefect servers on loopback: their start, and their end with the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from marginweave.base.durable import PRIVATE_MODE, at_place, staged_file
from marginweave.base.errors import InputError, MarginweaveError, StageError
from marginweave.runs.lookup import exclusive_lock
from marginweave.runs.stopping import begin_again, check_servers

from .environment import forget_proxies, with_loopback

LOG_ROOM = 10 << 20  # bytes of a log, before it becomes an older one
SERVER = "marginweave.flows.prefect.server_process"  # run as a program
_PR_SET_PDEATHSIG = 1
_START_SECONDS = 120.0
_DATABASE_ROOM = 8 << 20  # bytes; a new database of Prefect takes 5 MB with its write-ahead log
_NO_PAGES = {"PREFECT_SERVER_UI_ENABLED": "false"}


@contextmanager
def prefect_server(
    log: Path, port: int | None = None, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Yield the URL of a Prefect API: of the server in PREFECT_API_URL, or of one that is started here and stopped at the end.

    `meanwhile` is called while a server starts, which takes seconds.

    With a `port` the server that is started here shows Prefect's pages there; without one it uses a free port, without pages.

    Prefect's own ephemeral server survives `kill -9` of its run; this one is tied to us by the kernel (PR_SET_PDEATHSIG).

    Raises:
        InputError: the port is taken.
        MachineError: the disk refuses, or has no room for the server's database: at its start, or where a call of it fails.
        StageError: the server did not answer in time; its output is in `log`.
    """
    named_url = os.environ.get("PREFECT_API_URL")
    if named_url:
        forget_proxies(named_url)
        yield named_url
        return
    check_servers(log)
    if port is not None:
        _check_port(port)
    place = Path(os.environ["PREFECT_HOME"])
    with _lock_start(place):
        server, url = _start_server(place, log, port, meanwhile)
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(server, log, over), daemon=True, name="server")
    watcher.start()
    try:
        yield url
    except MarginweaveError:
        raise
    except Exception:
        _check_room(place)
        raise
    finally:
        over.set()
        _end(server)


def _watch(server: subprocess.Popen[bytes], log: Path, over: threading.Event) -> None:
    """Begin the command again if our server ends before it: Prefect's client would wait for minutes.

    A command that a signal ends is not begun again (`begin_again`).
    """
    while not over.wait(0.1):
        if server.poll() is not None and not over.is_set():
            moment = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            with suppress(OSError), log.open("a") as file:
                file.write(f"{moment}: the server has ended (exit code {server.returncode})\n")
            begin_again()
            return  # reached in a notebook, or after a signal


@contextmanager
def _lock_start(place: Path) -> Iterator[None]:
    """Wait for servers that are starting in the same `place`: two that migrate a database at the same time would damage it."""
    with exclusive_lock(place / "start.lock", None):
        with at_place(place, "closed to others"):
            for path in (place, *place.glob("prefect.db*")):
                path.chmod(0o700 if path.is_dir() else PRIVATE_MODE)
        yield


def _start_server(
    place: Path, log: Path, named_port: int | None, meanwhile: Callable[[], None]
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server and wait for its answer; return it and its URL, which is in the environment until the server ends.

    It ends with this process at the latest.
    """
    port = named_port or _free_port()
    url = f"http://127.0.0.1:{port}/api"
    with at_place(log, "written"):
        if log.exists() and log.stat().st_size > LOG_ROOM:
            log.replace(log.with_name(f"{log.name}.1"))
    with at_place(log, "written"), log.open("ab") as output:
        server = _start_process(port, url, output.fileno(), pages=named_port is not None)
    try:
        os.environ["PREFECT_API_URL"] = url
        forget_proxies(url)
        # while the server starts; it reads its settings from the environment
        import_module("prefect")
        meanwhile()
        _wait(server, url, log)
    except BaseException as error:
        _end(server)
        if isinstance(error, StageError):
            _check_room(place)
        raise
    return server, url


def _check_room(place: Path) -> None:
    """Refuse a disk without room for the database: a server that fails because of it does not say so.

    Raises:
        MachineError: the disk is full, or refuses.
    """
    with staged_file(place / "prefect.db", _DATABASE_ROOM):
        pass


def _check_port(port: int) -> None:
    """Refuse a port on which somebody listens: its answers would be taken for those of our server.

    Raises:
        InputError: it is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise InputError(f"port {port} is taken; choose another with --port") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def end_with(parent: int, sent: signal.Signals) -> Callable[[], None]:
    """Return a function for a child of `parent`: the kernel then sends the child `sent` when the parent ends, killed or not."""
    # Loaded here: between fork and exec nothing may be imported.
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def tie() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, sent)
            if os.getppid() != parent:
                os._exit(1)  # the parent died before the tie was made

    return tie


def _start_process(port: int, url: str, output: int, *, pages: bool) -> subprocess.Popen[bytes]:
    # Without this URL, Prefect's pages would ask the server of another port.
    page_settings = {
        "PREFECT_SERVER_UI_API_URL": url,
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }
    return subprocess.Popen(  # noqa: S603 - our own interpreter, fixed arguments
        # -P: modules are not looked up in the working directory
        [sys.executable, "-P", "-m", SERVER, str(port)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=end_with(os.getpid(), signal.SIGTERM),  # noqa: PLW1509 - no thread of ours runs yet
        # Ctrl-C in a terminal must not end the server, which we need until we have ended
        start_new_session=True,
        # it may call others, such as for an alert, by way of a proxy
        env={**with_loopback(os.environ), **(page_settings if pages else _NO_PAGES)},
    )


def answers(url: str, seconds: float) -> bool:
    """Return whether the API of a server answers within `seconds`."""
    try:
        urllib.request.urlopen(f"{url}/health", timeout=seconds).close()  # noqa: S310 - loopback, our own port
    except OSError:
        return False
    return True


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise StageError(f"the Prefect server ended at its start; {log} says why")
        if answers(url, 1.0):
            return
        time.sleep(0.05)
    raise StageError(f"the Prefect server did not answer within {_START_SECONDS:.0f} s")


def _end(server: subprocess.Popen[bytes]) -> None:
    os.environ.pop("PREFECT_API_URL", None)
    server.terminate()
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
