"""What every part of the ledger stands on: its place, its key, and one transaction at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

from sqlalchemy import Engine

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.events import Event
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.tasks.ledger.checks import release_in
from marginweave.tasks.ledger.engines import reserve_beside
from marginweave.tasks.ledger.journal import Journal, transaction
from marginweave.tasks.ledger.keyring import Keyring, subkey
from marginweave.tasks.ledger.location import LedgerLocation
from marginweave.tasks.ledger.sources import SourceDigest
from marginweave.tasks.ledger.view import View
from marginweave.tasks.ledger.witness import Witness


class LedgerCore:
    """The ledger at `location`, sealed with `key`: keys that hang on its own, and its transactions.

    `witness` is what a home has seen of it, which is compared before anything is written and added to after.
    """

    def __init__(
        self, *, location: LedgerLocation, engine: Engine, key: Keyring, witness: Witness | None = None
    ) -> None:
        self.location = location
        self._engine = engine
        self._key = key
        self._verified = View()
        self._witness = witness

    @property
    def checkpoint_key(self) -> bytes:
        """The key for checkpoints and draws of runs under this ledger; 32 bytes derived from the root key."""
        return subkey(self._key.root, "checkpoint")

    def source_digest(self, chunks: Iterable[bytes]) -> SourceDigest:
        """The digest of the concatenated chunks, keyed with the root: never stored, only its mark for a release is."""
        return SourceDigest.of(self._key.root, chunks)

    def _reading(self) -> AbstractContextManager[Journal]:
        return transaction(self._engine, self.location, self._key, writing=False)

    @contextmanager
    def _writing(self, *, charging: bool = False) -> Iterator[Journal]:
        """The one way to write; what is `charging` finds the room set aside that its later rows may need."""
        self._set_room_aside(charging=charging)
        with transaction(self._engine, self.location, self._key, writing=True) as journal:
            if self._witness is not None:
                self._witness.check(journal, f"the ledger {self.location}")
            yield journal
        if self._witness is not None:
            self._witness.keep(journal.written_events)

    def _set_room_aside(self, *, charging: bool) -> None:
        room = reserve_beside(self.location)
        if (room is not None and not room.make() and charging) or (
            self._witness is not None and not self._witness.has_room() and charging
        ):
            raise BudgetError(
                f"the disk of the ledger {self.location}, or that of the run, is full or cannot be written: nothing is charged "
                "until there is room for what a draw has to book; make room and run the same command again"
            )

    def _view(self, journal: Journal) -> View:
        """The whole ledger inside the transaction of `journal`, before anything is appended to it."""
        self._verified = journal.view(self._verified)
        return self._verified

    def _all_events(self) -> tuple[Event, ...]:
        with self._reading() as journal:
            return journal.all_events()

    def _now(self) -> View:
        with self._reading() as journal:
            return self._view(journal)

    def _known(self, release_id: str) -> ReleaseRecord:
        with self._reading() as journal:
            return release_in(journal, release_id)


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)
