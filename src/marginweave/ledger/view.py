"""Keeps the verified state of the whole ledger and brings it up to date row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marginweave.accounting.accounts import Account, Spent
from marginweave.accounting.records import ReleaseRecord
from marginweave.base.errors import BudgetError
from marginweave.ledger.journal import Journal, Row
from marginweave.ledger.records import accounts_of, releases_of
from marginweave.ledger.tables import Position, check_chain, check_row, event_of


def check_known_row(rows: list[Row], position: Position, journal: Journal) -> list[Row]:
    """Return the `rows` after the one at `position`, which must be the first of them; all if that is before the first row.

    Raises:
        BudgetError: it is not there any more, or was changed.
    """
    if not position.seq:
        return rows
    first = Position(rows[0]["seq"], rows[0]["row_hash"]) if rows else None
    if first != position:
        raise BudgetError(
            f"row {position.seq} of the ledger is not the one that was there: it has lost rows, or a backup was restored"
        )
    check_row(rows[0], journal.key)
    return rows[1:]


@dataclass(frozen=True, kw_only=True)
class View:
    """Accounts, releases and sums as of the row at `position`; every row up to it fits chain and key.

    A row that is changed in the database after it was verified changes no total here; the next process and `Ledger.verify`
    find it.
    """

    position: Position = field(default_factory=Position)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    releases: Mapping[str, ReleaseRecord] = field(default_factory=dict)
    spent: Mapping[str, Spent] = field(default_factory=dict)  # by dataset

    def spent_of(self, dataset: str) -> Spent:
        """Return the sums over the releases of one account."""
        return self.spent.get(dataset, Spent())

    def of(self, journal: Journal) -> View:
        """Return the whole ledger in the transaction of `journal`; only the rows after this view are read and checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved, the key is wrong, or this view's newest row is gone.
        """
        rows = journal.rows_from(self.position.seq)
        rows = check_known_row(rows, self.position, journal)
        position = check_chain(rows, journal.key, self.position)
        events = tuple(map(event_of, rows))
        accounts = accounts_of(events, self.accounts)
        releases = releases_of(events, self.releases)
        spent = dict(self.spent)
        for name in dict.fromkeys(event.release for event in events if event.release in releases):
            record = releases[name or ""]
            before = self.releases.get(name or "")
            sums = spent.get(record.dataset, Spent())
            spent[record.dataset] = sums.with_release(record, before)
        return View(position=position, accounts=accounts, releases=releases, spent=spent)
