"""Defines the tables of the ledger, their append-only triggers, and the chain of rows, each with the hash of the row before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, ForeignKey, Index, Integer, MetaData, Table, Text

from marginweave.accounting.records import Event, EventKind
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import BudgetError
from marginweave.ledger.keys import LedgerKey

METADATA = MetaData()
GENESIS = "0" * 64
_AMOUNTS = tuple(Cost().texts)
# Fields of an event that are columns of the same name.
_TEXTS = ("actor", "account", "release", "draw", "lease", "digest")
_SEALS = frozenset({"row_hash", "mac", "prev_hash"})

ACCOUNTS = Table(
    "accounts",
    METADATA,
    Column("dataset", Text, primary_key=True),
    Column("opened", Integer, nullable=False),  # seq of the OPENED event, which has the facts
)

FORMATS = Table(
    "ledger_format", METADATA, Column("number", Integer, primary_key=True, autoincrement=False)
)

# An amount of budget is text, never a float.
EVENTS = Table(
    "events",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("account", Text, ForeignKey("accounts.dataset")),
    Column("release", Text),
    Column("draw", Text),
    Column("kind", Text, nullable=False),
    Column("mu2", Text),
    Column("rho", Text),
    Column("delta", Text),
    Column("plain_epsilon", Text),
    Column("plain_delta", Text),
    Column("lease", Text),
    Column("digest", Text),
    Column("body", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("prev_hash", Text, nullable=False, unique=True),  # a chain does not fork
    Column("row_hash", Text, nullable=False, unique=True),
    Column("mac", Text, nullable=False),
    Index("events_by_release", "release"),
    Index("events_by_account", "account", "kind", "draw", "seq"),
)


class Position(NamedTuple):
    """A place in the chain: the number and hash of a row. The default is the place before the first row."""

    seq: int = 0
    row_hash: str = GENESIS


def columns_of(entry: Event) -> dict[str, str | None]:
    """Return the text columns of an event; the body is canonical JSON, amounts are plain decimals."""
    amounts: Mapping[str, str | None] = (
        dict.fromkeys(_AMOUNTS) if entry.cost is None else entry.cost.texts
    )
    return {
        **{name: getattr(entry, name) for name in _TEXTS},
        **amounts,
        "kind": entry.kind.value,
        "body": canonical(entry.body),
        "created": entry.created.isoformat(timespec="microseconds"),
    }


def event_of(row: Mapping[str, Any]) -> Event:
    """Return the event that `columns_of` wrote into an authentic row."""
    return Event(
        **{name: row[name] for name in _TEXTS},
        kind=EventKind(row["kind"]),
        created=datetime.fromisoformat(row["created"]),
        cost=None if row["mu2"] is None else cost_of(row),
        body=json.loads(row["body"]),
    )


def cost_of(texts: Mapping[str, Any]) -> Cost:
    """Return the cost that `Cost.texts` wrote."""
    amounts = {name: Decimal(texts[name]) for name in _AMOUNTS}
    plain = BasicAmount(epsilon=amounts["plain_epsilon"], delta=amounts["plain_delta"])
    return Cost(mu2=amounts["mu2"], rho=amounts["rho"], delta=amounts["delta"], plain=plain)


def content_digest(row: Mapping[str, Any]) -> str:
    """Return SHA-256 of the canonical JSON of the row without its seals, hex: with it a chain is followed without contents."""
    content = {name: value for name, value in row.items() if name not in _SEALS}
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def row_hash(row: Mapping[str, Any]) -> str:
    """Return SHA-256(prev_hash || content_digest), both as hex, in hex."""
    return hashlib.sha256(f"{row['prev_hash']}{content_digest(row)}".encode()).hexdigest()


def seal(entry: Event, *, seq: int, prev_hash: str, key: LedgerKey) -> dict[str, Any]:
    """Return a complete row: the columns of `entry`, its number, hashes and seal; raises BudgetError without the key."""
    row: dict[str, Any] = {**columns_of(entry), "seq": seq, "prev_hash": prev_hash}
    row["row_hash"] = row_hash(row)
    row["mac"] = key.seal(row["row_hash"])
    return row


def check_row(row: Mapping[str, Any], key: LedgerKey, *, auditing: bool = False) -> None:
    """Refuse a row that was changed since it was sealed, or sealed with another key; an auditor may lack the key.

    Raises:
        BudgetError: the hash or the seal does not fit.
    """
    if row["row_hash"] != row_hash(row):
        raise BudgetError(f"row {row['seq']} of the ledger was changed after it was written")
    sealed = key.has_sealed(str(row["mac"]), row["row_hash"])
    if not sealed and not (auditing and sealed is None):
        raise BudgetError(
            f"row {row['seq']} of the ledger is not sealed with this key: wrong key, or a changed row"
        )


def check_chain(
    rows: Iterable[Mapping[str, Any]],
    key: LedgerKey,
    after: Position = Position(),  # noqa: B008
    *,
    auditing: bool = False,
) -> Position:
    """Refuse `rows`, oldest first, that do not follow `after` unchanged and in order; return the position of the newest.

    Rows removed from the end leave no trace here.

    Raises:
        BudgetError: names the first row that does not fit.
    """
    for number, row in enumerate(rows, start=after.seq + 1):
        check_row(row, key, auditing=auditing)
        if row["seq"] != number or row["prev_hash"] != after.row_hash:
            raise BudgetError(
                f"the ledger is broken before row {row['seq']}: a row is missing or out of place"
            )
        after = Position(number, row["row_hash"])
    return after


def canonical(content: Mapping[str, Any]) -> str:
    """Return the canonical JSON text of `content`: sorted keys, no spaces, ASCII only."""
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


_TABLES = ("accounts", "events")
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
    """Return the statements that make the guards in a database of this dialect (`sqlite` or `postgresql`), in order."""
    if dialect == "sqlite":
        return tuple(sql for _, sql in _sqlite_triggers().values())
    guards = [f"CREATE FUNCTION {_FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $${_SOURCE}$$"]
    for table in _TABLES:
        guards.append(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {_FUNCTION}()"
        )
        # A session that replays replication skips the triggers that are not ALWAYS.
        guards.append(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only")
    return tuple(guards)


def guards_fault(connection: Connection) -> str | None:
    """Return the fault of the guards, or None; their definitions are compared, not only their names."""
    expected: dict[str, tuple[object, ...]] = {}
    if connection.dialect.name == "sqlite":
        query = _IN_SQLITE
        expected.update(_sqlite_triggers())
    else:
        query = _IN_POSTGRESQL
        for table in _TABLES:
            guard = (table, _BEFORE_STATEMENT, _ALWAYS, True, _FUNCTION, "plpgsql", _SOURCE)
            expected[f"{table}_append_only"] = guard
    present = {str(row[0]): tuple(row[1:]) for row in connection.exec_driver_sql(query)}
    changed = sorted(name for name, guard in expected.items() if present.get(name) != guard)
    if changed:
        return f"the ledger is not append-only any more: {', '.join(changed)} was taken away or changed"
    if len(present) > len(expected):
        return "the ledger's tables have a trigger that no version of the program writes"
    return None


def _sqlite_triggers() -> dict[str, tuple[str, str]]:
    """Return table and text of every trigger by its name, as sqlite_master has them."""
    triggers = {}
    for table in _TABLES:
        for name, clause in (("update", "UPDATE"), ("delete", "DELETE"), ("replace", "INSERT")):
            when = f"WHEN {_TAKEN[table]} " if clause == "INSERT" else ""
            text = f"CREATE TRIGGER {table}_no_{name} BEFORE {clause} ON {table} {when}"
            text += "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            triggers[f"{table}_no_{name}"] = (table, text)
    return triggers
