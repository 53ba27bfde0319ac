"""What a run keeps of its draws: their bytes, a file and a copy each, and the secret of each until it is committed.

A draw is a function of its seed and of what it is given, so that a draw which a crash has interrupted is made again, byte for
byte. A seed of 256 bits is made and sealed when the release is reserved, and destroyed when the draw is committed. No seed is
derived from another: an early one is gone while later ones live.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from marginweave.base import durable as files
from marginweave.base.durable import PRIVATE_MODE, read_file, replace_file, staged_file, write_once
from marginweave.base.errors import StageError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.checkpoints.store import TRAILER_BYTES, open_seal, seal
from marginweave.configuration.values import check_name

SEED_BYTES = 32
_Staged = tuple[files.StagedFile, files.StagedFile]


@dataclass(frozen=True)
class _Copied:
    """Files of a run with a copy each, sealed with `key` (`Ledger.checkpoint_key`) at the address of their kind and name."""

    kind: ClassVar[str]
    folder: RunFolder
    key: bytes = field(repr=False)

    def place(self, *name: str) -> Path:
        """The file of this name; its copy has another ending."""
        return self.folder.path / "private" / f"{self.kind}s" / f"{'.'.join(map(check_name, name))}.{self.kind}"

    def _copies(self, *name: str) -> tuple[Path, Path]:
        place = self.place(*name)
        return place, place.with_suffix(".copy")

    def _payload(self, path: Path, release_id: str, *name: str, digest: str | None = None) -> bytes | None:
        """The bytes of a whole file (with `digest`, if given); None of one that is missing, damaged or of another address."""
        sealed = read_file(path)
        opened = None if sealed is None else open_seal(self.key, (self.kind, release_id, *name), sealed)
        if opened is not None and (digest is None or hmac.compare_digest(opened[1], digest)):
            return opened[0]
        return None

    def mend(self, payload: bytes, release_id: str, *name: str) -> str:
        """Put the one right content where the file or its copy is missing or has another one; its keyed digest.

        Raises:
            MachineError: the disk refuses.
        """
        sealed, digest = seal(self.key, (self.kind, release_id, *name), payload)
        for path in self._copies(*name):
            if read_file(path) != sealed and not write_once(path, sealed):
                replace_file(path, sealed, PRIVATE_MODE)
        return digest

    def destroy(self, *name: str) -> None:
        """Remove file and copy, durably: a seed of a draw that is committed, what a lost draw or a damaged one has left.

        Raises:
            MachineError: the disk refuses.
        """
        for path in self._copies(*name):
            files.remove_file(path)


class DrawStore(_Copied):
    """Draws in `private/draws/` of a run, each with the name of the draw and the lease that it was begun under."""

    kind = "draw"

    @contextmanager
    def room(self, name: str, lease: str, size: int, *, redrawn: bool = False) -> Iterator[_Staged]:
        """Room for a draw of `size` bytes and its copy: what a full or read-only disk refuses, it refuses before the charge.

        Raises:
            StageError: the draw stands there before it is charged (unless it is `redrawn`), or the disk refuses.
        """
        (place, twin), room = self._copies(name, lease), size + TRAILER_BYTES
        if not redrawn and read_file(place) is not None:
            raise StageError(f"{place} exists before its draw was charged; the lease of a draw must be new")
        with staged_file(place, room) as staged, staged_file(twin, room) as copy:
            yield staged, copy

    def stage(self, room: _Staged, address: tuple[str, str, str], payload: bytes, permitted: Callable[[], None]) -> str:
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

    def read(self, release_id: str, name: str, lease: str, digest: str | None) -> bytes | None:
        """The bytes of a complete, authentic draw (with `digest`, if given) or of its copy, or None for anything else.

        Raises:
            MachineError: the disk refuses.
        """
        found = (self._payload(path, release_id, name, lease, digest=digest) for path in self._copies(name, lease))
        return next((payload for payload in found if payload is not None), None)

    def damaged(self, release_id: str, name: str, lease: str, digest: str) -> Path | None:
        """The file of a committed draw, or its copy, that is missing or damaged; None where both are whole.

        Raises:
            MachineError: the disk refuses.
        """
        for path in self._copies(name, lease):
            if self._payload(path, release_id, name, lease, digest=digest) is None:
                return path
        return None


class SystemSeeds:
    """The operating system's generator: every seed is drawn afresh. Ledger and publisher refuse what a `tainted` one makes."""

    tainted = False

    def seed(self, draw: str) -> bytes:  # noqa: ARG002 - for tests
        """A seed for the draw of this name: 32 bytes of os.urandom."""
        return os.urandom(SEED_BYTES)


@dataclass(frozen=True, kw_only=True)
class DrawSecret:
    """What a draw is made from beside the rows: its seed, and noise of a library that no seed can repeat (or nothing)."""

    seed: bytes = field(repr=False)
    noise: bytes = field(repr=False)

    def bind(self, inputs: str) -> str:
        """What the ledger keeps of the inputs of a draw: HMAC-SHA256(HKDF(seed, "inputs"), digest || 0 || sealed noise), hex.

        It says nothing once the seed is destroyed, and until then nothing to who does not have it.
        """
        key = HKDF(algorithm=SHA256(), length=SEED_BYTES, salt=None, info=b"marginweave/inputs").derive(self.seed)
        return hmac.digest(key, inputs.encode() + b"\0" + self.noise, hashlib.sha256).hex()


@dataclass(frozen=True)
class DrawSecrets(_Copied):
    """The secrets of a run, `private/seeds/<draw>.seed` and `.copy`, from the reservation of a release to the commit."""

    kind = "seed"
    source: SystemSeeds = field(default_factory=SystemSeeds)

    def make(self, release_id: str, name: str) -> None:
        """A secret for a draw that was not begun: the one that is there, or a new one where both copies are gone or damaged.

        Nothing was ever drawn from a seed before its draw was begun, so that another one repeats nothing. Of two attempts at
        once the first makes it: a whole seed is never written over.

        Raises:
            MachineError: the disk refuses.
        """
        if self.read(release_id, name) is None:
            place = self.place(name)
            sealed, _ = seal(self.key, ("seed", release_id, name), self.source.seed(name))
            if not write_once(place, sealed) and self._payload(place, release_id, name) is None:
                replace_file(place, sealed, PRIVATE_MODE)
            self.read(release_id, name)  # which makes the copy

    def keep_noise(self, release_id: str, name: str, noise: bytes) -> None:
        """Seal noise of a library beside the seed, before its draw is begun.

        Raises:
            MachineError: the disk refuses.
        """
        self.make(release_id, name)
        secret = self.read(release_id, name)
        assert secret is not None
        self.mend(secret.seed + noise, release_id, name)

    def read(self, release_id: str, name: str) -> DrawSecret | None:
        """The secret of a draw, from whichever copy is whole; one that is damaged or another is mended. None where neither is.

        Raises:
            MachineError: the disk refuses.
        """
        opened = [self._payload(path, release_id, name) for path in self._copies(name)]
        found = next((payload for payload in opened if payload is not None), None)
        if found is None:
            return None
        if any(payload != found for payload in opened):
            self.mend(found, release_id, name)
        return DrawSecret(seed=found[:SEED_BYTES], noise=found[SEED_BYTES:])

    def left(self) -> frozenset[str]:
        """Names of the draws of which a copy is there."""
        place = self.folder.seeds
        return frozenset(path.stem for path in place.iterdir()) if place.is_dir() else frozenset()
