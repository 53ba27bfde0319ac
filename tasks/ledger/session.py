"""One transaction at a time on a ledger, and what this process has verified of it, brought up to date row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Engine

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import Account, Spent
from marginweave.schemas.ledger.records import Event, ReleaseRecord
from marginweave.tasks.ledger.connection import reserve_beside
from marginweave.tasks.ledger.journal import Journal, transaction
from marginweave.tasks.ledger.keys import Keyring
from marginweave.tasks.ledger.location import LedgerLocation
from marginweave.tasks.ledger.records import accounts_of, release_of, releases_of
from marginweave.tasks.ledger.tables import Position, check_chain, check_row, event_of
from marginweave.tasks.ledger.witness import Witness


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
        if self.position.seq:
            if not rows or (rows[0]["seq"], rows[0]["row_hash"]) != self.position[:2]:
                raise BudgetError(
                    f"row {self.position.seq} of the ledger is not the one that was there: it has lost rows, or a backup was "
                    "restored"
                )
            check_row(rows[0], journal.key)
            rows = rows[1:]
        position = check_chain(rows, journal.key, self.position)
        events = tuple(map(event_of, rows))
        releases, spent = releases_of(events, self.releases), dict(self.spent)
        for name in dict.fromkeys(event.release for event in events if event.release in releases):
            record, before = releases[name or ""], self.releases.get(name or "")
            spent[record.dataset] = spent.get(record.dataset, Spent()).with_release(record, before)
        return View(position=position, accounts=accounts_of(events, self.accounts), releases=releases, spent=spent)


@dataclass(kw_only=True, eq=False, repr=False)
class Session:
    """The database of a ledger and the keys that seal it: each `with` block is one transaction.

    `witness` is what a home has seen of the ledger: it is compared before anything is written, and added to after.
    """

    location: LedgerLocation
    engine: Engine
    key: Keyring
    witness: Witness | None = None
    _verified: View = field(default_factory=View, init=False)

    def reading(self) -> AbstractContextManager[Journal]:
        """A transaction that only reads."""
        return transaction(self.engine, self.location, self.key, writing=False)

    @contextmanager
    def writing(self, *, charging: bool = False) -> Iterator[Journal]:
        """The one way to write; `charging` refuses a disk without room for the rows that a draw needs later.

        Raises:
            BudgetError: no room, the ledger cannot be written, or it lacks what the home has seen of it.
        """
        self._set_room_aside(charging=charging)
        with transaction(self.engine, self.location, self.key, writing=True) as journal:
            if self.witness is not None:
                self.witness.check(journal, f"the ledger {self.location}")
            yield journal
        if self.witness is not None:
            self.witness.keep(journal.written_events)

    def _set_room_aside(self, *, charging: bool) -> None:
        reserve = reserve_beside(self.location)
        rooms = [reserve is None or reserve.make(), self.witness is None or self.witness.has_room()]
        if charging and not all(rooms):
            raise BudgetError(
                f"the disk of the ledger {self.location}, or that of the run, is full or cannot be written: nothing is charged "
                "until there is room for what a draw has to book; make room and run the same command again"
            )

    def view(self, journal: Journal | None = None) -> View:
        """The whole ledger as it is now, or inside the transaction of `journal`, before anything is appended to it."""
        if journal is None:
            with self.reading() as reading:
                return self.view(reading)
        self._verified = self._verified.of(journal)
        return self._verified

    def events(self) -> tuple[Event, ...]:
        """All events, oldest first, with the whole chain checked."""
        with self.reading() as journal:
            return journal.all_events()

    def find(self, release_id: str) -> ReleaseRecord | None:
        """The release of this id, or None if it was never reserved."""
        with self.reading() as journal:
            return release_of(journal.release_events(release_id))
