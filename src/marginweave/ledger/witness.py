"""What a home has seen of its ledger: the rows of every run as the ledger signed them, the newest one last.

A ledger that lacks a row that was seen is an older copy of itself: it does not know all that was drawn. The files hold what
the ledger holds, public facts and keyed digests, and stay when a run is purged.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marginweave.accounting.records import ReleaseRecord
from marginweave.base.durable import PRIVATE_MODE, Reserve, at_place, remove_file, sync_folder
from marginweave.base.errors import BudgetError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger.invariants import is_missing, uncharged_draws
from marginweave.released.manifest import Manifest

if TYPE_CHECKING:
    from marginweave.ledger.journal import Journal

SEEN = "ledger.jsonl"
RECONCILE = "marginweave ledger reconcile"
_ROOM = 1 << 16
_ROW = ("seq", "row_hash", "mac")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sighting:
    """The file of one run; its first line names the ledger by the hash of its first row, each other one is a row."""

    path: Path

    @property
    def ledger(self) -> str:
        """The hash of the first row of the ledger; empty where nothing was written yet.

        Raises:
            BudgetError: the file is damaged.
        """
        lines = self._lines()
        return str(self._content(lines[0], "ledger")["ledger"]) if lines else ""

    def head(self) -> Row | None:
        """The newest row, or None where there is none.

        Raises:
            BudgetError: the file is damaged.
        """
        lines = self._lines()
        return self._content(lines[-1], *_ROW) if len(lines) > 1 else None

    def rows(self) -> tuple[Row, ...]:
        """All rows, in order.

        Raises:
            BudgetError: the file is damaged.
        """
        return tuple(self._content(line, *_ROW) for line in self._lines()[1:])

    def _lines(self) -> list[bytes]:
        """The whole lines; one that a crash has cut short is none."""
        with at_place(self.path, "read"):
            return self.path.read_bytes().split(b"\n")[:-1]

    def _content(self, line: bytes, *names: str) -> dict[str, Any]:
        try:
            content = json.loads(line)
            if isinstance(content, dict) and content.keys() >= {*names}:
                return content
        except ValueError:
            pass
        raise BudgetError(f"{self.path} is damaged: it is not what was seen of the ledger; restore it from a backup")

    def append(self, ledger: str, rows: Iterable[Row]) -> None:
        """Add rows durably, behind the last whole line.

        Raises:
            MachineError: the disk refuses.
        """
        with at_place(self.path, "written"):
            try:
                self._append(ledger, rows)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not self.reserve.give_up():
                    raise
                self._append(ledger, rows)

    def _append(self, ledger: str, rows: Iterable[Row]) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
        with os.fdopen(descriptor, "r+b") as stream:
            content = stream.read()
            whole = content.rfind(b"\n") + 1
            first = b"" if whole else json.dumps({"format": 1, "ledger": ledger}).encode() + b"\n"
            stream.seek(whole)
            stream.truncate()
            stream.write(first + b"".join(json.dumps(dict(row), sort_keys=True).encode() + b"\n" for row in rows))
            stream.flush()
            os.fsync(stream.fileno())
        if not content:
            sync_folder(self.path.parent)

    def restart(self, ledger: str, newest: Row) -> None:
        """A file of this ledger, whose newest row is the first that was seen, in the place of what is damaged.

        Raises:
            MachineError: the disk refuses.
        """
        remove_file(self.path)
        self.append(ledger, [newest])

    @property
    def reserve(self) -> Reserve:
        """Room for the rows of a draw that was begun."""
        return Reserve(self.path.parent / "private" / "ledger.reserve", _ROOM)


@dataclass
class Witness:
    """What the runs below `home` have seen, and the run that is worked on, if one is; `release` is its release."""

    home: Path
    run: Path | None = None
    release: str | None = None
    _newest: Row | None = field(default=None, repr=False)
    _ledger: str = ""

    def open(self, reading: Callable[[], AbstractContextManager[Journal]], where: str) -> None:
        """Compare everything that was seen with the ledger, and note what the run has not noted of its own rows.

        Files are read before the transaction that they are compared in: other runs go on meanwhile, and what they note is in
        the ledger already.

        Raises:
            BudgetError: the ledger lacks what was seen or drawn, or a file is missing, damaged or not this ledger's.
        """
        with reading() as journal:
            self._ledger = journal.identity()
        seen = {f"run {sighting.path.parent.name}": sighting.head() for sighting in sightings(self.home, self._ledger)}
        unseen = list(unseen_charges(self.home, self._ledger))
        with reading() as journal:
            _compare(journal, seen, where)
            for blind in blind_runs(journal, unseen):
                raise BudgetError(blind.refusal(where))
            self._newest = journal.newest_row()
            self._note_own(journal)

    def follow(self, run: Path, release: str, reading: Callable[[], AbstractContextManager[Journal]]) -> None:
        """Work on `run` from now on, once it has noted all rows of its `release`; raises as `open`."""
        self.run = run
        self.release = release
        with reading() as journal:
            self._note_own(journal)

    def _note_own(self, journal: Journal) -> None:
        own = self._own
        if own is None or self.release is None:
            return
        head = own.head() if own.path.exists() else None
        rows = [row for row in journal.release_rows(self.release) if head is None or row["seq"] > head["seq"]]
        if rows and self.run is not None and self.run.is_dir():
            own.append(self._ledger, rows)

    def check(self, journal: Journal, where: str) -> None:
        """Compare what this process has seen at the opening, or written since, with a ledger that may have been replaced.

        Raises:
            BudgetError: the ledger lacks it.
        """
        _compare(journal, {"this command": self._newest}, where)

    def keep(self, rows: Sequence[Row]) -> None:
        """Note the rows of a transaction, before anything follows from them: noise is made after its DRAWN row is here.

        Raises:
            MachineError: the disk refuses.
        """
        if rows:
            self._newest = rows[-1]
        if rows and self._own is not None:
            self._own.append(self._ledger, rows)

    def has(self, run: str) -> bool:
        """Whether a run of this name is below the home."""
        return (self.home / "runs" / run / "manifest.json").is_file()

    def has_room(self) -> bool:
        """Set room aside for what will have to be noted; whether it is there."""
        own = self._own
        return own is None or not own.reserve.place.parent.is_dir() or own.reserve.make()

    @property
    def _own(self) -> Sighting | None:
        return None if self.run is None else Sighting(self.run / SEEN)


def sightings(home: Path, ledger: str) -> Iterator[Sighting]:
    """What the runs below `home` have seen of this ledger."""
    return (seen for seen in map(Sighting, sorted((home / "runs").glob(f"*/{SEEN}"))) if seen.ledger == ledger)


@dataclass(frozen=True, kw_only=True)
class BlindRun:
    """A run that was charged and cannot be compared by what it has seen, or that has drawn what the ledger holds as not begun.

    `forgotten` are these draws; `release` is None where the ledger does not know the release of the manifest.
    """

    sighting: Sighting
    manifest: Manifest
    release: ReleaseRecord | None
    forgotten: tuple[str, ...]

    def refusal(self, where: str) -> str:
        """Why nothing is drawn, given back or published, and what to do."""
        if self.forgotten:
            return _older_copy(where, f"draw {self.forgotten[0]}", f"run {self.manifest.run} has made")
        return (
            f"{self.sighting.path} is missing, empty or another ledger's, although its run was charged. Nobody can say whether "
            f"{where} is an older copy of itself, so nothing is drawn, given back or published with it. Restore the file, "
            f"or add what is known to be charged: {RECONCILE}"
        )


@dataclass(frozen=True, kw_only=True)
class UnseenCharge:
    """A run that was charged, by its manifest, and whose file is missing, or `names` another ledger."""

    sighting: Sighting
    manifest: Manifest
    names: str


def unseen_charges(home: Path, ledger: str) -> Iterator[UnseenCharge]:
    """The runs below `home` whose manifests say more than what they have seen of this ledger, which is what is compared."""
    for path in sorted((home / "runs").glob("*/manifest.json")):
        sighting = Sighting(path.with_name(SEEN))
        manifest = None if _named(sighting) == ledger else RunFolder(path.parent).readable_manifest()
        # A run notes its rows before its manifest says that they are charged; it may have done both since the first look.
        if manifest is not None and manifest.charged and (named := _named(sighting)) != ledger:
            yield UnseenCharge(sighting=sighting, manifest=manifest, names=named)


def _named(sighting: Sighting) -> str:
    return sighting.ledger if sighting.path.is_file() else ""


def blind_runs(journal: Journal, unseen: Iterable[UnseenCharge]) -> Iterator[BlindRun]:
    """Those of them that this ledger cannot answer for.

    A manifest counts where its release is in this ledger, or where nothing says that the run is of another one.
    """
    for charge in unseen:
        manifest = charge.manifest
        release = journal.find(manifest.release)
        if release is None and charge.names:
            continue  # of another ledger
        forgotten = () if release is None else uncharged_draws(manifest, release)
        yield BlindRun(sighting=charge.sighting, manifest=manifest, release=release, forgotten=forgotten)


def _compare(journal: Journal, seen: Mapping[str, Row | None], where: str) -> None:
    """Refuse a ledger that lacks the newest row that somebody has seen; one look-up by number for each.

    Raises:
        BudgetError: an older copy of itself, or a row that this ledger's key did not seal.
    """
    heads = {who: head for who, head in seen.items() if head is not None}
    present = journal.hashes([head["seq"] for head in heads.values()])
    for who, head in heads.items():
        if is_missing(head, present):
            raise BudgetError(_older_copy(where, f"row {head['seq']}", f"{who} has seen"))


def _older_copy(where: str, what: str, who: str) -> str:
    return (
        f"{where} does not have {what} that {who}: it is an older copy of itself and does not know all that was drawn, so "
        "nothing is drawn, given back or published with it. Restore the newest copy, or, where that is lost, add what is known "
        f"to be charged: {RECONCILE}"
    )
