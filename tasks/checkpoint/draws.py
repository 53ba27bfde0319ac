"""Draws of noise: charged, then drawn, then committed, and never drawn twice for one charge."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from marginweave.schemas.configuration import check_name
from marginweave.schemas.errors import BudgetError, StageError
from marginweave.schemas.ledger import DrawRecord, ReleaseRecord, State
from marginweave.tasks.checkpoint.files import read_file, remove_file, write_once
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.checkpoint.seals import open_seal, seal


class DrawLedger(Protocol):
    """What `run_draw` needs of the ledger (`tasks.budget.ledger.Ledger`)."""

    def release(self, release_id: str) -> ReleaseRecord | None:
        """The release, or None."""

    def begin_draw(self, release_id: str, name: str, lease: str) -> None:
        """RESERVED → DRAWN."""

    def commit_draw(self, release_id: str, name: str, lease: str, digest: str, *, tainted: bool) -> None:
        """DRAWN → COMMITTED."""

    def lose_draw(self, release_id: str, name: str, lease: str) -> None:
        """DRAWN → CHARGED_LOST."""


@dataclass(frozen=True)
class DrawStore:
    """Draws in `private/draws/` of a run, one file a draw and lease, sealed with `key` (`Ledger.checkpoint_key`)."""

    folder: RunFolder
    key: bytes = field(repr=False)

    def place(self, name: str, lease: str) -> Path:
        """The file of draw `name` under `lease`."""
        return self.folder.draws / f"{check_name(name)}.{check_name(lease)}.draw"

    def stage(self, release_id: str, name: str, lease: str, payload: bytes) -> str:
        """Store a complete draw durably and return its keyed digest.

        Raises:
            StageError: the draw of this lease was stored before, or the disk refuses.
        """
        sealed, digest = seal(self.key, ("draw", release_id, name, lease), payload)
        if not write_once(self.place(name, lease), sealed):
            raise StageError(f"{self.place(name, lease)} exists: a draw is never written over")
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

    def destroy_incomplete(self, name: str, lease: str) -> None:
        """Remove whatever a crashed draw has left.

        Raises:
            StageError: the disk refuses.
        """
        remove_file(self.place(name, lease))


def run_draw(
    ledger: DrawLedger,
    store: DrawStore,
    release_id: str,
    name: str,
    lease: str,
    make: Callable[[], tuple[bytes, bool]],
) -> bytes:
    """The bytes of one draw: drawn now under its charge, adopted after a crash, or read back. The only way to draw.

    DP: the cost that was reserved for the draw, once; a result that is read back or adopted costs nothing more.

    Args:
        ledger: where the draw is reserved.
        store: where its bytes are kept.
        release_id: the release.
        name: the draw.
        lease: names this attempt; a fresh one for each process.
        make: draws the noise and returns (payload, tainted); called at most once, after the charge is durable.

    Raises:
        BudgetError: the draw is not reserved, its charge was lost, its result is tainted, or its committed bytes are gone.
        StageError: the disk refuses.
    """
    draw = _draw(ledger, release_id, name)
    if draw.state == State.COMMITTED:
        return _committed(store, draw)
    if draw.state == State.DRAWN:
        return _adopt(ledger, store, draw)
    if draw.state == State.CHARGED_LOST:
        raise _lost(draw)
    place = store.place(name, lease)  # a name that cannot be a file is refused before the charge
    if read_file(place) is not None:
        raise StageError(f"{place} exists before its draw was charged; the lease of a draw must be new")
    ledger.begin_draw(release_id, name, lease)
    payload, tainted = make()
    if tainted:
        ledger.lose_draw(release_id, name, lease)
        raise BudgetError(f"draw {name} of release {release_id} is tainted: its noise is not from the operating system")
    digest = store.stage(release_id, name, lease, payload)
    ledger.commit_draw(release_id, name, lease, digest, tainted=tainted)
    return payload


def _draw(ledger: DrawLedger, release_id: str, name: str) -> DrawRecord:
    record = ledger.release(release_id)
    draw = None if record is None else record.draw(name)
    if draw is None:
        raise BudgetError(f"draw {name} of release {release_id} is not reserved in the ledger")
    return draw


def _committed(store: DrawStore, draw: DrawRecord) -> bytes:
    found = store.read(draw.release, draw.name, draw.lease or "", draw.digest)
    if found is None:
        raise BudgetError(
            f"draw {draw.name} of release {draw.release} is committed, but its bytes are missing or damaged; "
            "a committed draw is never redrawn: restore the run's private folder, or make a new release"
        )
    return found


def _adopt(ledger: DrawLedger, store: DrawStore, draw: DrawRecord) -> bytes:
    lease = draw.lease or ""
    found = store.read(draw.release, draw.name, lease, None)
    if found is None:
        store.destroy_incomplete(draw.name, lease)
        ledger.lose_draw(draw.release, draw.name, lease)
        raise _lost(draw)
    digest = store.digest(draw.release, draw.name, lease, found)
    ledger.commit_draw(draw.release, draw.name, lease, digest, tainted=False)  # a tainted draw is never staged
    return found


def _lost(draw: DrawRecord) -> BudgetError:
    return BudgetError(
        f"draw {draw.name} of release {draw.release} was charged and lost in a crash (mu2 {draw.cost.mu2:.6g}, rho "
        f"{draw.cost.rho:.6g}, delta {draw.cost.delta:.6g}); the charge stays and it is not drawn again: make a new release"
    )
