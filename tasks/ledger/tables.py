"""The two tables of the ledger, and the chain of their rows: each has the hash of the one before it, and a keyed seal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table, Text

from marginweave.schemas.budget import Cost, Plain
from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.tasks.ledger.keyring import Keyring, key_id, sealing_key

SCHEMA_VERSION = "0004"  # the newest migration
METADATA = MetaData()
GENESIS = "0" * 64
_AMOUNTS = tuple(Cost().texts)
_SEALS = frozenset({"row_hash", "mac", "prev_hash"})
# Columns that later migrations added: empty where a row charges nothing in plain, and hashed where they are filled, so that
# older rows keep their hashes.
_PLAIN = frozenset({"plain_epsilon", "plain_delta"})

ACCOUNTS = Table(
    "accounts",
    METADATA,
    Column("dataset", Text, primary_key=True),
    Column("opened", Integer, nullable=False),  # seq of the OPENED event, which has the facts
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


class Position(NamedTuple):
    """A place in the chain: the number and hash of a row, and the id of the key that sealed it; before the first row."""

    seq: int = 0
    row_hash: str = GENESIS
    sealed_by: str = ""


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
        "body": _canonical(entry.body),
        "actor": entry.actor,
        "created": entry.created.isoformat(timespec="microseconds"),
    }


def event_of(row: Mapping[str, Any]) -> Event:
    """The event that `columns_of` wrote into an authentic row."""
    return Event(
        kind=EventKind(row["kind"]),
        actor=row["actor"],
        created=datetime.fromisoformat(row["created"]),
        account=row["account"],
        release=row["release"],
        draw=row["draw"],
        cost=None if row["mu2"] is None else cost_of(row),
        lease=row["lease"],
        digest=row["digest"],
        body=json.loads(row["body"]),
    )


def cost_of(texts: Mapping[str, Any]) -> Cost:
    """The cost that `Cost.texts` wrote; the plain amounts may be missing."""
    plain = Plain(epsilon=Decimal(texts["plain_epsilon"] or 0), delta=Decimal(texts["plain_delta"] or 0))
    return Cost(mu2=Decimal(texts["mu2"]), rho=Decimal(texts["rho"]), delta=Decimal(texts["delta"]), plain=plain)


def row_hash(row: Mapping[str, Any]) -> str:
    """SHA-256(prev_hash || canonical JSON of the row without its seals, and without empty plain charges), hex."""
    content = {
        name: value for name, value in row.items() if name not in _SEALS and not (name in _PLAIN and value is None)
    }
    return hashlib.sha256(f"{row['prev_hash']}{_canonical(content)}".encode()).hexdigest()


def seal(
    columns: Mapping[str, str | None], *, seq: int, prev_hash: str, keys: Keyring, sealed_by: str
) -> dict[str, Any]:
    """A complete row: `columns` with its number, its hashes and its seal under the key of id `sealed_by`.

    Raises:
        BudgetError: that key is not in the ring.
    """
    row: dict[str, Any] = {**columns, "seq": seq, "prev_hash": prev_hash}
    row["row_hash"] = row_hash(row)
    row["mac"] = keys.mac(sealed_by, row["row_hash"])
    if row["mac"] is None:
        raise BudgetError(f"the ledger is sealed with key {sealed_by}, which is not in the key ring: restore it")
    return row


def check_row(row: Mapping[str, Any], keys: Keyring) -> None:
    """Refuse a row that was changed since it was sealed, or sealed with a key outside the ring.

    Raises:
        BudgetError: the hash or the seal does not fit.
    """
    if not keys.seals(str(row["mac"]), str(row["row_hash"])):
        raise BudgetError(f"row {row['seq']} of the ledger is not sealed with this key: wrong key, or a changed row")
    if row["row_hash"] != row_hash(row):
        raise BudgetError(f"row {row['seq']} of the ledger was changed after it was written")


def check_chain(rows: Sequence[Mapping[str, Any]], keys: Keyring, after: Position = Position()) -> Position:  # noqa: B008
    """The position of the newest of `rows`, oldest first, which follow `after` without a change, gap, insertion or move.

    Rows removed from the end leave no trace here.

    Raises:
        BudgetError: names the first row that does not fit.
    """
    for number, row in enumerate(rows, start=after.seq + 1):
        check_row(row, keys)
        if row["seq"] != number or row["prev_hash"] != after.row_hash:
            raise BudgetError(f"the ledger is broken before row {row['seq']}: a row is missing or out of place")
        after = Position(number, row["row_hash"], check_key(row, after.sealed_by, keys))
    return after


def check_key(row: Mapping[str, Any], sealed_by: str, keys: Keyring) -> str:
    """The id of the key in use from this row on: `sealed_by`, that of the row before, or a rotation's; first the root's.

    Raises:
        BudgetError: the key changes without a rotation: somebody holds a retired key, or the ring is out of order.
    """
    found = sealing_key(str(row["mac"]))
    if row["kind"] == EventKind.KEY_ROTATED:
        fits = json.loads(row["body"]).get("new") == found and keys.may_follow(found, sealed_by)
    else:
        first = not sealed_by and (not keys.keys or found == key_id(keys.root))
        fits = found == sealed_by or first
    if not fits:
        raise BudgetError(f"row {row['seq']} of the ledger is sealed with key {found}, which was not in use: wrong key")
    return found


def _amounts(cost: Cost | None) -> dict[str, str | None]:
    """What a row charges; the columns of plain charges stay empty where there is none."""
    if cost is None:
        return dict.fromkeys(_AMOUNTS)
    return {name: None if name in _PLAIN and not cost.plain else text for name, text in cost.texts.items()}


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
