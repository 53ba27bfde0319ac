"""What was verified of the whole ledger, brought up to date row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marginweave.accounting.accounts import Account, Spent
from marginweave.accounting.records import ReleaseRecord
from marginweave.base.errors import BudgetError
from marginweave.ledger.journal import Journal
from marginweave.ledger.records import accounts_of, releases_of
from marginweave.ledger.tables import Position, check_chain, check_row, event_of


def check_known_row(rows: list[dict[str, Any]], position: Position, journal: Journal) -> list[dict[str, Any]]:
    """The `rows` behind the one at `position`, which is the first of them; all where it is that before the first row.

    Raises:
        BudgetError: it is not there any more, or was changed.
    """
    if not position.seq:
        return rows
    if not rows or (rows[0]["seq"], rows[0]["row_hash"]) != position:
        raise BudgetError(
            f"row {position.seq} of the ledger is not the one that was there: it has lost rows, or a backup was restored"
        )
    check_row(rows[0], journal.key)
    return rows[1:]


@dataclass(frozen=True, kw_only=True)
class View:
    """Accounts, releases and sums as of the row at `position`; every row up to it fits chain and key.

    The rows count as they were verified: a row that is changed in the database later changes no total, and is found by the
    next process and by `Ledger.verify`.
    """

    position: Position = field(default_factory=Position)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    releases: Mapping[str, ReleaseRecord] = field(default_factory=dict)
    spent: Mapping[str, Spent] = field(default_factory=dict)  # by dataset

    def spent_of(self, dataset: str) -> Spent:
        """The sums over the releases of one account."""
        return self.spent.get(dataset, Spent())

    def of(self, journal: Journal) -> View:
        """The whole ledger inside the transaction of `journal`, of which only the rows behind this view are read and checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved, the key is wrong, or this view's newest row is gone.
        """
        rows = journal.rows_from(self.position.seq)
        rows = check_known_row(rows, self.position, journal)
        position = check_chain(rows, journal.key, self.position)
        events = tuple(map(event_of, rows))
        releases, spent = releases_of(events, self.releases), dict(self.spent)
        for name in dict.fromkeys(event.release for event in events if event.release in releases):
            record, before = releases[name or ""], self.releases.get(name or "")
            spent[record.dataset] = spent.get(record.dataset, Spent()).with_release(record, before)
        return View(position=position, accounts=accounts_of(events, self.accounts), releases=releases, spent=spent)
