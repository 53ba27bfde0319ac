"""The authenticated trailer of a checkpoint: it proves that a file is complete, ours, and in its own place."""

from __future__ import annotations

import hashlib
import hmac
import json

from marginweave.schemas.errors import StageError

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


def _digest(key: bytes, address: tuple[str, ...], payload: bytes) -> bytes:
    authentication = hmac.new(key, json.dumps(address).encode() + b"\0", hashlib.sha256)
    authentication.update(payload)
    return authentication.digest()
