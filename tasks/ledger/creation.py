"""Making a ledger: database and key together, complete or not at all, and never in the place of a lost one."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.events import Event
from marginweave.tasks.ledger.connection import connected, postgres_engine, sqlite_engine
from marginweave.tasks.ledger.journal import Journal
from marginweave.tasks.ledger.keyring import Keyring
from marginweave.tasks.ledger.keys import environment_key, key_file, load_key, make_key_file
from marginweave.tasks.ledger.location import LedgerLocation, PostgresLocation, check_local, opening_command
from marginweave.tasks.ledger.schema import check_schema, migrate, schema_version, upgrade


def create_ledger(location: LedgerLocation, environment: Mapping[str, str], first: Event) -> None:
    """Make the ledger with `first` as its first row, and its key where the environment has none.

    An existing ledger is left as it is. An interrupted creation is simply done again.

    Raises:
        BudgetError: the key is there and the ledger is not (it was lost), or the place cannot be written.
        InputError: a variable of the environment is malformed.
    """
    try:
        if isinstance(location, PostgresLocation):
            _prepare_database(location, environment)
            _fill(location, environment, first)
        else:
            check_local(location)
            with _locked_folder(location.parent):
                if not location.exists():
                    _build(location, environment, first)
    except OSError as error:
        raise BudgetError(f"the ledger {location} cannot be created: {error.strerror}") from None


def _build(location: Path, environment: Mapping[str, str], first: Event) -> None:
    """The database (0600), built under another name and renamed last."""
    staged = location.with_name(f"{location.name}.new")
    if environment_key(environment) is None:
        present = key_file(location).exists()
        if present and not staged.exists():
            raise _lost(location)
        _empty(staged)
        if not present:
            make_key_file(key_file(location))
    else:
        _empty(staged)
    key = load_key(location, environment, opening_command())
    with connected(sqlite_engine(staged), staged, writing=True) as connection:
        migrate(connection)
        Journal(connection=connection, key=key).append(first)
    staged.rename(location)
    _sync(location.parent)


def _prepare_database(location: PostgresLocation, environment: Mapping[str, str]) -> None:
    """Tables, made by their owner where there are none."""
    engine = postgres_engine(location.url)
    with connected(engine, location, writing=False) as connection:
        missing = schema_version(connection) is None
    if missing:
        upgrade(location, environment)
    with connected(engine, location, writing=False) as connection:
        check_schema(connection, location, opening_command())


def _fill(location: PostgresLocation, environment: Mapping[str, str], first: Event) -> None:
    """The first row of tables that are empty, sealed with the key of the environment, or a fresh one."""
    key = environment_key(environment)
    if key is not None:
        with connected(postgres_engine(location.url), location, writing=True) as connection:
            journal = Journal(connection=connection, key=key)
            if journal.is_empty():
                journal.append(first)
        return
    with _locked_folder(location.key_file.parent):
        _fill_with_key_file(location, first)


def _fill_with_key_file(location: PostgresLocation, first: Event) -> None:
    """The first row of tables that are empty, sealed with a fresh key in a file.

    The key is written under another name before the row is committed and gets its own after it: whichever step is the last,
    the row is not there, or its key is under one of the names.
    """
    place = location.key_file
    staged = place.with_name(f"{place.name}.new")
    with connected(postgres_engine(location.url), location, writing=True) as connection:
        empty = Journal(connection=connection, key=Keyring(())).is_empty()
        if empty and place.exists():
            raise _lost(location)
        if place.exists() or not (empty or staged.exists()):
            return
        if empty:
            staged.unlink(missing_ok=True)
            make_key_file(staged)
            _sync(place.parent)
        key = load_key(replace(location, key_file=staged), {}, opening_command())
        journal = Journal(connection=connection, key=key)
        if empty:
            journal.append(first)
        else:
            journal.check_newest()  # a key of another creation is not adopted
    staged.rename(place)
    _sync(place.parent)


def _lost(location: LedgerLocation) -> BudgetError:
    what = location.name if isinstance(location, Path) else str(location)
    return BudgetError(
        f"the key {key_file(location)} has no ledger beside it: restore {what} from its backup, or choose "
        f"{'an empty folder' if isinstance(location, Path) else 'another key file'} for a new ledger"
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


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
