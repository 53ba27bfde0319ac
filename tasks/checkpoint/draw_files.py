"""What a run keeps of its draws: their bytes, a file and a copy each, and the secret of each until it is committed.

A draw is a function of its seed and of what it is given, so that a draw which a crash has interrupted is made again, byte for
byte. A seed of 256 bits is made and sealed when the release is reserved, and destroyed when the draw is committed. No seed is
derived from another: an early one is gone while later ones live.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from marginweave.schemas.configuration.values import check_name
from marginweave.schemas.errors import StageError
from marginweave.schemas.ledger.records import ReleaseRecord, State
from marginweave.tasks.checkpoint.files import (
    PRIVATE_MODE,
    StagedFile,
    read_file,
    remove_file,
    remove_temporary_files,
    replace_file,
    staged_file,
)
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.checkpoint.store import TRAILER_BYTES, open_seal, seal

BEGUN_STATES = frozenset({State.DRAWN, State.COMMITTED, State.CHARGED_LOST})


def draw_file(folder: RunFolder, name: str, lease: str) -> Path:
    """The file of draw `name` that was begun under `lease`; its copy has another ending."""
    return folder.draws / f"{check_name(name)}.{check_name(lease)}.draw"


def unknown_draw(folder: RunFolder, record: ReleaseRecord) -> Path | None:
    """A draw on disk that the ledger never charged, or None.

    A draw gets its name after its DRAWN row is durable, so there is one only under a ledger that has lost rows.
    """
    known = {
        draw_file(folder, draw.name, draw.lease) for draw in record.draws if draw.lease and draw.state in BEGUN_STATES
    }
    found = sorted(folder.draws.glob("*.draw")) if folder.draws.is_dir() else ()
    return next((path for path in found if path not in known), None)


@dataclass(frozen=True)
class DrawStore:
    """Draws in `private/draws/` of a run, a file and a copy each, sealed with `key` (`Ledger.checkpoint_key`)."""

    folder: RunFolder
    key: bytes = field(repr=False)

    def place(self, name: str, lease: str) -> Path:
        """The file of draw `name` under `lease`."""
        return draw_file(self.folder, name, lease)

    def _copies(self, name: str, lease: str) -> tuple[Path, Path]:
        place = self.place(name, lease)
        return place, place.with_suffix(".copy")

    @contextmanager
    def room(self, name: str, lease: str, size: int, *, again: bool = False) -> Iterator[tuple[StagedFile, StagedFile]]:
        """Room for a draw of `size` bytes and its copy: what a full or read-only disk refuses, it refuses before the charge.

        Raises:
            StageError: the draw stands there before it is charged (unless it is made `again`), or the disk refuses.
        """
        (place, twin), room = self._copies(name, lease), size + TRAILER_BYTES
        if not again and read_file(place) is not None:
            raise StageError(f"{place} exists before its draw was charged; the lease of a draw must be new")
        with staged_file(place, room) as staged, staged_file(twin, room) as copy:
            yield staged, copy

    def stage(
        self,
        room: tuple[StagedFile, StagedFile],
        address: tuple[str, str, str],
        payload: bytes,
        permitted: Callable[[], None],
    ) -> str:
        """Store a complete draw and its copy durably; the keyed digest. `permitted` is asked right before it gets its name.

        Bytes that stand there already are the same, as every attempt makes the same, or damaged: then they give way.

        Raises:
            StageError: the place holds another whole draw, or the disk refuses.
        """
        sealed, digest = seal(self.key, ("draw", *address), payload)
        for staged in room:
            if not staged.keep(sealed, permitted) and (present := read_file(staged.path)) != sealed:
                if present is not None and open_seal(self.key, ("draw", *address), present) is not None:
                    raise StageError(f"{staged.path} exists: a draw is never written over")
                staged.take_over()
        return digest

    def digest(self, release_id: str, name: str, lease: str, payload: bytes) -> str:
        """The keyed digest of a draw."""
        return seal(self.key, ("draw", release_id, name, lease), payload)[1]

    def read(self, release_id: str, name: str, lease: str, digest: str | None) -> bytes | None:
        """The bytes of a complete, authentic draw (with `digest`, if given) or of its copy, or None for anything else.

        Raises:
            MachineError: the disk refuses.
        """
        for path in self._copies(name, lease):
            sealed = read_file(path)
            opened = None if sealed is None else open_seal(self.key, ("draw", release_id, name, lease), sealed)
            if opened is not None and (digest is None or hmac.compare_digest(opened[1], digest)):
                return opened[0]
        return None

    def mend(self, release_id: str, name: str, lease: str, payload: bytes) -> None:
        """Put the one right content where the file of a draw, or its copy, is missing or damaged.

        Raises:
            MachineError: the disk refuses.
        """
        sealed, _ = seal(self.key, ("draw", release_id, name, lease), payload)
        for path in self._copies(name, lease):
            if read_file(path) != sealed:
                replace_file(path, sealed, PRIVATE_MODE)

    def damaged(self, release_id: str, name: str, lease: str, digest: str) -> Path | None:
        """The file of a committed draw, or its copy, that is missing or damaged; None where both are whole.

        Draws of 0.1.0 have no copy, and need none here.

        Raises:
            MachineError: the disk refuses.
        """
        copies = self._copies(name, lease)
        for path in copies:
            sealed = read_file(path)
            if sealed is None and path != copies[0]:
                continue
            opened = None if sealed is None else open_seal(self.key, ("draw", release_id, name, lease), sealed)
            if opened is None or not hmac.compare_digest(opened[1], digest):
                return path
        return None

    def destroy(self, name: str, lease: str) -> None:
        """Remove whatever a lost draw, or a damaged one that is made again, has left.

        Raises:
            MachineError: the disk refuses.
        """
        for path in self._copies(name, lease):
            remove_file(path)

    def sweep(self) -> None:
        """Remove files that attempts before this one had not finished.

        Raises:
            MachineError: the disk refuses.
        """
        remove_temporary_files(self.folder.draws)
