"""Checkpoints of deterministic stages, addressed by what made them."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marginweave.schemas.errors import StageError
from marginweave.schemas.names import check_name
from marginweave.tasks.checkpoint.blocks import BlockFile, open_blocks, write_blocks
from marginweave.tasks.checkpoint.files import read_file, remove_file, write_once
from marginweave.tasks.checkpoint.seals import DamagedCheckpoint, open_seal, seal


def address(stage: str, code_version: str, configuration_slice: Mapping[str, Any], inputs: Sequence[str]) -> str:
    """The address of a stage's result: SHA-256 of the canonical JSON of everything it depends on, hex.

    Args:
        stage: name of the stage.
        code_version: version of the code that computes it.
        configuration_slice: the part of the configuration that the stage reads; JSON values.
        inputs: digests of its inputs in their order; keyed where the bytes are private.
    """
    content = {"stage": stage, "code": code_version, "configuration": configuration_slice, "inputs": list(inputs)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """Checkpoints in `folder` (`private/` or `derived/` of a run), sealed with `key`."""

    folder: Path
    key: bytes = field(repr=False)

    def place(self, stage: str, key: str) -> Path:
        """The file of `stage` at address `key`; its name has a keyed digest of the address."""
        named = hmac.digest(self.key, b"name\0" + key.encode(), hashlib.sha256).hex()[:16]
        return self.folder / f"{check_name(stage)}-{named}.ckpt"

    def put(self, stage: str, key: str, payload: bytes) -> str:
        """Store `payload` durably and return its keyed digest; the same bytes again change nothing.

        Raises:
            StageError: the place holds other bytes, or the disk refuses.
        """
        sealed, digest = seal(self.key, ("stage", stage, key), payload)
        place = self.place(stage, key)
        if not write_once(place, sealed) and read_file(place) != sealed:
            raise StageError(
                f"stage {stage}: {place} holds other bytes than this stage computed; remove it to compute anew"
            )
        return digest

    def get(self, stage: str, key: str) -> bytes | None:
        """The payload at address `key`, or None where the stage has not been stored.

        Raises:
            DamagedCheckpoint: the file is damaged or not ours; it is never used.
        """
        place = self.place(stage, key)
        sealed = read_file(place)
        if sealed is None:
            return None
        opened = open_seal(self.key, ("stage", stage, key), sealed)
        if opened is None:
            raise DamagedCheckpoint(
                f"stage {stage}: {place} is damaged or was written under another key; the same command computes it anew"
            )
        return opened[0]

    def put_blocks(self, stage: str, key: str, payloads: Iterable[bytes]) -> BlockFile:
        """Store `payloads` durably, one at a time in memory; a complete file that is there already stands.

        Raises:
            StageError: the place holds something else, or the disk refuses.
        """
        write_blocks(self.place(stage, key), self.key, ("stage", stage, key), payloads)
        found = self.blocks(stage, key)
        if found is None:
            raise StageError(f"stage {stage}: {self.place(stage, key)} has vanished")
        return found

    def blocks(self, stage: str, key: str) -> BlockFile | None:
        """The blocks at address `key`, or None where the stage has not been stored.

        Raises:
            DamagedCheckpoint: the file is damaged or not ours; it is never used.
        """
        return open_blocks(self.place(stage, key), self.key, ("stage", stage, key))

    def discard_damaged(self, stage: str, key: str, *, blocks: bool) -> None:
        """Remove what stands at address `key` unless it is whole, every byte of it: the stage is computed anew then.

        Raises:
            MachineError: the disk refuses.
        """
        try:
            for _ in (self.blocks(stage, key) or ()) if blocks else (self.get(stage, key),):
                pass
        except DamagedCheckpoint:
            remove_file(self.place(stage, key))
