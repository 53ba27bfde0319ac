"""The tables of a ledger and its key: made together, checked when it is opened, raised to this version by `ledger upgrade`.

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

from sqlalchemy import Connection, delete, insert, inspect, select

from marginweave.accounting.records import Event, EventKind, State
from marginweave.base.durable import sync_folder
from marginweave.base.errors import BudgetError
from marginweave.ledger.boxes import box_of_history, is_closed
from marginweave.ledger.connection import connected, engine_for, postgres_engine, sqlite_engine
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import environment_key, key_file, load_key, make_key_file
from marginweave.ledger.location import LedgerLocation, PostgresLocation, check_local, opening_command, owner_url
from marginweave.ledger.records import box_body
from marginweave.ledger.tables import ACCOUNTS, EVENTS, METADATA, PLAIN, SCHEMA_VERSION, VERSIONS, statements
from marginweave.ledger.view import View

UPGRADE_COMMAND = "marginweave ledger upgrade"
_BOXES = "0004"
_UNVERSIONED = "0000"  # made before tables had a version, as in 0001


def schema_version(connection: Connection) -> str | None:
    """Version of the tables that are there, or None where there are none."""
    inspector = inspect(connection)
    if inspector.has_table(VERSIONS.name):
        return connection.scalar(select(VERSIONS.c.version_num))
    return _UNVERSIONED if inspector.has_table(EVENTS.name) else None


def check_schema(connection: Connection, location: LedgerLocation, command: str = opening_command()) -> None:
    """Refuse tables that this version of the program does not know.

    Raises:
        BudgetError: no tables (ends with `command`, which opens a ledger), older ones (ends with the command that upgrades
            them) or newer ones.
    """
    found = schema_version(connection)
    if found is None:
        raise BudgetError(f"there is no ledger at {location}; open an account: {command}")
    if found != SCHEMA_VERSION:
        way_out = (
            f"needs {SCHEMA_VERSION}; after a backup: {UPGRADE_COMMAND}"
            if found < SCHEMA_VERSION
            else f"knows {SCHEMA_VERSION}; use the version of marginweave that upgraded them"
        )
        raise BudgetError(f"the tables of the ledger {location} have version {found}, this program {way_out}")


def migrate(connection: Connection) -> None:
    """Bring the tables to the version of this program, inside the transaction of `connection`; no row changes.

    Before 0002 there were no columns for plain charges: the hashes of older rows hold where they are empty. 0003 and 0004
    brought rows of new kinds alone, which an older program must not pass over; 0005 checkpoints, and an index to find them.
    """
    found = schema_version(connection)
    METADATA.create_all(connection)
    if found is None:
        for statement in statements(connection.dialect.name):
            connection.exec_driver_sql(statement)
    elif found < "0002":
        for name in PLAIN:
            connection.exec_driver_sql(f"ALTER TABLE {EVENTS.name} ADD COLUMN {name} TEXT")
    for index in EVENTS.indexes:
        index.create(connection, checkfirst=True)
    connection.execute(delete(VERSIONS))
    connection.execute(insert(VERSIONS).values(version_num=SCHEMA_VERSION))


def is_older(location: Path) -> bool:
    """Whether there is a ledger at `location` with tables of an older version.

    Raises:
        BudgetError: the file cannot be read.
    """
    if not location.is_file():
        return False
    with connected(engine_for(location), location, writing=False) as connection:
        found = schema_version(connection)
    return found is not None and found < SCHEMA_VERSION


def upgrade(location: LedgerLocation, environment: Mapping[str, str], *, writer: str | None = None) -> list[str]:
    """Bring the tables at `location` to this version as their owner, and let the role `writer` append to them.

    The tables of PostgreSQL are made where they are missing. No row is changed; accounts of 0.1.0 get a row each, which needs
    the ledger's key: what is returned are lines on these accounts for the operator.

    Raises:
        BudgetError: no file, no right to do so, no key where one is needed, or a role that does not exist.
        InputError: MARGINWEAVE_LEDGER_OWNER or MARGINWEAVE_LEDGER_KEY is malformed.
    """
    if isinstance(location, PostgresLocation):
        engine = postgres_engine(owner_url(location, environment))
    else:
        check_local(location)
        engine = engine_for(location)
    with connected(engine, location, writing=True) as connection:
        before, lines = schema_version(connection), list[str]()
        if before is not None and before > SCHEMA_VERSION:
            check_schema(connection, location)
        migrate(connection)
        if before is not None and before < _BOXES:
            lines = box_accounts(connection, location, environment)
        if writer is not None:
            _let_append(connection, writer)
    return lines


def _let_append(connection: Connection, role: str) -> None:
    """INSERT and SELECT on both tables and SELECT on the version, and nothing else, for a role of PostgreSQL."""
    if connection.dialect.name == "sqlite":
        raise BudgetError("a ledger in a file has no roles: everybody who may write the file writes the ledger")
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    tables = f"{ACCOUNTS.name}, {EVENTS.name}"
    connection.exec_driver_sql(f"REVOKE ALL ON {tables}, {VERSIONS.name} FROM {name}")
    connection.exec_driver_sql(f"GRANT SELECT, INSERT ON {tables} TO {name}")
    connection.exec_driver_sql(f"GRANT SELECT ON {VERSIONS.name} TO {name}")


def box_accounts(connection: Connection, location: LedgerLocation, environment: Mapping[str, str]) -> list[str]:
    """Append a row for each account of 0.1.0; a line on each, and on each run that was stopped in a draw.

    Raises:
        BudgetError: a row was changed, or the key is missing or wrong.
    """
    if connection.execute(select(ACCOUNTS.c.dataset)).first() is None:
        return []
    journal = Journal(connection=connection, key=load_key(location, environment))
    view = View().of(journal)
    rows, lines = [], []
    for account in view.accounts.values():
        if account.box is not None:
            continue
        spent = view.spent_of(account.dataset)
        box, words = box_of_history(account, spent), "fits its cap under the new sum"
        if is_closed(replace(account, box=box, history=spent.cost), spent):
            words = "is more than its cap holds under the new sum: it admits nothing until `marginweave ledger cap`"
        body = {"box": box_body(box), "releases": spent.ever, "spent": spent.cost.texts}  # after which releases
        lines.append(f"Account {account.dataset}, {spent.ever} release(s): what it has spent {words}")
        rows.append(Event(kind=EventKind.ACCOUNT_BOXED, account=account.dataset, body=body))
    for record in view.releases.values():
        begun = [draw.name for draw in record.draws if draw.state == State.DRAWN]
        if begun:
            lines.append(
                f"Run {record.run} of account {record.dataset}: 0.1.0 was stopped inside draw {', '.join(begun)}, and if its "
                "file is not whole only 0.1.0 can finish the run, with a spare draw. For that, restore the backup of the "
                "ledger from before this upgrade now, before anything else is written"
            )
    journal.append(*rows)
    return lines


def create_ledger(location: LedgerLocation, environment: Mapping[str, str], first: Event) -> None:
    """Make the ledger with `first` as its first row, and its key where the environment has none.

    An existing ledger is left as it is. An interrupted creation is simply done again.

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
    """The database (0600), built under another name and renamed last."""
    staged = location.with_name(f"{location.name}.new")
    needs_file, present = environment_key(environment) is None, key_file(location).exists()
    if needs_file and present and not staged.exists():
        raise _lost(location)
    _empty(staged)
    if needs_file and not present:
        make_key_file(key_file(location))
    key = load_key(location, environment)
    with connected(sqlite_engine(staged), staged, writing=True) as connection:
        migrate(connection)
        Journal(connection=connection, key=key).append(first)
    staged.rename(location)
    sync_folder(location.parent)


