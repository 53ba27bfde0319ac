"""Keeps the draws of a run: the bytes of each, in a file and a copy, and its secret until it is committed.

A draw is a function of its seed and its inputs: after a crash the same draw is made again, byte for byte. A seed of 256 bits is
made and sealed when the release is reserved, and destroyed when the draw is committed. No seed is derived from another: early
ones are destroyed while later ones are still needed.
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
class _CopiedFiles:
    """Files of a run with a copy each, sealed with `key` (`Ledger.checkpoint_key`) at the address of their kind and name."""

    kind: ClassVar[str]
    folder: RunFolder
    key: bytes = field(repr=False)

    def place(self, *name: str) -> Path:
        """Return the path of the file of this name; its copy has another ending."""
        stem = ".".join(map(check_name, name))
        return self.folder.path / "private" / f"{self.kind}s" / f"{stem}.{self.kind}"

    def _copies(self, *name: str) -> tuple[Path, Path]:
        """Return the paths of the file of this name and of its copy."""
        place = self.place(*name)
        return place, place.with_suffix(".copy")

    def _payload(
        self, path: Path, release_id: str, *name: str, digest: str | None = None
    ) -> bytes | None:
        """Return the payload of an undamaged file (with `digest`, if given).

        None if the file is missing or damaged, or is sealed for another address.
        """
        sealed = read_file(path)
        opened = (
            None if sealed is None else open_seal(self.key, (self.kind, release_id, *name), sealed)
        )
        if opened is not None and (digest is None or hmac.compare_digest(opened[1], digest)):
            return opened[0]
        return None

    def mend(self, payload: bytes, release_id: str, *name: str) -> str:
        """Write the payload where the file or its copy is missing or has another content; return its keyed digest.

        Raises:
            MachineError: the disk refuses.
        """
        sealed, digest = seal(self.key, (self.kind, release_id, *name), payload)
        for path in self._copies(*name):
            if read_file(path) != sealed and not write_once(path, sealed):
                replace_file(path, sealed, PRIVATE_MODE)
        return digest

    def destroy(self, *name: str) -> None:
        """Remove file and copy, durably: the seed of a committed draw, or the bytes of a lost or damaged draw.

        Raises:
            MachineError: the disk refuses.
        """
        for path in self._copies(*name):
            files.remove_file(path)


class DrawStore(_CopiedFiles):
    """The draws in `private/draws/` of a run, each with the name of the draw and the lease that it was begun under."""

    kind = "draw"

    @contextmanager
    def room(self, name: str, lease: str, size: int, *, redrawn: bool = False) -> Iterator[_Staged]:
        """Yield staged files with room for a draw of `size` bytes and its copy.

        A full or read-only disk refuses them before the charge, and not after it.

        Raises:
            StageError: the draw is there before it is charged (unless it is `redrawn`), or the disk refuses.
        """
        place, copy_place = self._copies(name, lease)
        sealed_size = size + TRAILER_BYTES
        if not redrawn and read_file(place) is not None:
            raise StageError(
                f"{place} exists before its draw was charged; the lease of a draw must be new"
            )
        with (
            staged_file(place, sealed_size) as staged,
            staged_file(copy_place, sealed_size) as staged_copy,
        ):
            yield staged, staged_copy

    def stage(
        self,
        room: _Staged,
        address: tuple[str, str, str],
        payload: bytes,
        permitted: Callable[[], None],
    ) -> str:
        """Store a complete draw and its copy durably; return the keyed digest.

        `permitted` raises if the attempt may not commit: it is called right before each file gets its name. Bytes that are
        there already are the same, as every attempt makes the same bytes, or they are damaged and replaced.

        Raises:
            StageError: the place holds another whole draw, or the disk refuses.
        """
        sealed, digest = seal(self.key, ("draw", *address), payload)
        for staged in room:
            if staged.keep(sealed, permitted):
                continue
            present = read_file(staged.path)
            if present == sealed:
                continue
            if present is not None and open_seal(self.key, ("draw", *address), present) is not None:
                raise StageError(f"{staged.path} exists: a draw is never written over")
            staged.take_over()
        return digest

    def read(self, release_id: str, name: str, lease: str, digest: str | None) -> bytes | None:
        """Return the bytes of a complete, authentic draw (with `digest`, if given) or of its copy, or None for anything else.

        Raises:
            MachineError: the disk refuses.
        """
        for path in self._copies(name, lease):
            payload = self._payload(path, release_id, name, lease, digest=digest)
            if payload is not None:
                return payload
        return None

    def damaged(self, release_id: str, name: str, lease: str, digest: str) -> Path | None:
        """Return the path of a missing or damaged file of a committed draw, or of its copy; None if both are whole.

        Raises:
            MachineError: the disk refuses.
        """
        for path in self._copies(name, lease):
            if self._payload(path, release_id, name, lease, digest=digest) is None:
                return path
        return None


class SystemSeeds:
    """The operating system's generator of seeds. Ledger and publisher refuse draws from the seeds of a `tainted` one."""

    tainted = False

    def seed(self, draw: str) -> bytes:  # noqa: ARG002 - for tests
        """Return a new seed for the draw of this name: 32 bytes of os.urandom."""
        return os.urandom(SEED_BYTES)


