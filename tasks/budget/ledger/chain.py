"""The hash chain of the ledger: every row carries the hash of the one before and a keyed seal over its own."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from marginweave.schemas.errors import BudgetError

GENESIS = "0" * 64
_SEALS = frozenset({"row_hash", "mac", "prev_hash"})


def row_hash(row: Mapping[str, Any]) -> str:
    """SHA-256(prev_hash || canonical JSON of the row without its seals), hex."""
    content = {name: value for name, value in row.items() if name not in _SEALS}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(f"{row['prev_hash']}{text}".encode()).hexdigest()


def seal(columns: Mapping[str, str | None], *, seq: int, prev_hash: str, key: bytes) -> dict[str, Any]:
    """A complete row: `columns` with its number, its hashes and mac = HMAC-SHA256(key, row_hash)."""
    row: dict[str, Any] = {**columns, "seq": seq, "prev_hash": prev_hash}
    row["row_hash"] = row_hash(row)
    row["mac"] = _mac(row["row_hash"], key)
    return row


def check_row(row: Mapping[str, Any], key: bytes) -> None:
    """Refuse a row that was changed since it was sealed, or sealed with another key.

    Raises:
        BudgetError: the hash or the seal does not fit.
    """
    if not hmac.compare_digest(str(row["mac"]).encode(), _mac(str(row["row_hash"]), key).encode()):
        raise BudgetError(f"row {row['seq']} of the ledger is not sealed with this key: wrong key, or a changed row")
    if row["row_hash"] != row_hash(row):
        raise BudgetError(f"row {row['seq']} of the ledger was changed after it was written")


def check_chain(rows: Sequence[Mapping[str, Any]], key: bytes) -> None:
    """Refuse a sequence of all rows, oldest first, of which one was changed, removed, inserted or moved.

    Rows removed from the end leave no trace here.

    Raises:
        BudgetError: names the first row that does not fit.
    """
    previous = GENESIS
    for number, row in enumerate(rows, start=1):
        check_row(row, key)
        if row["seq"] != number or row["prev_hash"] != previous:
            raise BudgetError(f"the ledger is broken before row {row['seq']}: a row is missing or out of place")
        previous = row["row_hash"]


def _mac(hash_hex: str, key: bytes) -> str:
    return hmac.digest(key, hash_hex.encode(), hashlib.sha256).hex()
