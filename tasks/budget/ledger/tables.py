"""The two tables of the ledger and the triggers that make them append-only. An amount of budget is text, never a float."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Column, Connection, ForeignKey, Index, Integer, MetaData, Table, Text, event

from marginweave.schemas.budget import Cost
from marginweave.schemas.ledger import Event, EventKind

METADATA = MetaData()

ACCOUNTS = Table(
    "accounts",
    METADATA,
    Column("dataset", Text, primary_key=True),
    Column("opened", Integer, nullable=False),  # seq of the OPENED event, which has the facts
)

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
    Column("lease", Text),
    Column("digest", Text),
    Column("body", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("prev_hash", Text, nullable=False, unique=True),  # a chain does not fork
    Column("row_hash", Text, nullable=False, unique=True),
    Column("mac", Text, nullable=False),
    Index("events_by_release", "release"),
)

# The insert triggers stop INSERT OR REPLACE, which deletes without firing a delete trigger.
_INSERT_GUARDS = {
    "accounts": "EXISTS (SELECT 1 FROM accounts WHERE dataset = NEW.dataset)",
    "events": "NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM events)",
}


def _forbid_changes(table: Table, connection: Connection, **_: Any) -> None:
    for name, clause in (("update", "UPDATE"), ("delete", "DELETE"), ("replace", "INSERT")):
        when = f"WHEN {_INSERT_GUARDS[table.name]} " if clause == "INSERT" else ""
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table.name}_no_{name} BEFORE {clause} ON {table.name} {when}"
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )


for _table in (ACCOUNTS, EVENTS):
    event.listen(_table, "after_create", _forbid_changes)


def columns_of(entry: Event) -> dict[str, str | None]:
    """The text columns of an event; the body is canonical JSON, amounts are plain decimals."""
    cost = entry.cost
    return {
        "account": entry.account,
        "release": entry.release,
        "draw": entry.draw,
        "kind": entry.kind.value,
        "mu2": None if cost is None else format(cost.mu2, "f"),
        "rho": None if cost is None else format(cost.rho, "f"),
        "delta": None if cost is None else format(cost.delta, "f"),
        "lease": entry.lease,
        "digest": entry.digest,
        "body": json.dumps(entry.body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False),
        "actor": entry.actor,
        "created": entry.created.isoformat(timespec="microseconds"),
    }


def event_of(row: Mapping[str, Any]) -> Event:
    """The event that `columns_of` wrote into an authentic row."""
    cost = None
    if row["mu2"] is not None:
        cost = Cost(mu2=Decimal(row["mu2"]), rho=Decimal(row["rho"]), delta=Decimal(row["delta"]))
    return Event(
        kind=EventKind(row["kind"]),
        actor=row["actor"],
        created=datetime.fromisoformat(row["created"]),
        account=row["account"],
        release=row["release"],
        draw=row["draw"],
        cost=cost,
        lease=row["lease"],
        digest=row["digest"],
        body=json.loads(row["body"]),
    )
