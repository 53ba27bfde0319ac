"""Transactions on a ledger, authenticated and sealed, and what was verified of it, brought up to date row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Select, Table, func, insert, select

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import Account, Spent
from marginweave.schemas.ledger.records import Event, ReleaseRecord
from marginweave.tasks.ledger.connection import PAUSES, FullDisk, LostConnection, connected, reserve_beside
from marginweave.tasks.ledger.keys import Keyring, key_id, sealing_key
from marginweave.tasks.ledger.location import LedgerLocation
from marginweave.tasks.ledger.records import accounts_of, release_of, releases_of
from marginweave.tasks.ledger.tables import ACCOUNTS, EVENTS, GENESIS, Position, check_chain, check_row, event_of, seal


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The ledger inside one transaction. Nothing read here is unauthenticated, nothing written unsealed."""

    connection: Connection
    key: Keyring
    written: list[tuple[Table, list[dict[str, Any]]]] = field(default_factory=list)  # in this transaction, in order

    def release(self, release: str) -> ReleaseRecord:
        """The release of this id.

        Raises:
            BudgetError: it was never reserved, or as `release_events`.
        """
        if (record := self.find(release)) is None:
            raise BudgetError(f"release {release} is not in the ledger")
        return record

    def find(self, release: str) -> ReleaseRecord | None:
        """The release of this id, or None if it was never reserved; raises as `release_events`."""
        return release_of(self.release_events(release))

    def release_events(self, release: str) -> tuple[Event, ...]:
        """All events of one release, oldest first, each checked by its own seal.

        Raises:
            BudgetError: a row was changed, or the key is wrong.
        """
        rows = self.release_rows(release)
        for row in rows:
            check_row(row, self.key)
        return tuple(map(event_of, rows))

    def release_rows(self, release: str) -> list[dict[str, Any]]:
        """The rows of one release, oldest first, as they were sealed."""
        return self._rows(select(EVENTS).where(EVENTS.c.release == release))

    def all_rows(self) -> list[dict[str, Any]]:
        """All rows, oldest first, with the whole chain checked; raises as `all_events`."""
        rows = self.rows_from(0)
        check_chain(rows, self.key)
        return rows

    def identity(self) -> str:
        """The hash of the first row, which no two ledgers have in common; empty where there is none."""
        return self.hashes([1]).get(1, "")

    def hashes(self, numbers: Sequence[int]) -> dict[int, str]:
        """The hashes of the rows of these numbers, as far as they are there."""
        found = self.connection.execute(select(EVENTS).where(EVENTS.c.seq.in_(numbers)))
        return {row.seq: row.row_hash for row in found}

    def all_events(self) -> tuple[Event, ...]:
        """All events, oldest first, with the whole chain checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved, or the key is wrong.
        """
        return tuple(map(event_of, self.all_rows()))

    def rows_from(self, seq: int) -> list[dict[str, Any]]:
        """The rows from number `seq` on, oldest first, as they are."""
        return self._rows(select(EVENTS).where(EVENTS.c.seq >= seq))

    def newest_row(self) -> dict[str, Any]:
        """The newest row, which the key verifies.

        Raises:
            BudgetError: wrong key, changed row, or an empty ledger.
        """
        row = self._newest()
        if row is None:
            raise BudgetError("the ledger is empty: it has lost its rows, or no account was ever opened")
        return row

    def append(self, *entries: Event, sealed_by: str | None = None) -> None:
        """Add `entries` as the newest rows, in their order, sealed with the key in use, or with `sealed_by` from here on.

        Raises:
            BudgetError: no key of the ring verifies the newest row.
        """
        newest = self._newest()
        seq, previous = (0, GENESIS) if newest is None else (newest["seq"], newest["row_hash"])
        name = sealed_by or self.sealing_key(newest)
        rows = []
        for number, entry in enumerate(entries, start=seq + 1):
            rows.append(seal(entry, seq=number, prev_hash=previous, keys=self.key, sealed_by=name))
            previous = rows[-1]["row_hash"]
        if rows:
            self._insert(EVENTS, rows)

    def sealing_key(self, newest: Mapping[str, Any] | None) -> str:
        """The id of the key in use, which sealed the `newest` row."""
        return (sealing_key(newest["mac"]) if newest else "") or key_id(self.key.root)

    def add_account(self, entry: Event) -> None:
        """Add an account and its OPENED event."""
        self._insert(ACCOUNTS, [{"dataset": entry.account, "opened": self.newest_row()["seq"] + 1}])
        self.append(entry)

    @property
    def written_events(self) -> list[dict[str, Any]]:
        """The rows that this transaction has written, in order."""
        return [row for table, own in self.written if table is EVENTS for row in own]

    def _insert(self, table: Table, rows: list[dict[str, Any]]) -> None:
        self.written.append((table, rows))
        self.connection.execute(insert(table), rows)

    def _newest(self) -> dict[str, Any] | None:
        rows = self._rows(select(EVENTS).where(EVENTS.c.seq == select(func.max(EVENTS.c.seq)).scalar_subquery()))
        if not rows:
            return None
        check_row(rows[0], self.key)
        return rows[0]

    def _rows(self, query: Select[Any]) -> list[dict[str, Any]]:
        return [dict(row) for row in self.connection.execute(query.order_by(EVENTS.c.seq)).mappings()]


@contextmanager
def transaction(engine: Engine, location: LedgerLocation, key: Keyring, *, writing: bool) -> Iterator[Journal]:
    """The ledger inside one transaction of `connected`.

    Where the answer to its commit is lost, the rows are looked up, and written if they are missing: so they are there once, and
    the caller notices nothing. Where the disk is full at the commit, the reserve is given up for them.

    Raises:
        BudgetError: as `connected`.
    """
    ended: Journal | None = None
    try:
        with connected(engine, location, writing=writing, patient=True) as connection:
            journal = Journal(connection=connection, key=key)
            yield journal
            ended = journal
    except (LostConnection, FullDisk) as error:
        reserve = reserve_beside(location)
        if ended is None or (isinstance(error, FullDisk) and (reserve is None or not reserve.give_up())):
            raise
        if ended.written:
            _write_once(engine, location, ended, error)


def _write_once(engine: Engine, location: LedgerLocation, journal: Journal, lost: BudgetError) -> None:
    """Write the rows of `journal`, unless the commit that was lost has written them.

    Sealed rows have the hash of the row before them: where that is still the newest, nothing was written since, every rule that
    was checked for them holds, and they are inserted as they are. A writer has the lock, so a commit still under way ends
    before.

    Raises:
        LostConnection: the server does not come back, or others have written meanwhile: then the rows are not there.
    """
    rows = journal.written_events
    for _ in PAUSES:
        try:
            with connected(engine, location, writing=True) as connection:
                hashes = select(EVENTS.c.row_hash).order_by(EVENTS.c.seq.desc())
                if connection.scalar(hashes.where(EVENTS.c.seq == rows[-1]["seq"])) == rows[-1]["row_hash"]:
                    return
                if (connection.scalar(hashes.limit(1)) or GENESIS) != rows[0]["prev_hash"]:
                    break
                for table, own in journal.written:
                    connection.execute(insert(table), own)
        except LostConnection as error:
            lost = error
        else:
            return
    raise lost


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
