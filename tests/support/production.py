"""A site as it runs in production: Prefect's server and workers as processes, both databases in PostgreSQL."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from tests.support.listeners import listener, mail_server
from tests.support.pages_run import PRODUCTION, marked_blocks
from tests.support.places import REPOSITORY
from tests.support.postgres import Server
from tests.support.prefect_api import ask

BIN = Path(sys.executable).parent
# Prefect looks for schedules that were changed once a minute.
_PROMPT = {"PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "3"}
_QUIET = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
PATIENCE = 400.0  # seconds, on a machine that does other work as well


def until(what: Callable[[], Any], seconds: float = PATIENCE, pause: float = 0.5) -> Any:
    """The first true answer of `what`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = what()
        if answer:
            return answer
        time.sleep(pause)
    raise AssertionError(f"nothing after {seconds:.0f} s")


def documented(beginning: str) -> list[str]:
    """Return the one command that begins so, as a list of words, in the blocks of docs/production.md that are executed."""
    lines = "".join(marked_blocks(PRODUCTION)).splitlines()
    (command,) = [line for line in lines if line.startswith(beginning)]
    return shlex.split(command)


def in_environment(program: str, *arguments: str) -> list[str]:
    """A command with its program in the virtual environment."""
    return [str(BIN / program), *arguments]


@dataclass(frozen=True)
class Site:
    """Folder, environment of workers and commands, and URL of the Prefect server."""

    home: Path
    environment: dict[str, str]
    heard: list[dict[str, Any]]
    mails: list[str]

    @property
    def api(self) -> str:
        """URL of the Prefect API."""
        return self.environment["PREFECT_API_URL"]

    def run(self, *command: str | Path, folder: Path | None = None, **more: str) -> str:
        """Run a command of the virtual environment to its end, in the home or another folder; its output."""
        place = folder or self.home
        done = subprocess.run(
            in_environment(*map(str, command)),
            cwd=place,
            env={**self.environment, "PWD": str(place), **more},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, path: str, body: dict[str, Any], method: str = "POST") -> Any:
        """Call the Prefect API."""
        return ask(self.api, path, body, method)

    def flow_runs(self, deployment: str) -> list[dict[str, Any]]:
        """Flow runs of a deployment whose time has come."""
        found = self.ask("/flow_runs/filter", {"deployments": {"name": {"any_": [deployment]}}})
        return [run for run in found if run["state_name"] != "Scheduled"]

    def ended(self, deployment: str) -> dict[str, Any] | None:
        """The one flow run of a deployment, once it has come to an end; a crashed one is resumed by the supervisor."""
        runs = self.flow_runs(deployment)
        over = runs and runs[0]["state_type"] in {"COMPLETED", "FAILED", "CANCELLED"}
        return runs[0] if over else None

    def told(self, event: str, run: str) -> list[dict[str, Any]]:
        """What the listener heard of an event about a run."""
        return [
            body for body in list(self.heard) if body["event"] == event and body.get("run") == run
        ]

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of the pool; it and what it has started end with the block, if they did not before."""
        with self.process("prefect worker start") as process:
            try:
                yield process
            finally:
                _end(process)
                for left in self.flow_processes():
                    with suppress(ProcessLookupError):
                        os.kill(left, signal.SIGKILL)

    @contextmanager
    def process(self, beginning: str) -> Iterator[subprocess.Popen[bytes]]:
        """The documented command that begins so, until the end of the block."""
        with (self.home / f"{beginning.split()[1]}.log").open("ab") as log:
            process = subprocess.Popen(
                in_environment(*documented(beginning)),
                cwd=self.home,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            _end(process)

    def processes(self) -> list[int]:
        """Living processes of this site: its workers, and the flows that they run."""
        mark = f"MARGINWEAVE_HOME={self.home}\0".encode()
        return [
            pid for pid in _processes() if mark in _read(pid, "environ") and _read(pid, "cmdline")
        ]

    def flow_processes(self, flow_run: str = "") -> list[int]:
        """Those of them that run a flow, or the flow run of this id."""
        services = b"prefect worker", b"marginweave supervise"
        named = {pid: _read(pid, "cmdline").replace(b"\0", b" ") for pid in self.processes()}
        flows = [
            pid
            for pid, command in named.items()
            if not any(service in command for service in services)
        ]
        return [pid for pid in flows if flow_run.encode() in _read(pid, "environ")]


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


@contextmanager
def site(home: Path, databases: Server) -> Iterator[Site]:
    """A site in `home`: ledger with two roles, Prefect's server, process pool, automations that call a listener here."""
    heard: list[dict[str, Any]] = []
    mails: list[str] = []
    database = make_url(databases.database()).set(drivername="postgresql+asyncpg")
    settings = {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database.render_as_string(hide_password=False),
        **_PROMPT,
    }
    with (
        documented_server(home / "server", free_port(), **settings) as api,
        listener(heard) as url,
        mail_server(mails) as mail,
    ):
        environment = {
            **_plain_environment(),
            **_QUIET,
            "PREFECT_HOME": str(home / "prefect"),
            "PREFECT_API_URL": api,
            "PREFECT_WORKER_QUERY_SECONDS": "2",
        }
        ledger = _ledger(home, databases, environment)
        environment |= {**ledger, "MARGINWEAVE_HOME": str(home)}
        made = Site(home, environment, heard, mails)
        made.run(*documented("prefect work-pool create"))
        addresses = {
            "MARGINWEAVE_WEBHOOK_URL": url,
            "MARGINWEAVE_MAIL_URL": f"mailto://127.0.0.1:{mail}?from=site@example.org&to=steward@example.org",
        }
        made.run(*documented("python deployments/automations.py"), folder=REPOSITORY, **addresses)
        with made.process("marginweave supervise"):
            try:
                yield made
            finally:
                assert made.flow_processes() == []


def _ledger(home: Path, databases: Server, environment: dict[str, str]) -> dict[str, str]:
    """Variables of a role that may only read and append, in a ledger that another role has made."""
    owner = databases.database()
    writer = databases.role(owner)
    declared = {
        "MARGINWEAVE_LEDGER": writer,
        "MARGINWEAVE_LEDGER_KEY_FILE": str(home / "keys" / "ledger.key"),
    }
    as_owner = Site(home, {**environment, **declared, "MARGINWEAVE_LEDGER_OWNER": owner}, [], [])
    as_owner.run(
        "marginweave", "ledger", "create-tables", "--writer", make_url(writer).username or ""
    )
    return declared


@contextmanager
def documented_server(folder: Path, port: int, **settings: str) -> Iterator[str]:
    """The URL of Prefect's own server, started as docs/production.md says with its home in `folder`, and killed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        **_plain_environment(),
        **_QUIET,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": url,
        **settings,
    }
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            in_environment(*documented("prefect server start"), "--port", str(port)),
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, (folder / "server.log").read_text()
        yield url
    finally:
        with suppress(ProcessLookupError):
            # it would wait for its clients, and nobody needs what it would still write
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def _plain_environment() -> dict[str, str]:
    """The environment without what the developer has set for Prefect or Marginweave."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "MARGINWEAVE_"))
    }


def _answers(port: int) -> bool:
    with (
        suppress(urllib.error.URLError, OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2),
    ):
        return True
    return False


def free_port() -> int:
    """A port of the loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
