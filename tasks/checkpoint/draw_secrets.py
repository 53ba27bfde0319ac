"""The secret of each draw of a run, sealed from the reservation of the release until the draw is committed."""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from marginweave.schemas.configuration.values import check_name
from marginweave.tasks.checkpoint.files import (
    PRIVATE_MODE,
    at_place,
    read_file,
    remove_file,
    remove_temporary_files,
    replace_file,
    write_once,
)
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.checkpoint.store import open_seal, seal

SEED_BYTES = 32


class SeedSource(Protocol):
    """Where seeds come from. What a `tainted` source makes is for tests: ledger and publisher refuse it."""

    @property
    def tainted(self) -> bool:
        """Whether somebody but the operating system knows the seeds."""
        ...

    def seed(self, draw: str) -> bytes:
        """A seed for the draw of this name."""
        ...


class SystemSeeds:
    """The operating system's generator: every seed is drawn afresh."""

    tainted = False

    def seed(self, draw: str) -> bytes:  # noqa: ARG002 - the protocol's
        """32 bytes of os.urandom."""
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
class DrawSecrets:
    """The secrets of a run, `private/seeds/<draw>.seed` and `.copy`, each sealed under `key` at its own address."""

    folder: RunFolder
    key: bytes = field(repr=False)
    source: SeedSource = field(default_factory=SystemSeeds)

    def make(self, release_id: str, name: str) -> None:
        """A secret for a draw that was not begun: the one that is there, or a new one where both copies are gone or damaged.

        Nothing was ever drawn from a seed before its draw was begun, so that another one repeats nothing. Of two attempts at
        once the first makes it: a whole seed is never written over.

        Raises:
            MachineError: the disk refuses.
        """
        with at_place(self.folder.seeds, "created"):  # a run that 0.1.0 began has none
            self.folder.seeds.mkdir(mode=0o700, exist_ok=True)
        if self.read(release_id, name) is None:
            place, _ = self._places(name)
            sealed, _ = seal(self.key, ("seed", release_id, name), self.source.seed(name))
            if not write_once(place, sealed) and self._open(release_id, name, place) is None:
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
        self._write(release_id, name, DrawSecret(seed=secret.seed, noise=noise))

    def read(self, release_id: str, name: str) -> DrawSecret | None:
        """The secret of a draw, from whichever copy is whole; one that is damaged or another is mended. None where neither is.

        Raises:
            MachineError: the disk refuses.
        """
        places = self._places(name)
        opened = [self._open(release_id, name, place) for place in places]
        found = next((payload for payload in opened if payload is not None), None)
        if found is None:
            return None
        secret = DrawSecret(seed=found[:SEED_BYTES], noise=found[SEED_BYTES:])
        if any(payload != found for payload in opened):
            self._write(release_id, name, secret)
        return secret

    def destroy(self, name: str) -> None:
        """Remove both copies, durably.

        Raises:
            MachineError: the disk refuses.
        """
        for place in self._places(name):
            remove_file(place)

    def left(self) -> frozenset[str]:
        """Names of the draws of which a copy is there."""
        place = self.folder.seeds
        return frozenset(path.stem for path in place.iterdir()) if place.is_dir() else frozenset()

    def sweep(self) -> None:
        """Remove files that attempts before this one had not finished.

        Raises:
            MachineError: the disk refuses.
        """
        remove_temporary_files(self.folder.seeds)

    def _places(self, name: str) -> tuple[Path, Path]:
        stem = check_name(name)
        return self.folder.seeds / f"{stem}.seed", self.folder.seeds / f"{stem}.copy"

    def _open(self, release_id: str, name: str, place: Path) -> bytes | None:
        sealed = read_file(place)
        opened = None if sealed is None else open_seal(self.key, ("seed", release_id, name), sealed)
        return None if opened is None or len(opened[0]) < SEED_BYTES else opened[0]

    def _write(self, release_id: str, name: str, secret: DrawSecret) -> None:
        sealed, _ = seal(self.key, ("seed", release_id, name), secret.seed + secret.noise)
        for place in self._places(name):
            if not write_once(place, sealed) and read_file(place) != sealed:
                replace_file(place, sealed, PRIVATE_MODE)
