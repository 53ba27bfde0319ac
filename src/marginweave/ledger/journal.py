"""Reads and appends rows in transactions: what is read is authenticated, and what is written is sealed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Select, Table, bindparam, func, insert, select

from marginweave.accounting.records import Event, EventKind, ReleaseRecord
from marginweave.base.errors import BudgetError, FullDisk, LostConnection
from marginweave.ledger.connection import PAUSES, connected, reserve_for
from marginweave.ledger.keys import LedgerKey
from marginweave.ledger.location import LedgerLocation
from marginweave.ledger.tables import (
    ACCOUNTS,
    EVENTS,
    GENESIS,
    Position,
    check_chain,
    check_row,
    event_of,
    seal,
)
from marginweave.ledger.verified import VerifiedRelease

Row = dict[str, Any]  # the columns of EVENTS by name
_ROW = EVENTS.c
# Statements of every transaction of a run, built once: to build one takes longer than to run it.
_COLUMNS = tuple(EVENTS.columns.keys())
_OF_RELEASE = select(EVENTS).where(_ROW.release == bindparam("release")).order_by(_ROW.seq)
_NEWEST = select(EVENTS).order_by(_ROW.seq.desc()).limit(1)
_HASHES = select(_ROW.seq, _ROW.row_hash).where(_ROW.seq.in_(bindparam("numbers", expanding=True)))
_NEWEST_CHECKPOINT = select(func.max(_ROW.seq)).where(
    _ROW.account.is_(None), _ROW.kind == EventKind.CHECKPOINT, _ROW.draw.is_(None)
)


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The ledger inside one transaction. Methods check the rows that they return, unless they say "unchecked".

    All rows that are appended are sealed.

    `verified` has the releases that were read before, in this transaction or in earlier ones of the same process.
    """

    connection: Connection
    key: LedgerKey
    verified: dict[str, VerifiedRelease] = field(default_factory=dict)
    # in this transaction, in order
    written: list[tuple[Table, list[Row]]] = field(default_factory=list)

    def release(self, release: str) -> ReleaseRecord:
        """Return the release of this id.

        Raises:
            BudgetError: it was never reserved, or as `release_events`.
        """
        record = self.find(release)
        if record is None:
            raise BudgetError(f"release {release} is not in the ledger")
        return record

    def find(self, release: str) -> ReleaseRecord | None:
        """Return the release of this id, or None if it was never reserved; raises as `release_events`."""
        return self._verified_release(release).record

    def release_events(self, release: str) -> tuple[Event, ...]:
        """Return all events of one release, oldest first, each checked by its seal.

        Raises:
            BudgetError: a row was changed, or the key is wrong.
        """
        return self._verified_release(release).events

    def release_rows(self, release: str) -> list[Row]:
        """Return the rows of one release, oldest first, unchecked."""
        return self._read(_OF_RELEASE, release=release)

    def all_rows(self) -> list[Row]:
        """Return all rows, oldest first, with the whole chain checked; raises as `all_events`."""
        rows = self.rows_from(0)
        check_chain(rows, self.key)
        return rows

    def identity(self) -> str:
        """Return the hash of the first row, which no two ledgers have in common; empty if there is none."""
        return self.hashes([1]).get(1, "")

    def hashes(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the hashes of the rows with these numbers, without those that are missing."""
        rows = self.connection.execute(_HASHES, {"numbers": list(numbers)})
        return {row.seq: row.row_hash for row in rows}

    def all_events(self) -> tuple[Event, ...]:
        """Return all events, oldest first, with the whole chain checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved, or the key is wrong.
        """
        return tuple(map(event_of, self.all_rows()))

    def length(self) -> int:
        """Return the number of the newest row, unchecked; 0 if there is none."""
        return self.connection.scalar(select(func.max(_ROW.seq))) or 0

    def rows_at(self, position: Position) -> list[Row]:
        """Return the row at a position, unchecked, as a list that is empty if it is missing."""
        return self._rows(select(EVENTS).where(_ROW.seq == position.seq))

    def rows_since(self, releases: Collection[str]) -> list[Row]:
        """Return all rows from the reservation of the first of these releases on, with their part of the chain checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved since the first of these was reserved.
        """
        reservation = select(func.min(_ROW.seq)).where(_ROW.release.in_(releases))
        first = self.connection.scalar(reservation)
        rows = self.rows_from(first or 0)
        if rows:
            before = Position(rows[0]["seq"] - 1, rows[0]["prev_hash"])
            check_chain(rows, self.key, before)
        return rows

    def rows_of(self, numbers: Sequence[int]) -> list[Row]:
        """Return the rows with these numbers, oldest first, each checked by its seal.

        Raises:
            BudgetError: one was changed or removed.
        """
        rows = self._rows(select(EVENTS).where(_ROW.seq.in_(numbers)))
        present = {row["seq"] for row in rows}
        missing = sorted({*numbers} - present)
        if missing:
            raise BudgetError(f"the ledger is broken: row {missing[0]} is missing")
        return self._checked(rows)

    def checkpoint(self) -> Row | None:
        """Return the newest checkpoint, or None if there is none.

        Raises:
            BudgetError: it was changed.
        """
        number = self.checkpoint_number()
        if not number:
            return None
        return self.rows_of([number])[0]

    def checkpoint_number(self) -> int:
        """Return the number of the newest checkpoint, unchecked; 0 if there is none."""
        return self.connection.scalar(_NEWEST_CHECKPOINT) or 0

    def account_rows(
        self, accounts: Collection[str], kinds: Collection[EventKind], after: int = 0
    ) -> list[Row]:
        """Return the rows of these kinds about these accounts and their releases, but no draw, each checked by its seal.

        Raises:
            BudgetError: one was changed.
        """
        conditions = (
            _ROW.account.in_(accounts),
            _ROW.kind.in_(kinds),
            _ROW.draw.is_(None),
            _ROW.seq > after,
        )
        rows = self._rows(select(EVENTS).where(*conditions))
        return self._checked(rows)

    def newest_of(self, account: str, kinds: Collection[EventKind]) -> int:
        """Return the number of the newest row of these kinds about an account, its releases and draws; 0 for none."""
        newest = select(func.max(_ROW.seq))
        newest = newest.where(_ROW.account == account, _ROW.kind.in_(kinds))
        return self.connection.scalar(newest) or 0

    def newest_releases(self, account: str, most: int) -> list[ReleaseRecord]:
        """Return the newest releases of an account, at most `most`, in order of reservation; raises as `release_events`."""
        numbers = self._newest_numbers(account, EventKind.RESERVED, most)
        rows = self.rows_of(numbers)
        return [self.release(row["release"]) for row in rows]

    def rows_from(self, seq: int) -> list[Row]:
        """Return the rows from number `seq` on, oldest first, unchecked."""
        return self._rows(select(EVENTS).where(_ROW.seq >= seq))

    def newest_row(self) -> Row:
        """Return the newest row, checked by its seal.

        Raises:
            BudgetError: wrong key, changed row, or an empty ledger.
        """
        row = self._newest()
        if row is None:
            raise BudgetError(
                "the ledger is empty: it has lost its rows, or no account was ever opened"
            )
        return row

    def append(self, *entries: Event) -> None:
        """Add `entries` as the newest rows, in their order, sealed.

        Raises:
            BudgetError: the key does not verify the newest row.
        """
        newest = self._newest()
        seq = 0 if newest is None else newest["seq"]
        previous = GENESIS if newest is None else newest["row_hash"]
        rows = []
        for number, entry in enumerate(entries, start=seq + 1):
            row = seal(entry, seq=number, prev_hash=previous, key=self.key)
            rows.append(row)
            previous = row["row_hash"]
        if rows:
            self._insert(EVENTS, rows)

    def add_account(self, entry: Event) -> None:
        """Add an account and its OPENED event."""
        number = self.newest_row()["seq"] + 1
        self._insert(ACCOUNTS, [{"dataset": entry.account, "opened": number}])
        self.append(entry)

    @property
    def written_events(self) -> list[Row]:
        """Rows that this transaction has written, in order."""
        event_rows = []
        for table, rows in self.written:
            if table is EVENTS:
                event_rows += rows
        return event_rows

    def _insert(self, table: Table, rows: list[Row]) -> None:
        """Insert rows into a table, and note them as `written`."""
        self.written.append((table, rows))
        self.connection.execute(insert(table), rows)

    def _newest(self) -> Row | None:
        """Return the newest row, checked by its seal, or None if there is none."""
        rows = self._read(_NEWEST)
        if not rows:
            return None
        check_row(rows[0], self.key)
        return rows[0]

    def _verified_release(self, release: str) -> VerifiedRelease:
        """Return a release by its present rows, each checked by its seal."""
        before = self.verified.get(release, VerifiedRelease())
        present = before.with_rows(self.release_rows(release), self.key)
        self.verified[release] = present
        return present

    def _newest_numbers(self, account: str, kind: EventKind, most: int) -> list[int]:
        """Return the numbers of the newest rows of a kind about an account and its releases, but no draw, at most `most`."""
        numbers = select(_ROW.seq)
        numbers = numbers.where(_ROW.account == account, _ROW.kind == kind, _ROW.draw.is_(None))
        numbers = numbers.order_by(_ROW.seq.desc()).limit(most)
        return [*self.connection.scalars(numbers)]

    def _checked(self, rows: list[Row]) -> list[Row]:
        """Return `rows`, each checked by its seal."""
        for row in rows:
            check_row(row, self.key)
        return rows

    def _rows(self, query: Select[Any]) -> list[Row]:
        """Return the rows that a query of whole rows finds, oldest first."""
        return self._read(query.order_by(_ROW.seq))

    def _read(self, query: Select[Any], **values: str) -> list[Row]:
        """Return the rows that a query of whole rows finds, in its order."""
        rows = self.connection.execute(query, values).all()
        return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]


@contextmanager
def transaction(
    engine: Engine,
    location: LedgerLocation,
    key: LedgerKey,
    *,
    writing: bool,
    verified: dict[str, VerifiedRelease] | None = None,
) -> Iterator[Journal]:
    """Yield the ledger inside one transaction of `connected`.

    `verified` has the releases that were read before, and those that are read are added to it.
    If the answer to its commit is lost, the rows are looked up, and written if they are missing: they are there once, and the
    caller notices nothing. If the disk is full at the commit, the reserve is given up for them.

    Raises:
        BudgetError: as `connected`.
    """
    ended: Journal | None = None
    try:
        with connected(engine, location, writing=writing, patient=True) as connection:
            journal = Journal(
                connection=connection, key=key, verified={} if verified is None else verified
            )
            yield journal
            ended = journal
    except (LostConnection, FullDisk) as error:
        if ended is None:
            raise
        if isinstance(error, FullDisk):
            reserve = reserve_for(location)
            if reserve is None or not reserve.give_up():
                raise
        if ended.written:
            _write_once(engine, location, ended, error)


def _write_once(
    engine: Engine, location: LedgerLocation, journal: Journal, lost: BudgetError
) -> None:
    """Write the rows of `journal`, unless its commit, whose answer was `lost`, has written them.

    Sealed rows have the hash of the row before them. If that row is still the newest, nothing was written since, every rule
    that was checked for them holds, and they are inserted as they are. A writer holds the lock, so that a commit under way
    ends first.

    Raises:
        LostConnection: the server does not come back, or others have written meanwhile: then the rows are not there.
    """
    rows = journal.written_events
    for _ in PAUSES:
        try:
            with connected(engine, location, writing=True) as connection:
                hashes = select(_ROW.row_hash).order_by(_ROW.seq.desc())
                last = hashes.where(_ROW.seq == rows[-1]["seq"])
                if connection.scalar(last) == rows[-1]["row_hash"]:
                    return
                newest_hash = connection.scalar(hashes.limit(1)) or GENESIS
                if newest_hash != rows[0]["prev_hash"]:
                    break
                for table, table_rows in journal.written:
                    connection.execute(insert(table), table_rows)
        except LostConnection as error:
            lost = error
        else:
            return
    raise lost
