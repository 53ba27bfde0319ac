"""A checkpoint of many blocks: written one after the other, read in any order, so that no reader needs room for all of them.

Every block has an HMAC of its own, and the index at the end one over all of them: it proves that the file is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import overload

from marginweave.tasks.checkpoint.files import at_place, staged_file
from marginweave.tasks.checkpoint.seals import DamagedCheckpoint

MAGIC = b"MWBLOCK1"
_ENTRY = struct.Struct(f">Q{hashlib.sha256().digest_size}s")
_END = struct.Struct(f">Q{hashlib.sha256().digest_size}s{len(MAGIC)}s")


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
        if not hmac.compare_digest(_block_digest(self.key, self.address, place, payload), digest):
            raise DamagedCheckpoint(f"{self.path} is damaged; the same command computes it anew")
        return payload

    def __iter__(self) -> Iterator[bytes]:
        return (self[place] for place in range(len(self)))


def open_blocks(path: Path, key: bytes, address: tuple[str, ...]) -> BlockFile | None:
    """The blocks that `write_blocks` wrote at this address, or None where there is no file.

    Raises:
        DamagedCheckpoint: the file is not complete, damaged, or not ours.
    """
    with at_place(path, "read"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            index, end = b"", b""
            if size >= _END.size:
                stream.seek(size - _END.size)
                end = stream.read()
                count = _END.unpack(end)[0]
                if count <= (size - _END.size) // _ENTRY.size:
                    stream.seek(size - _END.size - count * _ENTRY.size)
                    index = stream.read(count * _ENTRY.size)
    fitting = _END.unpack(end)[1:] if end else (b"", b"")
    digest = _index_digest(key, address, index)
    entries = tuple(_ENTRY.iter_unpack(index))
    if fitting[1] != MAGIC or not hmac.compare_digest(fitting[0], digest):
        raise DamagedCheckpoint(
            f"{path} is damaged or was written under another key; the same command computes it anew"
        )
    return BlockFile(path, address, entries, digest.hex(), key)


def write_blocks(path: Path, key: bytes, address: tuple[str, ...], payloads: Iterable[bytes]) -> None:
    """Write `payloads` durably, one after the other, and give them the name `path` unless that is taken.

    One payload at a time is in memory. What `payloads` raises leaves no file behind.

    Raises:
        MachineError: the disk refuses.
    """
    index = bytearray()
    with staged_file(path, 0) as staged, at_place(path, "written"):
        with os.fdopen(os.dup(staged.descriptor), "wb") as stream:
            for place, payload in enumerate(payloads):
                stream.write(payload)
                index += _ENTRY.pack(len(payload), _block_digest(key, address, place, payload))
            stream.write(index)
            count = len(index) // _ENTRY.size
            stream.write(_END.pack(count, _index_digest(key, address, bytes(index)), MAGIC))
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            staged.name_it()


def _block_digest(key: bytes, address: tuple[str, ...], place: int, payload: bytes) -> bytes:
    authentication = hmac.new(key, json.dumps(["block", *address, place]).encode() + b"\0", hashlib.sha256)
    authentication.update(payload)
    return authentication.digest()


def _index_digest(key: bytes, address: tuple[str, ...], index: bytes) -> bytes:
    return hmac.digest(key, json.dumps(["blocks", *address]).encode() + b"\0" + index, hashlib.sha256)
