"""The version of the ledger's tables: checked whenever a ledger is opened, raised by `ledger upgrade` alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table

from marginweave.schemas.errors import BudgetError
from marginweave.tasks.ledger.boxing import box_accounts
from marginweave.tasks.ledger.engines import connected, engine_for, postgres_engine
from marginweave.tasks.ledger.file_systems import check_local
from marginweave.tasks.ledger.journal import Journal
from marginweave.tasks.ledger.key import load_key
from marginweave.tasks.ledger.location import LedgerLocation, PostgresLocation, opening_command, owner_url
from marginweave.tasks.ledger.tables import ACCOUNTS, EVENTS, SCHEMA_VERSION

UPGRADE_COMMAND = "marginweave ledger upgrade"
_VERSION_TABLE = "alembic_version"
_FIRST = "0001"
_BOXES = "0004"
_UNVERSIONED = "0000"  # made before there were migrations, with the tables of the first
# Alembic keeps the connection of the command that runs in globals of its modules: two threads would swap theirs.
_MIGRATING = threading.Lock()


def schema_version(connection: Connection) -> str | None:
    """Version of the tables that are there, or None where there are none."""
    inspector = inspect(connection)
    if inspector.has_table(_VERSION_TABLE):
        found = connection.execute(select(table(_VERSION_TABLE, column("version_num")))).scalar()
        return None if found is None else str(found)
    return _UNVERSIONED if inspector.has_table(EVENTS.name) else None


def check_schema(connection: Connection, location: LedgerLocation, command: str) -> None:
    """Refuse tables that this version of the program does not know.

    Raises:
        BudgetError: no tables (ends with `command`, which opens a ledger), older ones (ends with the command that upgrades
            them) or newer ones.
    """
    found = schema_version(connection)
    if found is None:
        raise BudgetError(f"there is no ledger at {location}; open an account: {command}")
    if found < SCHEMA_VERSION:
        raise BudgetError(
            f"the tables of the ledger {location} have version {found}, this program needs {SCHEMA_VERSION}; after a backup: "
            f"{UPGRADE_COMMAND}"
        )
    if found > SCHEMA_VERSION:
        raise BudgetError(
            f"the tables of the ledger {location} have version {found}, this program knows {SCHEMA_VERSION}; use the version "
            "of marginweave that upgraded them"
        )


def migrate(connection: Connection) -> None:
    """Bring the tables to the version of this program, inside the transaction of `connection`."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    with _MIGRATING:
        if schema_version(connection) == _UNVERSIONED:
            command.stamp(config, _FIRST)
        command.upgrade(config, "head")


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


def upgrade(
    location: LedgerLocation,
    environment: Mapping[str, str],
    *,
    writer: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """Bring the tables at `location` to this version as their owner, and let the role `writer` append to them; the version.

    The tables of PostgreSQL are made where they are missing. No row is changed; accounts of 0.1.0 get a row each, of which
    `tell` is given a line, and which needs the ledger's key.

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
        before = schema_version(connection)
        migrate(connection)
        if before is not None and before < _BOXES:
            _box_accounts(connection, location, environment, tell)
        if writer is not None:
            _let_append(connection, writer)
    return SCHEMA_VERSION


def _box_accounts(
    connection: Connection, location: LedgerLocation, environment: Mapping[str, str], tell: Callable[[str], None]
) -> None:
    if connection.execute(select(ACCOUNTS.c.dataset)).first() is not None:
        journal = Journal(connection=connection, key=load_key(location, environment, opening_command()))
        box_accounts(journal, tell)


def _let_append(connection: Connection, role: str) -> None:
    """INSERT and SELECT on both tables and SELECT on the version, and nothing else, for a role of PostgreSQL."""
    if connection.dialect.name == "sqlite":
        raise BudgetError("a ledger in a file has no roles: whoever may write the file writes the ledger")
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    tables = f"{ACCOUNTS.name}, {EVENTS.name}"
    connection.exec_driver_sql(f"REVOKE ALL ON {tables}, {_VERSION_TABLE} FROM {name}")
    connection.exec_driver_sql(f"GRANT SELECT, INSERT ON {tables} TO {name}")
    connection.exec_driver_sql(f"GRANT SELECT ON {_VERSION_TABLE} TO {name}")