@dataclass(frozen=True, kw_only=True)
class DrawSecret:
    """The secret of a draw: its seed, and noise of a library that no seed can repeat (or nothing)."""

    seed: bytes = field(repr=False)
    noise: bytes = field(repr=False)

    def bind(self, inputs: str) -> str:
        """Return the bound digest of a draw's `inputs`: HMAC-SHA256(HKDF(seed, "inputs"), digest || 0 || sealed noise), hex.

        The ledger keeps it. It reveals nothing without the seed, and so nothing to anybody after the seed is destroyed.
        """
        key = HKDF(
            algorithm=SHA256(), length=SEED_BYTES, salt=None, info=b"marginweave/inputs"
        ).derive(self.seed)
        return hmac.digest(key, inputs.encode() + b"\0" + self.noise, hashlib.sha256).hex()


@dataclass(frozen=True)
class DrawSecrets(_CopiedFiles):
    """The secrets of a run, `private/seeds/<draw>.seed` and `.copy`, from the reservation of a release to the commit."""

    kind = "seed"
    source: SystemSeeds = field(default_factory=SystemSeeds)

    def make(self, release_id: str, name: str) -> None:
        """Make a secret for a draw that was not begun, unless an undamaged copy of one is there.

        No noise is drawn from a seed before its draw is begun, so that a new seed repeats nothing. If two attempts do this at
        once, the first one's seed is kept: an undamaged seed is never overwritten.

        Raises:
            MachineError: the disk refuses.
        """
        if self.read(release_id, name) is None:
            place = self.place(name)
            sealed, _ = seal(self.key, ("seed", release_id, name), self.source.seed(name))
            if not write_once(place, sealed) and self._payload(place, release_id, name) is None:
                replace_file(place, sealed, PRIVATE_MODE)
            self.read(release_id, name)  # also makes the copy

    def keep_noise(self, release_id: str, name: str, noise: bytes) -> None:
        """Seal noise of a library together with the seed, before its draw is begun.

        Raises:
            MachineError: the disk refuses.
        """
        self.make(release_id, name)
        secret = self.read(release_id, name)
        assert secret is not None
        self.mend(secret.seed + noise, release_id, name)

    def read(self, release_id: str, name: str) -> DrawSecret | None:
        """Return the secret of a draw from the first undamaged copy, and mend the other if it differs.

        None if neither is undamaged.

        Raises:
            MachineError: the disk refuses.
        """
        first, copy = (self._payload(path, release_id, name) for path in self._copies(name))
        payload = first if first is not None else copy
        if payload is None:
            return None
        if first != copy:
            self.mend(payload, release_id, name)
        return DrawSecret(seed=payload[:SEED_BYTES], noise=payload[SEED_BYTES:])

    def present(self) -> frozenset[str]:
        """Return the names of the draws whose secret is there, or a copy of it."""
        place = self.folder.seeds
        return frozenset(path.stem for path in place.iterdir()) if place.is_dir() else frozenset()
