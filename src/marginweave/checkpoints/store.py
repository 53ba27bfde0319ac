"""Stores checkpoints of deterministic stages, addressed by what made them, as one payload or as blocks read one at a time.

An authenticated trailer proves that a file is complete, ours, and in its right place. Every block has a separate HMAC, and the
index at the end has an HMAC over all of them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

from marginweave.base.durable import (
    at_place,
    opened_file,
    read_file,
    remove_file,
    staged_file,
    write_once,
)
from marginweave.base.errors import StageError
from marginweave.configuration.values import check_name

MAGIC = b"MWSEAL01"
_DIGEST_BYTES = hashlib.sha256().digest_size
TRAILER_BYTES = len(MAGIC) + _DIGEST_BYTES


class DamagedCheckpoint(StageError):
    """The file of a deterministic stage is not what it wrote: it is never used, and the next attempt computes it again."""


def seal(key: bytes, address: tuple[str, ...], payload: bytes) -> tuple[bytes, str]:
    """Return `payload` with its trailer, and the payload's keyed digest in hex.

    The digest is HMAC-SHA256(key, JSON of address || 0 || payload): it binds the bytes to their place, and JSON holds no
    zero byte, so that no two pairs read alike.
    """
    digest = _digest(key, address, payload)
    return payload + MAGIC + digest, digest.hex()


def open_seal(key: bytes, address: tuple[str, ...], sealed: bytes) -> tuple[bytes, str] | None:
    """Return payload and keyed digest of what `seal` made at this address, or None for anything else."""
    payload = sealed[:-TRAILER_BYTES]
    trailer = sealed[-TRAILER_BYTES:]
    digest = _digest(key, address, payload)
    if not hmac.compare_digest(trailer, MAGIC + digest):
        return None
    return payload, digest.hex()


def _digest(key: bytes, address: Sequence[str | int], payload: bytes) -> bytes:
    prefix = json.dumps(address).encode() + b"\0"
    authentication = hmac.new(key, prefix, hashlib.sha256)
    authentication.update(payload)
    return authentication.digest()


BLOCK_MAGIC = b"MWBLOCK1"
_ENTRY = struct.Struct(f">Q{_DIGEST_BYTES}s")
_END = struct.Struct(f">Q{_DIGEST_BYTES}s{len(BLOCK_MAGIC)}s")


@dataclass(frozen=True)
class BlockFile(Sequence[bytes]):
    """Blocks of one checkpoint; a block is read from the file, and verified, at each access.

    It has a path, an index and a key: threads may share it, and it can be sent to another process.
    """

    path: Path
    address: tuple[str, ...]
    entries: tuple[tuple[int, bytes], ...]
    """Length and HMAC of every block."""
    digest: str
    """Keyed digest of all blocks, hex: HMAC-SHA256 over the address and the index."""
    key: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        return (0, *accumulate(length for length, _ in self.entries))

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        """Read block `index`; raises DamagedCheckpoint if it is damaged."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        length, digest = self.entries[place]
        with at_place(self.path, "read"), self.path.open("rb") as stream:
            stream.seek(self._offsets[place])
            payload = stream.read(length)
        computed = _digest(self.key, ("block", *self.address, place), payload)
        if not hmac.compare_digest(computed, digest):
            raise DamagedCheckpoint(f"{self.path} is damaged; the same command computes it again")
        return payload


def open_blocks(path: Path, key: bytes, address: tuple[str, ...]) -> BlockFile | None:
    """Open the blocks that `write_blocks` wrote at this address; None where there is no file.

    Raises:
        DamagedCheckpoint: the file is not complete, damaged, or not ours.
    """
    with opened_file(path) as stream:
        if stream is None:
            return None
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _END.size))
        count, written_digest, magic = _END.unpack(stream.read().rjust(_END.size, b"\0"))
        index = b""
        start = size - _END.size - count * _ENTRY.size
        if start >= 0:
            stream.seek(start)
            index = stream.read(count * _ENTRY.size)
    digest = _digest(key, ("blocks", *address), index)
    entries = tuple(_ENTRY.iter_unpack(index))
    if magic != BLOCK_MAGIC or not hmac.compare_digest(written_digest, digest):
        raise DamagedCheckpoint(
            f"{path} is damaged or was written under another key; the same command computes it again"
        )
    return BlockFile(path, address, entries, digest.hex(), key)


