"""Draws of noise: charged, then drawn, then committed, and never drawn twice for one charge."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from marginweave.schemas.configuration import check_name
from marginweave.schemas.errors import BudgetError, StageError
from marginweave.schemas.ledger import DrawRecord, ReleaseRecord, State
from marginweave.tasks.checkpoint.files import StagedFile, read_file, remove_file, remove_temporary_files, staged_file
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.checkpoint.seals import TRAILER_BYTES, open_seal, seal

SMALL = 1 << 12
_BEGUN = frozenset({State.DRAWN, State.COMMITTED, State.CHARGED_LOST})


class DrawLedger(Protocol):
    """What `run_draw` needs of the ledger (`tasks.budget.ledger.Ledger`)."""

    def release(self, release_id: str) -> ReleaseRecord | None:
        """The release, or None."""

    def check_lease(self, release_id: str, lease: str) -> None:
        """Refuse an attempt that was taken over."""

    def begin_draw(self, release_id: str, name: str, lease: str) -> None:
        """RESERVED → DRAWN."""

    def commit_draw(self, release_id: str, name: str, lease: str, digest: str, *, tainted: bool) -> None:
        """DRAWN → COMMITTED."""

    def lose_draw(self, release_id: str, name: str, lease: str) -> None:
        """DRAWN → CHARGED_LOST."""


def draw_file(folder: RunFolder, name: str, lease: str) -> Path:
    """The file of draw `name` under `lease`."""
    return folder.draws / f"{check_name(name)}.{check_name(lease)}.draw"


def unknown_draw(folder: RunFolder, record: ReleaseRecord) -> Path | None:
    """A draw on disk that the ledger never charged, or None.

    A draw gets its name after its DRAWN row is durable, so there is one only under a ledger that has lost rows.
    """
    known = {draw_file(folder, draw.name, draw.lease) for draw in record.draws if draw.lease and draw.state in _BEGUN}
    found = sorted(folder.draws.glob("*.draw")) if folder.draws.is_dir() else ()
    return next((path for path in found if path not in known), None)


@dataclass(frozen=True)
class DrawStore:
    """Draws in `private/draws/` of a run, one file a draw and lease, sealed with `key` (`Ledger.checkpoint_key`)."""

    folder: RunFolder
    key: bytes = field(repr=False)

    def place(self, name: str, lease: str) -> Path:
        """The file of draw `name` under `lease`."""
        return draw_file(self.folder, name, lease)

    @contextmanager
    def room(self, name: str, lease: str, size: int) -> Iterator[StagedFile]:
        """A file for a draw of `size` bytes: what a full or read-only disk refuses, it refuses before the charge.

        Raises:
            StageError: the draw of this lease was stored before, or the disk refuses.
        """
        place = self.place(name, lease)
        if read_file(place) is not None:
            raise StageError(f"{place} exists before its draw was charged; the lease of a draw must be new")
        with staged_file(place, size + TRAILER_BYTES) as staged:
            yield staged

    def stage(
        self, staged: StagedFile, release_id: str, name: str, lease: str, payload: bytes, permitted: Callable[[], None]
    ) -> str:
        """Store a complete draw durably and return its keyed digest; `permitted` is asked right before it gets its name.

        Raises:
            StageError: the draw of this lease was stored before, or the disk refuses.
        """
        sealed, digest = seal(self.key, ("draw", release_id, name, lease), payload)
        if not staged.keep(sealed, permitted):
            raise StageError(f"{staged.path} exists: a draw is never written over")
        return digest

    def digest(self, release_id: str, name: str, lease: str, payload: bytes) -> str:
        """The keyed digest of a draw."""
        return seal(self.key, ("draw", release_id, name, lease), payload)[1]

    def read(self, release_id: str, name: str, lease: str, digest: str | None) -> bytes | None:
        """The bytes of a complete, authentic draw (with `digest`, if given), or None for anything else.

        Raises:
            StageError: the disk refuses.
        """
        sealed = read_file(self.place(name, lease))
        opened = None if sealed is None else open_seal(self.key, ("draw", release_id, name, lease), sealed)
        if opened is None or (digest is not None and not hmac.compare_digest(opened[1], digest)):
            return None
        return opened[0]

    def destroy(self, name: str, lease: str) -> None:
        """Remove whatever a lost draw has left.

        Raises:
            StageError: the disk refuses.
        """
        remove_file(self.place(name, lease))

    def sweep(self) -> None:
        """Remove files that attempts before this one had not finished.

        Raises:
            StageError: the disk refuses.
        """
        remove_temporary_files(self.folder.draws)


def run_draw(
    ledger: DrawLedger,
    store: DrawStore,
    release_id: str,
    name: str,
    lease: str,
    make: Callable[[], tuple[bytes, bool]],
    *,
    size: int = SMALL,
) -> bytes:
    """The bytes of one draw: drawn now under its charge, adopted after a crash, or read back. The only way to draw.

    Every step but reading back
    needs the current lease of the release; an attempt that was taken over leaves nothing behind.
    DP: the cost that was reserved for the draw, once; a result that is read back or adopted costs nothing more.

    Args:
        ledger: where the draw is reserved.
        store: where its bytes are kept.
        release_id: the release.
        name: the draw.
        lease: names this attempt (`Ledger.take_lease`); a fresh one for each process.
        make: draws the noise and returns (payload, tainted); called at most once, after the charge is durable.
        size: how many bytes the payload may have; set aside before the charge, so that a full disk loses no draw.

    Raises:
        BudgetError: the draw is not reserved, it was lost, its result is tainted, its committed
            bytes are gone, or another attempt has taken over.
        StageError: the disk refuses.
    """
    draw = standing_draw(ledger, release_id, name)
    if draw.state == State.DRAWN:
        reconcile_draw(ledger, store, draw, lease)
        draw = standing_draw(ledger, release_id, name)
    if draw.state == State.COMMITTED:
        return _committed(store, draw)
    if draw.state == State.RETURNED:
        raise BudgetError(f"draw {name} of release {release_id} was given back before it was drawn; make a new release")
    if draw.state == State.CHARGED_LOST:
        store.destroy(draw.name, draw.lease or "")
        raise BudgetError(
            f"draw {name} of release {release_id} was charged and lost ({draw.cost}); the charge stays and it is not drawn "
            "again: make a new release"
        )
    with store.room(draw.name, lease, size) as staged:
        return _draw_now(ledger, store, staged, draw, lease, make)


def reconcile(ledger: DrawLedger, store: DrawStore, release_id: str, lease: str) -> None:
    """Settle what an attempt that ended early has left: each draw it had begun is adopted, or destroyed and booked as lost.

    DP: none; what is lost stays charged.

    Raises:
        BudgetError: no such release, or another attempt has taken over.
        StageError: the disk refuses.
    """
    for draw in _record(ledger, release_id).draws:
        if draw.state == State.DRAWN:
            reconcile_draw(ledger, store, draw, lease)
        elif draw.state == State.CHARGED_LOST:
            store.destroy(draw.name, draw.lease or "")
    store.sweep()


def reconcile_draw(ledger: DrawLedger, store: DrawStore, draw: DrawRecord, lease: str) -> None:
    """DRAWN → COMMITTED, by the bytes that the drawing lease has stored, or → CHARGED_LOST.

    Raises:
        BudgetError: another attempt has taken over.
        StageError: the disk refuses.
    """
    drawn_by = draw.lease or ""
    found = store.read(draw.release, draw.name, drawn_by, None)
    if found is None:
        ledger.lose_draw(draw.release, draw.name, lease)  # first: whoever was taken over destroys nothing
        store.destroy(draw.name, drawn_by)
        return
    digest = store.digest(draw.release, draw.name, drawn_by, found)
    ledger.commit_draw(draw.release, draw.name, lease, digest, tainted=False)  # a tainted draw is never staged


def standing_draw(ledger: DrawLedger, release_id: str, name: str) -> DrawRecord:
    """What answers for the planned draw `name` now: itself, or the spare that replaced it under 0.1.0.

    Raises:
        BudgetError: it is not reserved.
    """
    draw = _record(ledger, release_id).standing(name)
    if draw is None:
        raise BudgetError(f"draw {name} of release {release_id} is not reserved in the ledger")
    return draw


def _record(ledger: DrawLedger, release_id: str) -> ReleaseRecord:
    record = ledger.release(release_id)
    if record is None:
        raise BudgetError(f"release {release_id} is not reserved in the ledger")
    return record


def _draw_now(
    ledger: DrawLedger,
    store: DrawStore,
    staged: StagedFile,
    draw: DrawRecord,
    lease: str,
    make: Callable[[], tuple[bytes, bool]],
) -> bytes:
    release_id, name = draw.release, draw.name
    ledger.begin_draw(release_id, name, lease)
    payload, tainted = make()
    if tainted:
        ledger.lose_draw(release_id, name, lease)
        raise BudgetError(f"draw {name} of release {release_id} is tainted: its noise is not from the operating system")
    digest = store.stage(staged, release_id, name, lease, payload, lambda: ledger.check_lease(release_id, lease))
    ledger.commit_draw(release_id, name, lease, digest, tainted=tainted)
    return payload


def _committed(store: DrawStore, draw: DrawRecord) -> bytes:
    found = store.read(draw.release, draw.name, draw.lease or "", draw.digest)
    if found is None:
        raise BudgetError(
            f"draw {draw.name} of release {draw.release} is committed, but its bytes are missing or damaged; "
            "a committed draw is never redrawn: restore the run's private folder, or make a new release"
        )
    return found
