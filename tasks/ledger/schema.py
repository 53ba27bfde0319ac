"""The version of the ledger's tables and their append-only triggers: checked when it is opened, raised by `ledger upgrade`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, column, inspect, select
from sqlalchemy import table as sql_table

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import Account, Spent
from marginweave.schemas.ledger.events import Event, EventKind, State
from marginweave.tasks.ledger.boxes import box_of_history, is_closed
from marginweave.tasks.ledger.connection import connected, engine_for, postgres_engine
from marginweave.tasks.ledger.journal import Journal
from marginweave.tasks.ledger.keys import load_key
from marginweave.tasks.ledger.location import LedgerLocation, PostgresLocation, check_local, opening_command, owner_url
from marginweave.tasks.ledger.records import boxed_body
from marginweave.tasks.ledger.session import View
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
        found = connection.execute(select(sql_table(_VERSION_TABLE, column("version_num")))).scalar()
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
            box_accounts(connection, location, environment, tell)
        if writer is not None:
            _let_append(connection, writer)
    return SCHEMA_VERSION


def _let_append(connection: Connection, role: str) -> None:
    """INSERT and SELECT on both tables and SELECT on the version, and nothing else, for a role of PostgreSQL."""
    if connection.dialect.name == "sqlite":
        raise BudgetError("a ledger in a file has no roles: whoever may write the file writes the ledger")
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    tables = f"{ACCOUNTS.name}, {EVENTS.name}"
    connection.exec_driver_sql(f"REVOKE ALL ON {tables}, {_VERSION_TABLE} FROM {name}")
    connection.exec_driver_sql(f"GRANT SELECT, INSERT ON {tables} TO {name}")
    connection.exec_driver_sql(f"GRANT SELECT ON {_VERSION_TABLE} TO {name}")


TABLES = ("accounts", "events")
# The insert triggers stop INSERT OR REPLACE, which deletes without firing a delete trigger.
_TAKEN = {
    "accounts": "EXISTS (SELECT 1 FROM accounts WHERE dataset = NEW.dataset)",
    "events": "NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM events)",
}
_FUNCTION = "ledger_is_append_only"
_SOURCE = " BEGIN RAISE EXCEPTION 'the ledger is append-only'; END "
# Bits of pg_trigger.tgtype: BEFORE, DELETE, UPDATE and TRUNCATE, and not ROW.
_BEFORE_STATEMENT = 2 | 8 | 16 | 32
_ALWAYS = "A"

_IN_SQLITE = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'"
# Triggers that keep foreign keys are internal. A column list (tgattr) or a condition (tgqual) would leave changes out.
_IN_POSTGRESQL = """
SELECT t.tgname, c.relname, t.tgtype, t.tgenabled, t.tgqual IS NULL AND cardinality(t.tgattr::int2[]) = 0,
       p.proname, l.lanname, p.prosrc
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
     JOIN pg_language l ON l.oid = p.prolang
WHERE NOT t.tgisinternal AND t.tgrelid IN (to_regclass('accounts'), to_regclass('events'))
"""


def statements(dialect: str) -> tuple[str, ...]:
    """What makes the guards in a database of this dialect (`sqlite` or `postgresql`), in order."""
    if dialect == "sqlite":
        return tuple(sql for _, sql in _sqlite_triggers().values())
    made = [f"CREATE FUNCTION {_FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $${_SOURCE}$$"]
    for table in TABLES:
        made.append(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {_FUNCTION}()"
        )
        # A session that replays replication skips the triggers that are not ALWAYS.
        made.append(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only")
    return tuple(made)


def guards_fault(connection: Connection) -> str | None:
    """What is wrong with the guards by what they do, not by their names alone; None for nothing."""
    expected: dict[str, tuple[object, ...]] = {}
    if connection.dialect.name == "sqlite":
        query = _IN_SQLITE
        expected.update(_sqlite_triggers())
    else:
        query, function = _IN_POSTGRESQL, (_FUNCTION, "plpgsql", _SOURCE)
        expected.update({f"{t}_append_only": (t, _BEFORE_STATEMENT, _ALWAYS, True, *function) for t in TABLES})
    found = {str(row[0]): tuple(row[1:]) for row in connection.exec_driver_sql(query)}
    lost = sorted(name for name, guard in expected.items() if found.get(name) != guard)
    if lost:
        return f"the ledger is not append-only any more: {', '.join(lost)} was taken away or changed"
    if len(found) > len(expected):
        return "the ledger's tables have a trigger that no version of the program writes"
    return None


def _sqlite_triggers() -> dict[str, tuple[str, str]]:
    """Table and text of every trigger, as sqlite_master has them."""
    triggers = {}
    for table in TABLES:
        for name, clause in (("update", "UPDATE"), ("delete", "DELETE"), ("replace", "INSERT")):
            when = f"WHEN {_TAKEN[table]} " if clause == "INSERT" else ""
            made = f"CREATE TRIGGER {table}_no_{name} BEFORE {clause} ON {table} {when}"
            made += "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            triggers[f"{table}_no_{name}"] = table, made
    return triggers


def box_accounts(
    connection: Connection, location: LedgerLocation, environment: Mapping[str, str], tell: Callable[[str], None]
) -> None:
    """Append a row for each account of 0.1.0, after `tell` was given a line on each, and on each run stopped in a draw.

    Raises:
        BudgetError: a row was changed, or the key is missing or wrong.
    """
    if connection.execute(select(ACCOUNTS.c.dataset)).first() is None:
        return
    journal = Journal(connection=connection, key=load_key(location, environment, opening_command()))
    view = View().of(journal)
    rows = []
    for account in [account for account in view.accounts.values() if account.box is None]:
        spent = view.spent_of(account.dataset)
        box = box_of_history(account, spent)
        tell(_boxed_words(replace(account, box=box, history=spent.cost), spent))
        rows.append(Event(kind=EventKind.ACCOUNT_BOXED, account=account.dataset, body=boxed_body(box, spent)))
    for record in view.releases.values():
        begun = [draw.name for draw in record.draws if draw.state == State.DRAWN]
        if begun:
            tell(
                f"Run {record.run} of account {record.dataset}: 0.1.0 was stopped inside draw {', '.join(begun)}, and if its "
                "file is not whole only 0.1.0 can finish the run, with a spare draw. For that, restore the backup of the "
                "ledger from before this upgrade now, before anything else is booked"
            )
    journal.append(*rows)


def _boxed_words(account: Account, spent: Spent) -> str:
    words = (
        "what it has spent is more than its cap holds under the new sum: it admits nothing until `marginweave ledger cap`"
        if is_closed(account, spent)
        else "what it has spent fits its cap under the new sum"
    )
    return f"Account {account.dataset}, {spent.ever} release(s): {words}"
