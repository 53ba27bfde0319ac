"""The processes of the site, and who starts them again: what systemd does on a machine of its own."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import URL, make_url

from tests.support.cluster import installed_programs
from tests.support.postgres import Server
from tests.support.prefect_api import ask
from tests.support.production import documented, in_environment

RESTART = 3.0  # seconds from the end of a process to the next
RETENTION = {  # the shortest that Prefect knows, so that a soak of hours reaches what months reach
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "3601",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "120",
    "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "PT1H",
}
PORT = 42870  # of Prefect's server; the same after each start


@dataclass
class Service:
    """One process that is started again whenever it has ended; `starts` counts."""

    name: str
    command: list[str]
    folder: Path
    environment: dict[str, str]
    user: str | None = None
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    ended: float = 0.0

    def look(self) -> None:
        """Start the process if it has ended some seconds ago."""
        now = time.monotonic()
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None and not self.ended:
            self.ended = now
        if now - self.ended >= RESTART or self.process is None:
            with (self.folder / f"{self.name}.log").open("ab") as log:
                self.process = subprocess.Popen(
                    self.command,
                    cwd=self.folder,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    user=self.user,
                )
            self.starts, self.ended = self.starts + 1, 0.0

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process alone."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, number)

    def stop(self, seconds: float = 40) -> None:
        """End the process, and what it has started."""
        # PostgreSQL ends open sessions at SIGINT
        self.kill(signal.SIGINT if self.user else signal.SIGTERM)
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def memory(self) -> float:
        """Megabytes that are resident, of the process alone; 0 while there is none."""
        with suppress(psutil.NoSuchProcess, AttributeError):
            assert self.process is not None
            return float(psutil.Process(self.process.pid).memory_info().rss / 1e6)
        return 0.0


@dataclass(frozen=True)
class Stand:
    """The site in a folder that lasts: databases, home and logs are there when the benchmark begins again."""

    place: Path
    database: Service
    server: Service
    supervisor: Service
    worker: Service
    environment: dict[str, str]
    databases: Server

    @property
    def home(self) -> Path:
        """Where runs and logs are."""
        return self.place / "home"

    @property
    def services(self) -> tuple[Service, ...]:
        """In the order in which they are started."""
        return self.database, self.server, self.supervisor, self.worker

    def look(self) -> None:
        """Start what has ended."""
        for service in self.services:
            service.look()

    def stop(self) -> None:
        """End everything, the database last."""
        for service in reversed(self.services):
            service.stop()

    def run(self, *command: str | Path, **more: str) -> str:
        """Run a command of the environment to its end; its output."""
        done = subprocess.run(
            in_environment(*map(str, command)),
            cwd=self.home,
            env={**self.environment, "PWD": str(self.home), **more},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """Call Prefect's API."""
        return ask(self.environment["PREFECT_API_URL"], path, body, method)

    def flows(self) -> list[int]:
        """Processes that run a flow of this site."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            words = " ".join(process.info["cmdline"] or [])
            environ = process.info["environ"] or {}
            here = (
                environ.get("MARGINWEAVE_HOME") == str(self.home)
                and "PREFECT__FLOW_RUN_ID" in environ
            )
            if here and "worker start" not in words and "supervise" not in words:
                found.append(process.pid)
        return found


def stand(place: Path) -> Stand:
    """The site in `place`, made where it is not there yet; its database runs, the rest is started by the first look."""
    home, data = place / "home", place / "postgres"
    for folder in (home, place / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    # it does not run as root
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    binaries = installed_programs()
    if not data.exists():
        data.mkdir()
        os.chown(data, pwd.getpwnam(user).pw_uid, -1)
        initialize = [
            str(binaries / "initdb"),
            "-D",
            str(data / "data"),
            "-A",
            "trust",
            "-U",
            "postgres",
        ]
        subprocess.run(initialize, user=user, cwd=data, capture_output=True, check=True)
    options = ["-c", "listen_addresses=", "-c", "max_connections=300"]
    command = [str(binaries / "postgres"), "-D", str(data / "data"), "-k", str(data), *options]
    database = Service("postgres", command, data, dict(os.environ), user)
    databases = Server(
        URL.create("postgresql", "postgres", database="postgres", query={"host": str(data)})
    )
    database.look()
    _answers(databases)
    environment = _environment(home) | _ledger(home, databases)
    of_server = {
        **environment,
        "PREFECT_API_DATABASE_CONNECTION_URL": make_url(_database(databases, "prefect"))
        .set(drivername="postgresql+asyncpg")
        .render_as_string(hide_password=False),
        **RETENTION,
    }
    port = ["--port", str(PORT)]
    made = Stand(
        place,
        database,
        Service(
            "server", in_environment(*documented("prefect server start"), *port), home, of_server
        ),
        Service(
            "supervisor", in_environment(*documented("marginweave supervise")), home, environment
        ),
        Service(
            "worker",
            in_environment(*documented("prefect worker start"), "--limit", "3"),
            home,
            environment,
        ),
        environment,
        databases,
    )
    _create_ledger(made)
    return made


def _environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MARGINWEAVE_"))}
    return {
        **kept,
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{PORT}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "MARGINWEAVE_HOME": str(home),
        "TMPDIR": str(home.parent / "tmp"),
    }


def _ledger(home: Path, databases: Server) -> dict[str, str]:
    writer = make_url(_database(databases, "ledger")).set(username="ledger_writer")
    if not databases.run(
        databases.text(), "SELECT 1 FROM pg_roles WHERE rolname = 'ledger_writer'"
    ):
        databases.run(databases.text(), "CREATE ROLE ledger_writer LOGIN")
    key = home / "keys" / "ledger.key"
    return {
        "MARGINWEAVE_LEDGER": writer.render_as_string(hide_password=False),
        "MARGINWEAVE_LEDGER_KEY_FILE": str(key),
    }


def _create_ledger(made: Stand) -> None:
    """The ledger, made by its owner."""
    if not (made.home / "keys").exists():
        owner = _database(made.databases, "ledger")
        made.run(
            "marginweave",
            "ledger",
            "create-tables",
            "--writer",
            "ledger_writer",
            MARGINWEAVE_LEDGER_OWNER=owner,
        )


def _database(databases: Server, name: str) -> str:
    rows = databases.run(databases.text(), f"SELECT 1 FROM pg_database WHERE datname = '{name}'")
    if not rows:
        databases.run(databases.text(), f"CREATE DATABASE {name}")
    return databases.text(database=name)


def _answers(databases: Server) -> None:
    end = time.monotonic() + 60
    while True:
        with suppress(Exception):
            databases.run(databases.text(), "SELECT 1")
            return
        assert time.monotonic() < end, "PostgreSQL does not answer"
        time.sleep(0.2)
