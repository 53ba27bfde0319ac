"""The two tables of the ledger, as the newest migration leaves them. An amount of budget is text, never a float."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table, Text

from marginweave.schemas.budget import Cost, Plain
from marginweave.schemas.ledger.events import Event, EventKind

SCHEMA_VERSION = "0004"  # the newest migration
METADATA = MetaData()
_AMOUNTS = tuple(Cost().texts)
_PLAIN = frozenset({"plain_epsilon", "plain_delta"})

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
    Column("plain_epsilon", Text),
    Column("plain_delta", Text),
    Index("events_by_release", "release"),
)


def columns_of(entry: Event) -> dict[str, str | None]:
    """The text columns of an event; the body is canonical JSON, amounts are plain decimals."""
    return {
        "account": entry.account,
        "release": entry.release,
        "draw": entry.draw,
        "kind": entry.kind.value,
        **_amounts(entry.cost),
        "lease": entry.lease,
        "digest": entry.digest,
        "body": json.dumps(entry.body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False),
        "actor": entry.actor,
        "created": entry.created.isoformat(timespec="microseconds"),
    }


def _amounts(cost: Cost | None) -> dict[str, str | None]:
    """What a row charges; the columns of plain charges stay empty where there is none."""
    if cost is None:
        return dict.fromkeys(_AMOUNTS)
    return {name: None if name in _PLAIN and not cost.plain else text for name, text in cost.texts.items()}


def event_of(row: Mapping[str, Any]) -> Event:
    """The event that `columns_of` wrote into an authentic row."""
    cost = None
    if row["mu2"] is not None:
        plain = Plain(epsilon=Decimal(row["plain_epsilon"] or 0), delta=Decimal(row["plain_delta"] or 0))
        cost = Cost(mu2=Decimal(row["mu2"]), rho=Decimal(row["rho"]), delta=Decimal(row["delta"]), plain=plain)
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
