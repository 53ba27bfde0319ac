"""Keeps the rows of the ledger that the runs of a home have seen, as the ledger signed them, and compares them with it.

A ledger that lacks a row that was seen is an older copy of itself: it does not have all that was drawn. The files contain rows
of the ledger, with public facts and keyed digests, and stay when a run is purged.
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
from marginweave.ledger.invariants import draws_not_begun, lacks_row
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
    """The file of the rows that one run has seen; its first line has the hash of the ledger's first row."""

    path: Path

    @property
    def ledger(self) -> str:
        """Hash of the first row of the ledger; empty if nothing was written yet.

        Raises:
            BudgetError: the file is damaged.
        """
        lines = self._lines()
        return str(self._content(lines[0], "ledger")["ledger"]) if lines else ""

    def head(self) -> Row | None:
        """Return the newest row, or None if there is none.

        Raises:
            BudgetError: the file is damaged.
        """
        lines = self._lines()
        return self._content(lines[-1], *_ROW) if len(lines) > 1 else None

    def rows(self) -> tuple[Row, ...]:
        """Return all rows, in order.

        Raises:
            BudgetError: the file is damaged.
        """
        return tuple(self._content(line, *_ROW) for line in self._lines()[1:])

    def _lines(self) -> list[bytes]:
        """Return the complete lines, without one that a crash has cut short."""
        with at_place(self.path, "read"):
            return self.path.read_bytes().split(b"\n")[:-1]

    def _content(self, line: bytes, *names: str) -> dict[str, Any]:
        """Return the object in a line, or refuse a line that is not an object with these `names`."""
        try:
            content = json.loads(line)
            if isinstance(content, dict) and content.keys() >= {*names}:
                return content
        except ValueError:
            pass
        raise BudgetError(
            f"{self.path} is damaged: it is not what was seen of the ledger; restore it from a backup"
        )

    def append(self, ledger: str, rows: Iterable[Row]) -> None:
        """Add rows durably, after the last complete line.

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
        """Cut off an incomplete line, and write the rows and, in a new file, the first line."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
        with os.fdopen(descriptor, "r+b") as stream:
            content = stream.read()
            end_of_lines = content.rfind(b"\n") + 1
            lines = [] if end_of_lines else [json.dumps({"format": 1, "ledger": ledger})]
            lines += [json.dumps(dict(row), sort_keys=True) for row in rows]
            stream.seek(end_of_lines)
            stream.truncate()
            stream.write(b"".join(line.encode() + b"\n" for line in lines))
            stream.flush()
            os.fsync(stream.fileno())
        if not content:
            sync_folder(self.path.parent)

    def restart(self, ledger: str, newest: Row) -> None:
        """Replace a damaged file by one of this ledger, whose `newest` row is the first that was seen.

        Raises:
            MachineError: the disk refuses.
        """
        remove_file(self.path)
        self.append(ledger, [newest])

    @property
    def reserve(self) -> Reserve:
        """Reserved room for the rows of a draw that was begun."""
        return Reserve(self.path.parent / "private" / "ledger.reserve", _ROOM)


@dataclass
class Witness:
    """The rows that the runs below `home` have seen, and the `run` in progress, if there is one, with its `release`."""

    home: Path
    run: Path | None = None
    release: str | None = None
    _newest: Row | None = field(default=None, repr=False)
    _ledger: str = ""

    def open(self, reading: Callable[[], AbstractContextManager[Journal]], where: str) -> None:
        """Compare all rows that were seen with the ledger, and note the rows of the run that it has not noted.

        Files are read before the transaction in which they are compared: other runs continue meanwhile, and the rows that they
        note are in the ledger already.

        Raises:
            BudgetError: the ledger lacks what was seen or drawn, or a file is missing, damaged or not this ledger's.
        """
        with reading() as journal:
            self._ledger = journal.identity()
        seen = {
            f"run {sighting.path.parent.name}": sighting.head()
            for sighting in sightings(self.home, self._ledger)
        }
        unseen = list(unseen_charges(self.home, self._ledger))
        with reading() as journal:
            _compare(journal, seen, where)
            for blind in blind_runs(journal, unseen):
                raise BudgetError(blind.refusal(where))
            self._newest = journal.newest_row()
            self._note_missing(journal)

    def follow(
        self, run: Path, release: str, reading: Callable[[], AbstractContextManager[Journal]]
    ) -> None:
        """Note all rows of `release` in the folder `run`, now and from now on; raises as `open`."""
        self.run = run
        self.release = release
        with reading() as journal:
            self._note_missing(journal)

    def _note_missing(self, journal: Journal) -> None:
        """Note the rows of the release that are not in the file of the run."""
        sighting = self._sighting
        if sighting is None or self.release is None:
            return
        head = sighting.head() if sighting.path.exists() else None
        rows = journal.release_rows(self.release)
        if head is not None:
            rows = [row for row in rows if row["seq"] > head["seq"]]
        if rows and self.run is not None and self.run.is_dir():
            sighting.append(self._ledger, rows)

    def check(self, journal: Journal, where: str) -> None:
        """Refuse a ledger without the newest row that this process has read or written: it may have been replaced.

        Raises:
            BudgetError: the ledger lacks it.
        """
        _compare(journal, {"this command": self._newest}, where)

    def keep(self, rows: Sequence[Row]) -> None:
        """Note the rows of a transaction before the caller acts on them: noise is made after its DRAWN row is noted.

        Raises:
            MachineError: the disk refuses.
        """
        if rows:
            self._newest = rows[-1]
        if rows and self._sighting is not None:
            self._sighting.append(self._ledger, rows)

    def has(self, run: str) -> bool:
        """Return whether a run of this name is below the home."""
        return (self.home / "runs" / run / "manifest.json").is_file()

    def has_room(self) -> bool:
        """Reserve room for the rows that will have to be noted; return whether it is there."""
        if self._sighting is None:
            return True
        reserve = self._sighting.reserve
        return not reserve.place.parent.is_dir() or reserve.make()

    @property
    def _sighting(self) -> Sighting | None:
        """File of the run in progress, or None."""
        return None if self.run is None else Sighting(self.run / SEEN)


