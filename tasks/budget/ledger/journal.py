"""Transactions on the ledger's database: authenticated reading and sealed appending."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, create_engine, event, func, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger import Event
from marginweave.tasks.budget.ledger.chain import GENESIS, check_chain, check_row, seal
from marginweave.tasks.budget.ledger.tables import ACCOUNTS, EVENTS, columns_of, event_of

_BUSY_SECONDS = 60.0


def sqlite_engine(location: Path) -> Engine:
    """An engine for the existing file at `location`: synchronous=FULL, foreign keys, IMMEDIATE writers.

    A connection lives for one transaction, so that an engine may cross a fork.
    """
    address = f"{location.absolute().as_uri()}?mode=rw"  # rw: never creates

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The ledger inside one transaction. Nothing read here is unauthenticated, nothing written unsealed."""

    connection: Connection
    key: bytes

    def release_events(self, release: str) -> tuple[Event, ...]:
        """All events of one release, oldest first, each checked by its own seal.

        Raises:
            BudgetError: a row was changed, or the key is wrong.
        """
        rows = self._rows(select(EVENTS).where(EVENTS.c.release == release))
        for row in rows:
            check_row(row, self.key)
        return tuple(map(event_of, rows))

    def all_events(self) -> tuple[Event, ...]:
        """All events, oldest first, with the whole chain checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved, or the key is wrong.
        """
        rows = self._rows(select(EVENTS))
        check_chain(rows, self.key)
        return tuple(map(event_of, rows))

    def check_newest(self) -> None:
        """Refuse a ledger whose newest row the key does not verify, or that has no row at all.

        Raises:
            BudgetError: wrong key, changed row, or an empty ledger.
        """
        row = self._newest()
        if row is None:
            raise BudgetError("the ledger is empty: it has lost its rows")

    def append(self, entry: Event) -> None:
        """Add `entry` as the newest row, behind a newest row that this key has sealed.

        Raises:
            BudgetError: the key does not verify the newest row.
        """
        newest = self._newest()
        seq, previous = (1, GENESIS) if newest is None else (newest["seq"] + 1, newest["row_hash"])
        self.connection.execute(
            insert(EVENTS).values(seal(columns_of(entry), seq=seq, prev_hash=previous, key=self.key))
        )

    def add_account(self, entry: Event) -> None:
        """Add an account and its OPENED event."""
        next_seq = select(func.max(EVENTS.c.seq) + 1).scalar_subquery()
        self.connection.execute(insert(ACCOUNTS).values(dataset=entry.account, opened=next_seq))
        self.append(entry)

    def _newest(self) -> dict[str, Any] | None:
        rows = self._rows(select(EVENTS).where(EVENTS.c.seq == select(func.max(EVENTS.c.seq)).scalar_subquery()))
        if not rows:
            return None
        check_row(rows[0], self.key)
        return rows[0]

    def _rows(self, query: Select[Any]) -> list[dict[str, Any]]:
        return [dict(row) for row in self.connection.execute(query.order_by(EVENTS.c.seq)).mappings()]


@contextmanager
def transaction(engine: Engine, location: Path, key: bytes, *, writing: bool) -> Iterator[Journal]:
    """One transaction, committed at the end of the block and undone by an exception in it.

    Raises:
        BudgetError: the database cannot be read or written (missing, busy, damaged, read-only, disk full).
    """
    try:
        with engine.connect() as plain:
            connection = plain.execution_options(writing=writing)
            with connection.begin():
                yield Journal(connection=connection, key=key)
    except DBAPIError as error:
        raise BudgetError(f"the ledger {location} cannot be used: {error.orig}") from None
