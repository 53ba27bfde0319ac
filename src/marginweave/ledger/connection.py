"""Connections to the ledger's database: durable, one writer at a time, and alive for one transaction only."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, RootTransaction, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from marginweave.base.durable import Reserve
from marginweave.base.errors import BudgetError, DamagedLedger, FullDisk, LostConnection
from marginweave.ledger.location import LedgerLocation

_BUSY_SECONDS = 60
_CONNECT_SECONDS = 10
# Seconds between attempts to reach the server again: together as long as a restart.
PAUSES = (0.1, 0.3, 1.0, 3.0)
_RESERVED_BYTES = 1 << 18
_FULL_BYTES = 1 << 16
# Engines in the cache: to compile a statement takes longer than to run it, and no engine holds a connection.
_ENGINES = 16
# SQLite's codes if there is no room for a row, or for the two files that it keeps next to the database.
_MAYBE_FULL = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# Every writer appends after the newest row of the one chain, so all accounts share one lock: "marginwe" in ASCII.
_CHAIN_LOCK = 0x6D617267696E7765


def engine_for(location: LedgerLocation) -> Engine:
    """Return an engine for the existing ledger at `location`; it may cross a fork."""
    return sqlite_engine(location) if isinstance(location, Path) else postgres_engine(location.url)


def reserve_for(location: LedgerLocation) -> Reserve | None:
    """Return the room reserved next to the file for the rows of a draw that was begun.

    None in PostgreSQL, whose server takes care of its disk.
    """
    if not isinstance(location, Path):
        return None
    return Reserve(location.with_name(f"{location.stem}.reserve"), _RESERVED_BYTES)


@lru_cache(maxsize=_ENGINES)
def sqlite_engine(location: Path, *, still: bool = False) -> Engine:
    """Return an engine for the existing file at `location`: synchronous=FULL, foreign keys, IMMEDIATE writers.

    `still` reads a file that nobody can write during that time, without SQLite's two files next to it.
    """

    def connect() -> sqlite3.Connection:
        address = database_uri(location, still=still)
        return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN"
        )

    return engine


@lru_cache(maxsize=_ENGINES)
def postgres_engine(url: URL) -> Engine:
    """Return an engine for the database at `url`: writers hold one advisory lock to the end, readers see one snapshot.

    A writer reads after it has the lock, and READ COMMITTED lets it see what the writer before it has committed. A commit
    returns when the server has it on disk, whatever the database's default is.
    """
    arguments = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=arguments)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if not connection.get_execution_options().get("writing"):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
        connection.exec_driver_sql(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_BUSY_SECONDS}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CHAIN_LOCK})")

    return engine


@contextmanager
def connected(
    engine: Engine, location: LedgerLocation, *, writing: bool, patient: bool = False
) -> Iterator[Connection]:
    """Yield a connection in one transaction, committed at the end of the block and undone by an exception in it.

    A `patient` caller, as every writer is, tries a few times if the server cannot be reached: no statement was sent to it yet.
    On a full disk a writer gives up the reserve. A reader does so only if there are rows in the log.

    Raises:
        DamagedLedger: the bytes of the database are not what was written.
        LostConnection: the server cannot be reached or has stopped answering.
        FullDisk: there is no room, and none was set aside.
        BudgetError: it cannot be read or written (missing, busy, read-only).
    """
    connection, begun = _begin_patiently(
        engine, location, writing=writing, patient=patient or writing
    )
    with _translated_errors(engine, location), connection, begun:
        yield connection


def _begin_patiently(
    engine: Engine, location: LedgerLocation, *, writing: bool, patient: bool
) -> tuple[Connection, RootTransaction]:
    """Begin a transaction; try again after a pause if `patient`, and with less need of room on a full disk."""
    for pause in PAUSES if patient else ():
        try:
            return _begin(engine, location, writing=writing)
        except LostConnection:
            time.sleep(pause)
        except FullDisk:
            break
    try:
        return _begin(engine, location, writing=writing)
    # there is no room for the two files: read without them, or give up the reserve
    except FullDisk:
        if isinstance(location, Path) and not writing and not _log_bytes(location):
            return _begin(sqlite_engine(location, still=True), location, writing=False)
        reserve = reserve_for(location)
        if reserve is None or not reserve.give_up():
            raise
    return _begin(engine, location, writing=writing)


def _begin(
    engine: Engine, location: LedgerLocation, *, writing: bool
) -> tuple[Connection, RootTransaction]:
    """Connect and begin a transaction."""
    with _translated_errors(engine, location):
        connection = engine.connect().execution_options(writing=writing)
        try:
            return connection, connection.begin()
        except BaseException:
            connection.close()
            raise


@contextmanager
def _translated_errors(engine: Engine, location: LedgerLocation) -> Iterator[None]:
    """Raise the errors of the database as errors of the ledger."""
    damaged = DamagedLedger(
        f"the ledger {location} is damaged: its bytes are not those that were written; restore it from its backup"
    )
    try:
        yield
    except UnicodeDecodeError:  # SQLite's message quotes the damaged bytes
        raise damaged from None
    except DBAPIError as error:
        if _sqlite_code(error) in _DAMAGE:
            raise damaged from None
        if _is_full(error, location):
            raise FullDisk(
                f"the disk of the ledger {location} is full: nothing can be charged until there is room again"
            ) from None
        kind = LostConnection if _is_lost(error, engine) else BudgetError
        raise kind(f"the ledger {location} cannot be used: {_words(error, engine.url)}") from None


def _sqlite_code(error: DBAPIError) -> int:
    """Return SQLite's primary error code; 0 for another database."""
    code: int = getattr(error.orig, "sqlite_errorcode", 0)
    return code & 0xFF


