"""Transactions on a ledger, authenticated and sealed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Select, Table, bindparam, func, insert, select

from marginweave.accounting.records import Event, EventKind, ReleaseRecord
from marginweave.base.errors import BudgetError, FullDisk, LostConnection
from marginweave.ledger.connection import PAUSES, connected, reserve_beside
from marginweave.ledger.keys import LedgerKey
from marginweave.ledger.location import LedgerLocation
from marginweave.ledger.tables import ACCOUNTS, EVENTS, GENESIS, Position, check_chain, check_row, event_of, seal
from marginweave.ledger.verified import VerifiedRelease

# What every transaction of a run asks, made once: to make a statement takes longer than to run it.
_COLUMNS = tuple(EVENTS.columns.keys())
_OF_RELEASE = select(EVENTS).where(EVENTS.c.release == bindparam("release")).order_by(EVENTS.c.seq)
_NEWEST = select(EVENTS).order_by(EVENTS.c.seq.desc()).limit(1)
_HASHES = select(EVENTS.c.seq, EVENTS.c.row_hash).where(EVENTS.c.seq.in_(bindparam("numbers", expanding=True)))
_NEWEST_CHECKPOINT = select(func.max(EVENTS.c.seq)).where(
    EVENTS.c.account.is_(None), EVENTS.c.kind == EventKind.CHECKPOINT, EVENTS.c.draw.is_(None)
)


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The ledger inside one transaction. Nothing read here is unauthenticated, nothing written unsealed.

    `verified` has the releases that were read before, in this transaction or in earlier ones of the same process.
    """

    connection: Connection
    key: LedgerKey
    verified: dict[str, VerifiedRelease] = field(default_factory=dict)
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
        return self._release(release).record

    def release_events(self, release: str) -> tuple[Event, ...]:
        """All events of one release, oldest first, each checked by its own seal.

        Raises:
            BudgetError: a row was changed, or the key is wrong.
        """
        return self._release(release).events

    def release_rows(self, release: str) -> list[dict[str, Any]]:
        """The rows of one release, oldest first, as they were sealed."""
        return self._read(_OF_RELEASE, release=release)

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
        return {row.seq: row.row_hash for row in self.connection.execute(_HASHES, {"numbers": list(numbers)})}

    def all_events(self) -> tuple[Event, ...]:
        """All events, oldest first, with the whole chain checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved, or the key is wrong.
        """
        return tuple(map(event_of, self.all_rows()))

    def length(self) -> int:
        """The number of the newest row, as it is; 0 where there is none."""
        return self.connection.scalar(select(func.max(EVENTS.c.seq))) or 0

    def rows_at(self, position: Position) -> list[dict[str, Any]]:
        """The row at a position, as it is, if it is there."""
        return self._rows(select(EVENTS).where(EVENTS.c.seq == position.seq))

    def rows_since(self, releases: Collection[str]) -> list[dict[str, Any]]:
        """The rows from the first of these releases on, of everything, with their part of the chain checked.

        Raises:
            BudgetError: a row was changed, removed, inserted or moved since the first of these was reserved.
        """
        first = self.connection.scalar(select(func.min(EVENTS.c.seq)).where(EVENTS.c.release.in_(releases)))
        rows = self.rows_from(first or 0)
        if rows:
            before = Position(rows[0]["seq"] - 1, rows[0]["prev_hash"])
            check_chain(rows, self.key, before)
        return rows

    def rows_of(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of these numbers, oldest first, each checked by its own seal.

        Raises:
            BudgetError: one was changed or removed.
        """
        rows = self._rows(select(EVENTS).where(EVENTS.c.seq.in_(numbers)))
        lost = sorted({*numbers} - {row["seq"] for row in rows})
        if lost:
            raise BudgetError(f"the ledger is broken: row {lost[0]} is missing")
        return self._checked(rows)

    def checkpoint(self) -> dict[str, Any] | None:
        """The newest checkpoint, or None where there is none.

        Raises:
            BudgetError: it was changed.
        """
        number = self.checkpoint_number()
        return self.rows_of([number])[0] if number else None

    def checkpoint_number(self) -> int:
        """The number of the newest checkpoint, as it is; 0 where there is none."""
        return self.connection.scalar(_NEWEST_CHECKPOINT) or 0

    def account_rows(
        self, accounts: Collection[str], kinds: Collection[EventKind], after: int = 0
    ) -> list[dict[str, Any]]:
        """The rows of these kinds on these accounts and their releases, and no draw, each checked by its own seal.

        Raises:
            BudgetError: one was changed.
        """
        about = EVENTS.c.account.in_(accounts), EVENTS.c.kind.in_(kinds), EVENTS.c.draw.is_(None), EVENTS.c.seq > after
        return self._checked(self._rows(select(EVENTS).where(*about)))

    def newest_of(self, account: str, kinds: Collection[EventKind]) -> int:
        """The number of the newest row of these kinds on an account, its releases and draws; 0 for none."""
        about = EVENTS.c.account == account, EVENTS.c.kind.in_(kinds)
        return self.connection.scalar(select(func.max(EVENTS.c.seq)).where(*about)) or 0

    def newest_releases(self, account: str, most: int) -> list[ReleaseRecord]:
        """The newest releases of an account, at most so many, in order of reservation; raises as `release_events`."""
        rows = self.rows_of(self._numbers(account, EventKind.RESERVED, newest=most))
        return [self.release(row["release"]) for row in rows]

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

    def append(self, *entries: Event) -> None:
        """Add `entries` as the newest rows, in their order, sealed.

        Raises:
            BudgetError: the key does not verify the newest row.
        """
        newest = self._newest()
        seq, previous = (0, GENESIS) if newest is None else (newest["seq"], newest["row_hash"])
        rows = []
        for number, entry in enumerate(entries, start=seq + 1):
            rows.append(seal(entry, seq=number, prev_hash=previous, key=self.key))
            previous = rows[-1]["row_hash"]
        if rows:
            self._insert(EVENTS, rows)

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
        rows = self._read(_NEWEST)
        if not rows:
            return None
        check_row(rows[0], self.key)
        return rows[0]

    def _release(self, release: str) -> VerifiedRelease:
        """A release as its rows now are, each checked by its own seal."""
        before = self.verified.get(release, VerifiedRelease())
        present = before.with_rows(self.release_rows(release), self.key)
        self.verified[release] = present
        return present

    def _numbers(self, account: str, kind: EventKind, *, newest: int) -> list[int]:
        """The numbers of the newest rows of a kind on an account and its releases, and no draw."""
        about = EVENTS.c.account == account, EVENTS.c.kind == kind, EVENTS.c.draw.is_(None)
        return [
            *self.connection.scalars(select(EVENTS.c.seq).where(*about).order_by(EVENTS.c.seq.desc()).limit(newest))
        ]

    def _checked(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            check_row(row, self.key)
        return rows

    def _rows(self, query: Select[Any]) -> list[dict[str, Any]]:
        return self._read(query.order_by(EVENTS.c.seq))

    def _read(self, query: Select[Any], **values: str) -> list[dict[str, Any]]:
        """The rows that a query of whole rows finds, in its order."""
        return [dict(zip(_COLUMNS, row, strict=True)) for row in self.connection.execute(query, values).all()]


@contextmanager
def transaction(
    engine: Engine,
    location: LedgerLocation,
    key: LedgerKey,
    *,
    writing: bool,
    verified: dict[str, VerifiedRelease] | None = None,
) -> Iterator[Journal]:
    """The ledger inside one transaction of `connected`; `verified` is what earlier ones have read, and is added to.

    Where the answer to its commit is lost, the rows are looked up, and written if they are missing: so they are there once, and
    the caller notices nothing. Where the disk is full at the commit, the reserve is given up for them.

    Raises:
        BudgetError: as `connected`.
    """
    ended: Journal | None = None
    try:
        with connected(engine, location, writing=writing, patient=True) as connection:
            journal = Journal(connection=connection, key=key, verified={} if verified is None else verified)
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
