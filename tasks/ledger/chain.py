"""The hash chain of the ledger: every row carries the hash of the one before and a keyed seal over its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.events import EventKind
from marginweave.tasks.ledger.keyring import Keyring, key_id, sealing_key

GENESIS = "0" * 64
_SEALS = frozenset({"row_hash", "mac", "prev_hash"})
# Columns that later migrations added: hashed where they are filled, so that older rows keep their hashes.
_ADDED = frozenset({"plain_epsilon", "plain_delta"})


def row_hash(row: Mapping[str, Any]) -> str:
    """SHA-256(prev_hash || canonical JSON of the row without its seals, and without empty plain charges), hex."""
    content = {
        name: value for name, value in row.items() if name not in _SEALS and not (name in _ADDED and value is None)
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(f"{row['prev_hash']}{text}".encode()).hexdigest()


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


def check_chain(rows: Sequence[Mapping[str, Any]], keys: Keyring) -> None:
    """Refuse a sequence of all rows, oldest first, of which one was changed, removed, inserted or moved.

    Rows removed from the end leave no trace here.

    Raises:
        BudgetError: names the first row that does not fit.
    """
    previous, sealed_by = GENESIS, ""
    for number, row in enumerate(rows, start=1):
        check_row(row, keys)
        if row["seq"] != number or row["prev_hash"] != previous:
            raise BudgetError(f"the ledger is broken before row {row['seq']}: a row is missing or out of place")
        previous, sealed_by = row["row_hash"], check_key(row, sealed_by, keys)


def check_key(row: Mapping[str, Any], sealed_by: str, keys: Keyring) -> str:
    """The id of the key in use from this row on: `sealed_by`, that of the row before, or a rotation's; first the root's.

    Raises:
        BudgetError: the key changes without a rotation: somebody holds a retired key, or the ring is out of order.
    """
    found = sealing_key(str(row["mac"]))
    if row["kind"] == EventKind.KEY_ROTATED:
        rotated = json.loads(row["body"])
        fits = rotated.get("new") == found and keys.may_follow(found, sealed_by)
    else:
        first = not sealed_by and (not keys.keys or found == key_id(keys.root))
        fits = found == sealed_by or first
    if not fits:
        raise BudgetError(f"row {row['seq']} of the ledger is sealed with key {found}, which was not in use: wrong key")
    return found