def _is_full(error: DBAPIError, location: LedgerLocation) -> bool:
    """Return whether the error says that the disk is full, or may say so and the disk has no room."""
    code = _sqlite_code(error)
    if code == sqlite3.SQLITE_FULL or getattr(error.orig, "sqlstate", None) == "53100":
        return True
    if code not in _MAYBE_FULL or not isinstance(location, Path):
        return False
    try:
        room = os.statvfs(location.parent)
    except OSError:  # there is no such folder
        return False
    has_no_bytes = room.f_bavail * room.f_frsize < _FULL_BYTES
    has_no_files = room.f_files > 0 and not room.f_favail
    return has_no_bytes or has_no_files


def _is_lost(error: DBAPIError, engine: Engine) -> bool:
    """Return whether the server went away, shuts down, or was never reached: then it has given no code."""
    if engine.dialect.name == "sqlite":
        return False
    code = getattr(error.orig, "sqlstate", None)
    return error.connection_invalidated or code is None or code.startswith(("08", "57P"))


def _words(error: DBAPIError, url: URL) -> str:
    """Return the first line of the database's message, without the passwords of the URL."""
    lines = str(error.orig).splitlines()
    text = lines[0] if lines else type(error.orig).__name__
    for secret in (url.password, url.query.get("password"), url.query.get("sslpassword")):
        if secret:
            text = text.replace(str(secret), "***")
    return text


def _log_bytes(file: Path) -> int:
    """Return the size of the write-ahead log of a database file; 0 if there is none."""
    try:
        return file.with_name(f"{file.name}-wal").stat().st_size
    except OSError:
        return 0


def database_uri(file: Path, *, still: bool = False) -> str:
    """Return the URI under which SQLite opens `file`, which it never creates.

    SQLite reads a database with a write-ahead log through the log and its index, which it makes if it can write to the folder.
    In a folder that it cannot write to, both must be there, or the URI must promise that nothing changes (`immutable`). SQLite
    then ignores the log, so that the promise is made only if the log is empty. The same holds if the disk is full (`still`).
    A read-only mount counts for root, too.

    Raises:
        BudgetError: newer rows are in a log that cannot be read here.
    """
    shared = all(
        os.access(file.with_name(file.name + suffix), os.R_OK) for suffix in ("-wal", "-shm")
    )
    readable = shared or os.access(file.parent, os.W_OK | os.X_OK)
    log_bytes = _log_bytes(file)
    if readable and not (still and not log_bytes):
        query = "mode=rw" if os.access(file, os.W_OK) else "mode=ro"
    elif log_bytes:
        raise BudgetError(
            f"the newest rows of the ledger {file} are in {file.name}-wal, which cannot be read where its folder cannot be "
            f"written; copy both into a folder that can, or close the program that writes the ledger and copy it then"
        )
    else:
        query = "mode=ro&immutable=1"
    return f"{file.absolute().as_uri()}?{query}"
