"""Checkpoints of deterministic stages, addressed by what made them; whole, or of many blocks that are read one at a time.

An authenticated trailer proves that a file is complete, ours, and in its own place. Every block has an HMAC of its own, and the
index at the end one over all of them.
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

from marginweave.base.durable import at_place, opened_file, read_file, remove_file, staged_file, write_once
from marginweave.base.errors import StageError
from marginweave.configuration.values import check_name

MAGIC = b"MWSEAL01"
TRAILER_BYTES = len(MAGIC) + hashlib.sha256().digest_size


class DamagedCheckpoint(StageError):
    """The file of a deterministic stage is not what it wrote: it is never used, and the next attempt computes it anew."""


def seal(key: bytes, address: tuple[str, ...], payload: bytes) -> tuple[bytes, str]:
    """`payload` with its trailer, and the payload's keyed digest in hex.

    The digest is HMAC-SHA256(key, JSON of address || 0 || payload): it binds the bytes to their place, and JSON holds no
    zero byte, so that no two pairs read alike.
    """
    digest = _digest(key, address, payload)
    return payload + MAGIC + digest, digest.hex()


def open_seal(key: bytes, address: tuple[str, ...], sealed: bytes) -> tuple[bytes, str] | None:
    """Payload and keyed digest of what `seal` made at this address, or None for anything else."""
    payload, trailer = sealed[:-TRAILER_BYTES], sealed[-TRAILER_BYTES:]
    digest = _digest(key, address, payload)
    if not hmac.compare_digest(trailer, MAGIC + digest):
        return None
    return payload, digest.hex()


def _digest(key: bytes, address: Sequence[str | int], payload: bytes) -> bytes:
    authentication = hmac.new(key, json.dumps(address).encode() + b"\0", hashlib.sha256)
    authentication.update(payload)
    return authentication.digest()


BLOCK_MAGIC = b"MWBLOCK1"
_ENTRY = struct.Struct(f">Q{hashlib.sha256().digest_size}s")
_END = struct.Struct(f">Q{hashlib.sha256().digest_size}s{len(BLOCK_MAGIC)}s")


@dataclass(frozen=True)
class BlockFile(Sequence[bytes]):
    """The blocks of one checkpoint; a block is read, and verified, when it is asked for.

    It holds a path, an index and a key: threads may share it, and another process may be given it.
    """

    path: Path
    address: tuple[str, ...]
    entries: tuple[tuple[int, bytes], ...]
    """Length and HMAC of every block."""
    digest: str
    """Keyed digest of the whole, hex: HMAC-SHA256 over the address and the index."""
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
        """Block `index`; raises DamagedCheckpoint if it is damaged."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        length, digest = self.entries[place]
        with at_place(self.path, "read"), self.path.open("rb") as stream:
            stream.seek(self._offsets[place])
            payload = stream.read(length)
        if not hmac.compare_digest(_digest(self.key, ("block", *self.address, place), payload), digest):
            raise DamagedCheckpoint(f"{self.path} is damaged; the same command computes it again")
        return payload


def open_blocks(path: Path, key: bytes, address: tuple[str, ...]) -> BlockFile | None:
    """The blocks that `write_blocks` wrote at this address, or None where there is no file.

    Raises:
        DamagedCheckpoint: the file is not complete, damaged, or not ours.
    """
    with opened_file(path) as stream:
        if stream is None:
            return None
        size, index = stream.seek(0, os.SEEK_END), b""
        stream.seek(max(0, size - _END.size))
        count, kept, magic = _END.unpack(stream.read().rjust(_END.size, b"\0"))
        start = size - _END.size - count * _ENTRY.size
        if start >= 0:
            stream.seek(start)
            index = stream.read(count * _ENTRY.size)
    digest = _digest(key, ("blocks", *address), index)
    entries = tuple(_ENTRY.iter_unpack(index))
    if magic != BLOCK_MAGIC or not hmac.compare_digest(kept, digest):
        raise DamagedCheckpoint(
            f"{path} is damaged or was written under another key; the same command computes it again"
        )
    return BlockFile(path, address, entries, digest.hex(), key)


def write_blocks(path: Path, key: bytes, address: tuple[str, ...], payloads: Iterable[bytes]) -> BlockFile:
    """Write `payloads` durably, one after the other, give them the name `path` unless that is taken, and open what has it.

    One payload at a time is in memory. What `payloads` raises leaves no file behind.

    Raises:
        MachineError: the disk refuses.
        StageError: what has the name is something else, or has vanished.
    """
    index = bytearray()
    with staged_file(path, 0) as staged, at_place(path, "written"):
        with staged.stream() as stream:
            for place, payload in enumerate(payloads):
                stream.write(payload)
                index += _ENTRY.pack(len(payload), _digest(key, ("block", *address, place), payload))
            stream.write(index)
            count = len(index) // _ENTRY.size
            stream.write(_END.pack(count, _digest(key, ("blocks", *address), bytes(index)), BLOCK_MAGIC))
        with suppress(FileExistsError):
            staged.name_it()
    blocks = open_blocks(path, key, address)
    if blocks is None:
        raise StageError(f"{path} does not exist any more")
    return blocks


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
                f"stage {stage}: {place} holds other bytes than this stage computed; remove it to compute it again"
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
                f"stage {stage}: {place} is damaged or was written under another key; the same command computes it again"
            )
        return opened[0]

    def put_blocks(self, stage: str, key: str, payloads: Iterable[bytes]) -> BlockFile:
        """Store `payloads` durably, one at a time in memory; a complete file that is there already stands.

        Raises:
            StageError: the place holds something else, or the disk refuses.
        """
        return write_blocks(self.place(stage, key), self.key, ("stage", stage, key), payloads)

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