def write_blocks(
    path: Path, key: bytes, address: tuple[str, ...], payloads: Iterable[bytes]
) -> BlockFile:
    """Write `payloads` durably, name the file `path` unless the name is taken, and open the file of this name.

    One payload at a time is in memory. What `payloads` raises leaves no file behind.

    Raises:
        MachineError: the disk refuses.
        StageError: the file of this name is something else, or has vanished.
    """
    index = bytearray()
    with staged_file(path, 0) as staged, at_place(path, "written"):
        with staged.stream() as stream:
            for place, payload in enumerate(payloads):
                stream.write(payload)
                digest = _digest(key, ("block", *address, place), payload)
                index += _ENTRY.pack(len(payload), digest)
            stream.write(index)
            count = len(index) // _ENTRY.size
            digest = _digest(key, ("blocks", *address), bytes(index))
            stream.write(_END.pack(count, digest, BLOCK_MAGIC))
        with suppress(FileExistsError):
            staged.name_it()
    blocks = open_blocks(path, key, address)
    if blocks is None:
        raise StageError(f"{path} does not exist any more")
    return blocks


def address(
    stage: str, code_version: str, configuration_slice: Mapping[str, Any], inputs: Sequence[str]
) -> str:
    """Return the address of a stage's result: SHA-256 of the canonical JSON of everything it depends on, hex.

    Args:
        stage: name of the stage.
        code_version: version of the code that computes it.
        configuration_slice: the part of the configuration that the stage reads; JSON values.
        inputs: digests of its inputs in their order; keyed where the bytes are private.
    """
    content = {
        "stage": stage,
        "code": code_version,
        "configuration": configuration_slice,
        "inputs": list(inputs),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """Checkpoints in `folder` (`private/` or `derived/` of a run), sealed with `key`."""

    folder: Path
    key: bytes = field(repr=False)

    def place(self, stage: str, key: str) -> Path:
        """Return the file of `stage` at address `key`; its name has a keyed digest of the address."""
        digest = hmac.digest(self.key, b"name\0" + key.encode(), hashlib.sha256)
        return self.folder / f"{check_name(stage)}-{digest.hex()[:16]}.ckpt"

    def put(self, stage: str, key: str, payload: bytes) -> str:
        """Store `payload` durably and return its keyed digest; the same bytes again change nothing.

        Raises:
            StageError: the place holds other bytes, or the disk refuses.
        """
        sealed, digest = seal(self.key, ("stage", stage, key), payload)
        place = self.place(stage, key)
        if not write_once(place, sealed) and read_file(place) != sealed:
            raise StageError(
                f"stage {stage}: {place} holds other bytes than this stage computed; remove it to compute it again"
            )
        return digest

    def get(self, stage: str, key: str) -> bytes | None:
        """Read the payload at address `key`; None where the stage has not been stored.

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
                f"stage {stage}: {place} is damaged or was written under another key; the same command computes it again"
            )
        return opened[0]

    def put_blocks(self, stage: str, key: str, payloads: Iterable[bytes]) -> BlockFile:
        """Store `payloads` durably, one at a time in memory; a complete file that exists already is left as it is.

        Raises:
            StageError: the place holds something else, or the disk refuses.
        """
        return write_blocks(self.place(stage, key), self.key, ("stage", stage, key), payloads)

    def blocks(self, stage: str, key: str) -> BlockFile | None:
        """Open the blocks at address `key`; None where the stage has not been stored.

        Raises:
            DamagedCheckpoint: the file is damaged or not ours; it is never used.
        """
        return open_blocks(self.place(stage, key), self.key, ("stage", stage, key))

    def discard_damaged(self, stage: str, key: str, *, blocks: bool) -> None:
        """Remove the file at address `key` if any byte of it is damaged: the stage is then computed again.

        Raises:
            MachineError: the disk refuses.
        """
        try:
            if blocks:
                for _ in self.blocks(stage, key) or ():  # each access verifies a block
                    pass
            else:
                self.get(stage, key)
        except DamagedCheckpoint:
            remove_file(self.place(stage, key))