def _fill(location: PostgresLocation, environment: Mapping[str, str], first: Event) -> None:
    """Tables, made by their owner where there are none, and the first row, sealed with the environment's key or a fresh one."""
    engine = postgres_engine(location.url)
    with connected(engine, location, writing=False) as connection:
        missing = schema_version(connection) is None
    if missing:
        upgrade(location, environment)
    with connected(engine, location, writing=False) as connection:
        check_schema(connection, location)
    key = environment_key(environment)
    if key is None:
        with _locked_folder(location.key_file.parent):
            _fill_with_key_file(location, first)
        return
    with connected(engine, location, writing=True) as connection:
        if _is_empty(connection):
            Journal(connection=connection, key=key).append(first)


def _fill_with_key_file(location: PostgresLocation, first: Event) -> None:
    """The first row of tables that are empty, sealed with a fresh key in a file.

    The key is written under another name before the row is committed and gets its own after it: whichever step is the last,
    the row is not there, or its key is under one of the names.
    """
    place = location.key_file
    staged = place.with_name(f"{place.name}.new")
    with connected(postgres_engine(location.url), location, writing=True) as connection:
        empty = _is_empty(connection)
        if empty and place.exists():
            raise _lost(location)
        if place.exists() or not (empty or staged.exists()):
            return
        if empty:
            staged.unlink(missing_ok=True)
            make_key_file(staged)
            sync_folder(place.parent)
        journal = Journal(connection=connection, key=load_key(replace(location, key_file=staged), {}))
        if empty:
            journal.append(first)
        else:
            journal.newest_row()  # a key of another creation is not adopted
    staged.rename(place)
    sync_folder(place.parent)


def _is_empty(connection: Connection) -> bool:
    """Whether there is no row at all, also where the first one was removed."""
    return connection.scalar(select(EVENTS.c.seq).limit(1)) is None


def _lost(location: LedgerLocation) -> BudgetError:
    what, other = (
        (location.name, "an empty folder") if isinstance(location, Path) else (str(location), "another key file")
    )
    return BudgetError(
        f"the key {key_file(location)} has no ledger beside it: restore {what} from its backup, or choose {other} for a new "
        "ledger"
    )


def _empty(staged: Path) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        staged.with_name(staged.name + suffix).unlink(missing_ok=True)
    os.close(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    with closing(sqlite3.connect(staged)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # stays with the file


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a folder that was there keeps its mode: it is not ours
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
