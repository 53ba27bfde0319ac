"""Opens the budget ledger, the only authority on what may be drawn: append-only, sealed, and refused if a part is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marginweave.accounting.records import Event, EventKind
from marginweave.base.errors import BudgetError
from marginweave.base.formats import LEDGER_FORMAT
from marginweave.ledger.accounts import Accounts
from marginweave.ledger.connection import connected, engine_for
from marginweave.ledger.creation import check_format, create_ledger
from marginweave.ledger.draws import Draws
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import SourceDigest, load_key, subkey
from marginweave.ledger.location import LedgerLocation, check_local, opening_command
from marginweave.ledger.reconciliation import OtherHomes, Outcome, reconcile
from marginweave.ledger.releases import Approvals, Evaluations, Releases
from marginweave.ledger.session import Session
from marginweave.ledger.witness import Witness


@dataclass(frozen=True)
class Keys:
    """The keys and digests that a ledger derives from its key."""

    session: Session

    @property
    def checkpoint_key(self) -> bytes:
        """Key for checkpoints and draws of runs under this ledger; 32 bytes derived from that of the ledger."""
        return subkey(self.session.key.material, "checkpoint")

    def source_digest(self, tables: Mapping[str, Iterable[bytes]]) -> SourceDigest:
        """Return the digest of the bytes of tables, by their names, keyed with the ledger's key; only its marks are stored.

        The name of the source is empty; the others are linked tables.
        """
        return SourceDigest.of(self.session.key.material, tables)


class Ledger:
    """An open ledger and its parts; made by `open` or `create`. Every method of a part is one transaction."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.location = session.location
        self.accounts = Accounts(session)
        self.releases = Releases(session)
        self.draws = Draws(session)
        self.approvals = Approvals(session)
        self.evaluations = Evaluations(session)
        self.keys = Keys(session)

    @classmethod
    def open(
        cls,
        location: LedgerLocation,
        *,
        environment: Mapping[str, str] = os.environ,
        command: str = opening_command(),
        witness: Witness | None = None,
    ) -> Ledger:
        """Return the ledger that exists at `location`; nothing is created.

        Args:
            location: the database file, or the place of a PostgreSQL database.
            environment: may have MARGINWEAVE_LEDGER_KEY.
            command: the command that would open what is missing (`opening_command`), for the end of a refusal.
            witness: the rows of it that a home has seen; every command that draws, returns or publishes has one.

        Raises:
            BudgetError: no database, no key, a key that does not verify the newest row, tables of a newer version, a file
                on a network file system, or a ledger that lacks what the home has seen of it.
            InputError: MARGINWEAVE_LEDGER_KEY is malformed, or the ledger was made by an older version.
        """
        if isinstance(location, Path):
            _check_file(location, command)
        engine = engine_for(location)
        with connected(engine, location, writing=False) as connection:
            check_format(connection, location, command)
            key = load_key(location, environment, command)
            Journal(connection=connection, key=key).newest_row()
        session = Session(location=location, engine=engine, key=key, witness=witness)
        if witness is not None:
            witness.open(session.reading, f"the ledger {location}")
        return cls(session)

    @classmethod
    def create(
        cls,
        location: LedgerLocation,
        *,
        environment: Mapping[str, str] = os.environ,
        witness: Witness | None = None,
    ) -> Ledger:
        """Return the ledger at `location`; make it (database, key 0600, a new folder 0700) if it does not exist.

        Raises:
            BudgetError: the database was lost while its key is there, or as `open`.
            InputError: MARGINWEAVE_LEDGER_KEY is malformed.
        """
        create_ledger(
            location,
            environment,
            Event(kind=EventKind.LEDGER_CREATED, body={"format": LEDGER_FORMAT}),
        )
        return cls.open(location, environment=environment, witness=witness)

    def follow(self, run: Path, release: str) -> None:
        """Note the rows of `release` in the folder `run`: all that are not noted there yet, and every later one.

        Raises:
            BudgetError: what was seen is damaged, or the ledger cannot be read.
        """
        if self.session.witness is not None:
            self.session.witness.follow(run, release, self.session.reading)

    def verify(self) -> int:
        """Check every row and its place in the chain; return the number of rows.

        Raises:
            BudgetError: names the first row that does not fit.
        """
        return len(self.session.events())

    def reconcile(
        self, homes: Sequence[Path], other_homes: OtherHomes | None = None, *, actor: str
    ) -> Outcome:
        """Add the rows that the runs below `homes` have seen and the ledger, an old copy, lacks (`reconciliation`)."""
        return reconcile(self.session, homes, other_homes, actor=actor)


def _check_file(location: Path, command: str) -> None:
    """Refuse a location without a file, or on a network file system."""
    check_local(location)
    try:
        exists = location.is_file()
    except OSError as error:
        raise BudgetError(f"the ledger at {location} cannot be read: {error.strerror}") from None
    if not exists:
        raise BudgetError(f"there is no ledger at {location}; open an account: {command}")