def sightings(home: Path, ledger: str) -> Iterator[Sighting]:
    """Yield the files of the runs below `home` that have seen this ledger."""
    for path in sorted((home / "runs").glob(f"*/{SEEN}")):
        sighting = Sighting(path)
        if sighting.ledger == ledger:
            yield sighting


@dataclass(frozen=True, kw_only=True)
class BlindRun:
    """A charged run without a usable file of the rows that it has seen.

    `forgotten` are draws that it has made and that the ledger has not begun. `release` is None if the ledger does not have the
    release of the manifest.
    """

    sighting: Sighting
    manifest: Manifest
    release: ReleaseRecord | None
    forgotten: tuple[str, ...]

    def refusal(self, where: str) -> str:
        """Return why nothing is drawn, given back or published, and what to do."""
        if self.forgotten:
            return _older_copy(
                where, f"draw {self.forgotten[0]}", f"run {self.manifest.run} has made"
            )
        return (
            f"{self.sighting.path} is missing, empty or another ledger's, although its run was charged. Nobody can say whether "
            f"{where} is an older copy of itself, so nothing is drawn, given back or published with it. Restore the file, "
            f"or add what is known to be charged: {RECONCILE}"
        )


@dataclass(frozen=True, kw_only=True)
class UnseenCharge:
    """A run that was charged, by its manifest, and whose file is missing, or has the hash `names` of another ledger."""

    sighting: Sighting
    manifest: Manifest
    names: str


def unseen_charges(home: Path, ledger: str) -> Iterator[UnseenCharge]:
    """Yield the charged runs below `home` that have not seen this ledger, by their manifests."""
    for path in sorted((home / "runs").glob("*/manifest.json")):
        sighting = Sighting(path.with_name(SEEN))
        manifest = (
            None if _named(sighting) == ledger else RunFolder(path.parent).readable_manifest()
        )
        if manifest is None or not manifest.charged:
            continue
        # A run notes its rows before its manifest says that they are charged; it may have done both since the file was read.
        named = _named(sighting)
        if named != ledger:
            yield UnseenCharge(sighting=sighting, manifest=manifest, names=named)


def _named(sighting: Sighting) -> str:
    """Return the hash of the ledger that a file has; empty if there is no file, or none was written."""
    return sighting.ledger if sighting.path.is_file() else ""


def blind_runs(journal: Journal, unseen: Iterable[UnseenCharge]) -> Iterator[BlindRun]:
    """Yield the `unseen` runs that belong to this ledger, as far as anybody can say.

    These are the runs whose release is in this ledger, and those whose file does not have the hash of another one.
    """
    for charge in unseen:
        manifest = charge.manifest
        release = journal.find(manifest.release)
        if release is None and charge.names:
            continue  # of another ledger
        forgotten = () if release is None else draws_not_begun(manifest, release)
        yield BlindRun(
            sighting=charge.sighting, manifest=manifest, release=release, forgotten=forgotten
        )


def _compare(journal: Journal, seen: Mapping[str, Row | None], where: str) -> None:
    """Refuse a ledger that lacks one of the newest rows that were `seen`, by who has seen it.

    Raises:
        BudgetError: an older copy of itself, or a row that this ledger's key did not seal.
    """
    heads = {who: head for who, head in seen.items() if head is not None}
    present = journal.hashes([head["seq"] for head in heads.values()])
    for who, head in heads.items():
        if lacks_row(present, head):
            raise BudgetError(_older_copy(where, f"row {head['seq']}", f"{who} has seen"))


def _older_copy(where: str, missing: str, who: str) -> str:
    """Return the refusal of a ledger that is an older copy of itself."""
    return (
        f"{where} does not have {missing} that {who}: it is an older copy of itself and does not know all that was drawn, so "
        "nothing is drawn, given back or published with it. Restore the newest copy, or, where that is lost, add what is known "
        f"to be charged: {RECONCILE}"
    )
