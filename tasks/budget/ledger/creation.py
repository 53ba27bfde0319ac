"""Making a ledger: database and key together, complete or not at all, and never in the place of a lost one."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger import Event
from marginweave.tasks.budget.ledger.journal import sqlite_engine, transaction
from marginweave.tasks.budget.ledger.key import environment_key, key_file, load_key, make_key_file
from marginweave.tasks.budget.ledger.location import opening_command
from marginweave.tasks.budget.ledger.tables import METADATA


def create_files(location: Path, environment: Mapping[str, str], first: Event) -> None:
    """Make the database (0600) with `first` as its first row, and its key where the environment has none.

    The database is built under another name and renamed last, so that an interrupted creation is simply done again. An
    existing database is left as it is.

    Raises:
        BudgetError: the key is there and the database is not (it was lost), or the place cannot be written.
        InputError: MARGINWEAVE_LEDGER_KEY is malformed.
    """
    try:
        with _locked_folder(location.parent):
            if not location.exists():
                _build(location, environment, first)
    except OSError as error:
        raise BudgetError(f"the ledger {location} cannot be created: {error.strerror}") from None


def _build(location: Path, environment: Mapping[str, str], first: Event) -> None:
    staged = location.with_name(f"{location.name}.new")
    if environment_key(environment) is None:
        present = key_file(location).exists()
        if present and not staged.exists():
            raise BudgetError(
                f"the key {key_file(location)} has no ledger beside it: restore {location.name} from its backup, "
                "or choose an empty folder for a new ledger"
            )
        _empty(staged)
        if not present:
            make_key_file(location)
    else:
        _empty(staged)
    key = load_key(location, environment, opening_command())
    engine = sqlite_engine(staged)
    with transaction(engine, staged, key, writing=True) as journal:
        METADATA.create_all(journal.connection)
        journal.append(first)
    staged.rename(location)
    _sync(location.parent)


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
