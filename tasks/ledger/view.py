"""The whole ledger as one process has verified it, brought up to date row by row instead of read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import Account, Spent
from marginweave.schemas.ledger.events import Event
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.tasks.ledger.books import accounts_of, release_of
from marginweave.tasks.ledger.chain import GENESIS, check_key, check_row
from marginweave.tasks.ledger.keyring import Keyring
from marginweave.tasks.ledger.tables import event_of


@dataclass(frozen=True, kw_only=True)
class View:
    """Accounts and releases as of row `seq`, whose hash and key stand here; every row up to it fitted chain and key.

    What counts are the rows as they were verified: a row that is changed in the database later changes no total, and is found
    by the next process and by `Ledger.verify`.
    """

    seq: int = 0
    row_hash: str = GENESIS
    sealed_by: str = ""
    accounts: Mapping[str, Account] = field(default_factory=dict)
    releases: Mapping[str, ReleaseRecord] = field(default_factory=dict)
    events: Mapping[str, Sequence[Event]] = field(default_factory=dict)  # by release
    spent: Mapping[str, Spent] = field(default_factory=dict)  # by dataset

    def spent_of(self, dataset: str) -> Spent:
        """The sums over the releases of one account."""
        return self.spent.get(dataset, Spent())

    def with_rows(self, rows: Sequence[Mapping[str, Any]], keys: Keyring) -> View:
        """This view and the `rows` behind it; the first of them is the newest row of this view, if that has any.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved, or the key is wrong.
        """
        if self.seq:
            if not rows or (rows[0]["seq"], rows[0]["row_hash"]) != (self.seq, self.row_hash):
                raise BudgetError(
                    f"row {self.seq} of the ledger is not the one that was there: it has lost rows, or a backup was restored"
                )
            check_row(rows[0], keys)
            rows = rows[1:]
        previous, sealed_by = self.row_hash, self.sealed_by
        for number, row in enumerate(rows, start=self.seq + 1):
            check_row(row, keys)
            if row["seq"] != number or row["prev_hash"] != previous:
                raise BudgetError(f"the ledger is broken before row {row['seq']}: a row is missing or out of place")
            previous, sealed_by = row["row_hash"], check_key(row, sealed_by, keys)
        return self._with_events(tuple(map(event_of, rows)), previous, sealed_by)

    def _with_events(self, new: Sequence[Event], row_hash: str, sealed_by: str) -> View:
        events: dict[str, Sequence[Event]] = dict(self.events)
        touched: dict[str, list[Event]] = {}
        for event in new:
            if event.release is not None:
                touched.setdefault(event.release, []).append(event)
        releases, spent = dict(self.releases), dict(self.spent)
        for name, own in touched.items():
            events[name] = (*events.get(name, ()), *own)
            record = release_of(events[name])
            if record is not None:
                before = spent.get(record.dataset, Spent())
                spent[record.dataset] = before.with_release(record, releases.get(name))
                releases[name] = record
        return View(
            seq=self.seq + len(new),
            row_hash=row_hash,
            sealed_by=sealed_by,
            accounts=accounts_of(new, self.accounts),
            releases=releases,
            events=events,
            spent=spent,
        )
