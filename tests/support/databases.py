"""The same laws in both databases, and a ledger's tables as their owner may change them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from marginweave.ledger import LedgerLocation
from tests.support.postgres import Server

on_both = pytest.mark.parametrize(
    "backend", ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)], indirect=True
)
# For a test, or a whole file of tests, that asks for `location`.

_GUARDED = ("accounts", "events")


def run(location: LedgerLocation, *statements: str) -> list[tuple[Any, ...]]:
    """Run the statements as the owner of the tables, past the ledger, and return the rows of the last."""
    if not isinstance(location, Path):
        owner = location.url.set(drivername="postgresql", username="postgres")
        return Server.run(owner.render_as_string(hide_password=False), *statements)
    with closing(sqlite3.connect(location)) as connection, connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows


def change(location: LedgerLocation, *statements: str) -> None:
    """Statements on the tables as somebody would run them who owns them: without triggers, and with them again."""
    if isinstance(location, Path):
        guards = run(location, "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        away = [f"DROP TRIGGER {name}" for name, _ in guards]
        back = [sql for _, sql in guards]
    else:
        away = [f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in _GUARDED]
        back = [f"ALTER TABLE {table} ENABLE TRIGGER ALL" for table in _GUARDED]
        back += [
            f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only" for table in _GUARDED
        ]
    run(location, *away, *statements, *back)
