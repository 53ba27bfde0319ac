"""Runs transactions on a ledger, one at a time, and compares the ledger with its witness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Engine

from marginweave.accounting.records import Event, ReleaseRecord
from marginweave.base.errors import BudgetError
from marginweave.ledger.connection import reserve_for
from marginweave.ledger.journal import Journal, transaction
from marginweave.ledger.keys import LedgerKey
from marginweave.ledger.location import LedgerLocation
from marginweave.ledger.sums import Sums, is_due
from marginweave.ledger.verified import VerifiedRelease
from marginweave.ledger.view import View
from marginweave.ledger.witness import Witness


@dataclass(kw_only=True, eq=False, repr=False)
class Session:
    """The database of a ledger and the key that seals it: each `with` block is one transaction.

    `witness` has the rows that a home has seen: they are compared with the ledger before a row is written, and then updated.
    """

    location: LedgerLocation
    engine: Engine
    key: LedgerKey
    witness: Witness | None = None
    _verified: View = field(default_factory=View, init=False)
    _sums: Sums = field(default_factory=Sums, init=False)
    _releases: dict[str, VerifiedRelease] = field(default_factory=dict, init=False)

    def reading(self) -> AbstractContextManager[Journal]:
        """Return a transaction that only reads."""
        return self._transaction(writing=False)

    @contextmanager
    def writing(self, *, charging: bool = False) -> Iterator[Journal]:
        """Begin a transaction that writes; if `charging`, refuse a disk without room for the rows that a draw needs later.

        Raises:
            BudgetError: no room, the ledger cannot be written, or it lacks what the home has seen of it.
        """
        self._set_room_aside(charging=charging)
        with self._transaction(writing=True) as journal:
            if self.witness is not None:
                self.witness.check(journal, f"the ledger {self.location}")
            yield journal
            due = self._sums.of(journal) if is_due(journal) else None
            if due is not None:
                journal.append(due.row)
        self._sums = due or self._sums  # only after its rows are durable
        if self.witness is not None:
            self.witness.keep(journal.written_events)

    def _transaction(self, *, writing: bool) -> AbstractContextManager[Journal]:
        """Return a transaction, which shares the verified releases of this session."""
        return transaction(
            self.engine, self.location, self.key, writing=writing, verified=self._releases
        )

    def _set_room_aside(self, *, charging: bool) -> None:
        """Reserve room on the disks of ledger and run; if `charging`, refuse a disk without room."""
        reserve = reserve_for(self.location)
        ledger_has_room = reserve is None or reserve.make()
        run_has_room = self.witness is None or self.witness.has_room()
        if charging and not (ledger_has_room and run_has_room):
            raise BudgetError(
                f"the disk of the ledger {self.location}, or that of the run, is full or cannot be written: nothing is charged "
                "until there is room for what a draw has to book; make room and run the same command again"
            )

    def view(self, journal: Journal | None = None) -> View:
        """Return the whole present ledger, in the transaction of `journal` if given, before a row is appended to it."""
        if journal is None:
            with self.reading() as reading:
                return self.view(reading)
        self._verified = self._verified.of(journal)
        return self._verified

    def sums(self, journal: Journal | None = None) -> Sums:
        """Return accounts and their sums, as `view` has them, without reading the rows that a checkpoint has added up."""
        if journal is None:
            with self.reading() as reading:
                return self.sums(reading)
        self._sums = self._sums.of(journal)
        return self._sums

    def events(self) -> tuple[Event, ...]:
        """Return all events, oldest first, with the whole chain checked."""
        with self.reading() as journal:
            return journal.all_events()

    def find(self, release_id: str) -> ReleaseRecord | None:
        """Return the release of this id, or None if it was never reserved."""
        with self.reading() as journal:
            return journal.find(release_id)
