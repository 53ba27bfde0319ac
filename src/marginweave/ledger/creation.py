"""Makes the tables of a ledger together with its key, and checks them when the ledger is opened.

A ledger is made complete or not at all, and never in the place of a lost one.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, insert, inspect, select

from marginweave.accounting.records import Event
from marginweave.base.durable import sync_folder
from marginweave.base.errors import BudgetError, InputError, refuse_older
from marginweave.base.formats import LEDGER_FORMAT
from marginweave.ledger.connection import connected, postgres_engine, sqlite_engine
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import environment_key, key_file, load_key, make_key_file
from marginweave.ledger.location import (
    LedgerLocation,
    PostgresLocation,
    check_local,
    opening_command,
    owner_url,
)
from marginweave.ledger.tables import ACCOUNTS, EVENTS, FORMATS, METADATA, statements


def has_tables(connection: Connection) -> bool:
    """Return whether the tables of a ledger are there, in any format."""
    return inspect(connection).has_table(EVENTS.name)


def check_format(
    connection: Connection, location: LedgerLocation, command: str = opening_command()
) -> None:
    """Refuse tables that this version of the program does not know.

    Raises:
        BudgetError: no tables (ends with `command`, which opens a ledger), or those of a newer version.
        InputError: those of an older version.
    """
    if not has_tables(connection):
        raise BudgetError(f"there is no ledger at {location}; open an account: {command}")
    is_numbered = inspect(connection).has_table(FORMATS.name)
    number = connection.scalar(select(FORMATS.c.number)) if is_numbered else None
    refuse_older(f"the ledger {location}", number, LEDGER_FORMAT)
    if number != LEDGER_FORMAT:
        raise BudgetError(
            f"the ledger {location} has format {number}, and this program knows {LEDGER_FORMAT}; use the version of "
            "marginweave that made it"
        )


def make_tables(connection: Connection) -> None:
    """Make the tables with their guards, inside the transaction of `connection`."""
    METADATA.create_all(connection)
    for statement in statements(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(insert(FORMATS).values(number=LEDGER_FORMAT))


def create_tables(
    location: LedgerLocation, environment: Mapping[str, str], *, writer: str | None = None
) -> None:
    """Make the tables in a database of PostgreSQL as their owner, where they are missing, and let a role append to them.

    Raises:
        BudgetError: no right to do so, a role `writer` that does not exist, or tables of a newer version.
        InputError: a ledger in a file, tables of an older version, or MARGINWEAVE_LEDGER_OWNER is malformed.
    """
    if not isinstance(location, PostgresLocation):
        raise InputError(
            f"the ledger {location} is a file, whose tables come with its first account: {opening_command()}"
        )
    with connected(
        postgres_engine(owner_url(location, environment)), location, writing=True
    ) as connection:
        if not has_tables(connection):
            make_tables(connection)
        check_format(connection, location)
        if writer is not None:
            _let_append(connection, writer)


def _let_append(connection: Connection, role: str) -> None:
    """Grant a role of PostgreSQL INSERT and SELECT on both tables and SELECT on their format, and revoke all else."""
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    tables = f"{ACCOUNTS.name}, {EVENTS.name}"
    connection.exec_driver_sql(f"REVOKE ALL ON {tables}, {FORMATS.name} FROM {name}")
    connection.exec_driver_sql(f"GRANT SELECT, INSERT ON {tables} TO {name}")
    connection.exec_driver_sql(f"GRANT SELECT ON {FORMATS.name} TO {name}")


def create_ledger(location: LedgerLocation, environment: Mapping[str, str], first: Event) -> None:
    """Make the ledger with `first` as its first row, and its key where the environment has none.

    An existing ledger is left as it is. An interrupted creation is done again.

    Raises:
        BudgetError: the key is there and the ledger is not (it was lost), or the place cannot be written.
        InputError: a variable of the environment is malformed.
    """
    try:
        if isinstance(location, PostgresLocation):
            _fill(location, environment, first)
            return
        check_local(location)
        with _locked_folder(location.parent):
            if not location.exists():
                _build(location, environment, first)
    except OSError as error:
        raise BudgetError(f"the ledger {location} cannot be created: {error.strerror}") from None


def _build(location: Path, environment: Mapping[str, str], first: Event) -> None:
    """Make the database (0600) under another name and rename it last."""
    staged = location.with_name(f"{location.name}.new")
    needs_key_file = environment_key(environment) is None
    has_key_file = key_file(location).exists()
    if needs_key_file and has_key_file and not staged.exists():
        raise _lost_ledger_error(location)
    _make_empty_database(staged)
    if needs_key_file and not has_key_file:
        make_key_file(key_file(location))
    key = load_key(location, environment)
    with connected(sqlite_engine(staged), staged, writing=True) as connection:
        make_tables(connection)
        Journal(connection=connection, key=key).append(first)
    staged.rename(location)
    sync_folder(location.parent)


def _fill(location: PostgresLocation, environment: Mapping[str, str], first: Event) -> None:
    """Make the tables as their owner if there are none, and append the first row if there is no row.

    It is sealed with the environment's key or a new one in a file.
    """
    engine = postgres_engine(location.url)
    with connected(engine, location, writing=False) as connection:
        missing = not has_tables(connection)
    if missing:
        create_tables(location, environment)
    with connected(engine, location, writing=False) as connection:
        check_format(connection, location)
    key = environment_key(environment)
    if key is None:
        with _locked_folder(location.key_file.parent):
            _fill_with_key_file(location, first)
        return
    with connected(engine, location, writing=True) as connection:
        if _is_empty(connection):
            Journal(connection=connection, key=key).append(first)


def _fill_with_key_file(location: PostgresLocation, first: Event) -> None:
    """Append the first row to empty tables, sealed with a new key in a file.

    The key is written under another name before the row is committed, and renamed after it. Wherever this is interrupted, the
    row is not there, or its key is under one of the two names.
    """
    place = location.key_file
    staged = place.with_name(f"{place.name}.new")
    with connected(postgres_engine(location.url), location, writing=True) as connection:
        empty = _is_empty(connection)
        if empty and place.exists():
            raise _lost_ledger_error(location)
        if place.exists() or not (empty or staged.exists()):
            return
        if empty:
            staged.unlink(missing_ok=True)
            make_key_file(staged)
            sync_folder(place.parent)
        journal = Journal(
            connection=connection, key=load_key(replace(location, key_file=staged), {})
        )
        if empty:
            journal.append(first)
        else:
            journal.newest_row()  # a key of another creation is not adopted
    staged.rename(place)
    sync_folder(place.parent)


def _is_empty(connection: Connection) -> bool:
    """Return whether there is no row at all, also if the first one was removed."""
    return connection.scalar(select(EVENTS.c.seq).limit(1)) is None


def _lost_ledger_error(location: LedgerLocation) -> BudgetError:
    """Return the refusal of a key whose ledger is gone."""
    name = str(location)
    alternative = "another key file"
    if isinstance(location, Path):
        name = location.name
        alternative = "an empty folder"
    return BudgetError(
        f"the key {key_file(location)} has no ledger next to it: restore {name} from its backup, or choose {alternative} for a "
        "new ledger"
    )


def _make_empty_database(staged: Path) -> None:
    """Make an empty SQLite database (0600) with a write-ahead log, in the place of an unfinished one."""
    for suffix in ("-wal", "-shm", "-journal"):
        staged.with_name(staged.name + suffix).unlink(missing_ok=True)
    os.close(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    with closing(sqlite3.connect(staged)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # the setting is stored in the file


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Make the folder (0700) if it is missing, and hold a lock on it during the block."""
    # a folder that was there keeps its mode: it is not ours
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
