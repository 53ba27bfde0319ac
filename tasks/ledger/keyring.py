"""The keys that seal a ledger, oldest first, and what else is keyed with the first of them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from marginweave.schemas.errors import BudgetError

KEY_ID_DIGITS = 16


def subkey(key: bytes, purpose: str) -> bytes:
    """A key for one purpose: HMAC-SHA256(key, "marginweave:" + purpose); 32 bytes."""
    return hmac.digest(key, f"marginweave:{purpose}".encode(), hashlib.sha256)


def key_id(key: bytes) -> str:
    """The public name of a key: the first 16 hex digits of a digest from which the key cannot be found."""
    return subkey(key, "id").hex()[:KEY_ID_DIGITS]


@dataclass(frozen=True)
class Keyring:
    """The keys of a ledger, oldest first.

    The first is the root: checkpoints and digests of sources hang on it for good, so that the same source bytes keep their
    digest when the sealing key changes. An empty ring verifies no seal and makes none.
    """

    keys: tuple[bytes, ...] = field(repr=False)

    @property
    def root(self) -> bytes:
        """The first key.

        Raises:
            BudgetError: the ring is empty.
        """
        if not self.keys:
            raise BudgetError("the ledger's key is missing; restore it")
        return self.keys[0]

    @property
    def repeats(self) -> bool:
        """Whether a key is there twice, so that its place among the others says nothing."""
        return len(set(self.keys)) < len(self.keys)

    def find(self, name: str) -> bytes | None:
        """The key of this id, or None."""
        return self._named.get(name)

    @cached_property
    def _named(self) -> dict[str, bytes]:
        return {key_id(key): key for key in self.keys}

    def may_follow(self, name: str, before: str) -> bool:
        """Whether a rotation may lead from key `before` to key `name`: never back to an older one, as far as both are here."""
        order = {key_id(key): place for place, key in enumerate(self.keys)}
        return order.get(name, len(order)) > order.get(before, -1)

    def mac(self, name: str, hash_hex: str) -> str | None:
        """The seal `<key id>:<HMAC-SHA256(key, hash), hex>` under the key of this id, or None where it is not here.

        Rows from before there was a ring bear no id (the empty name): they are sealed with the root.
        """
        key = self.find(name) if name else (self.keys or (None,))[0]
        if key is None:
            return None
        seal = hmac.digest(key, hash_hex.encode(), hashlib.sha256).hex()
        return f"{name}:{seal}" if name else seal

    def seals(self, mac: str, hash_hex: str) -> bool | None:
        """Whether `mac` is the seal of `hash_hex`; None where the key that it names is not here."""
        expected = self.mac(sealing_key(mac), hash_hex)
        return None if expected is None else hmac.compare_digest(expected.encode(), mac.encode())


def sealing_key(mac: str) -> str:
    """The id of the key that a seal names; empty where it names none."""
    name, separator, _ = mac.partition(":")
    return name if separator else ""


@dataclass(frozen=True, kw_only=True)
class SourceDigest:
    """HMAC-SHA256 of the bytes of a source under a key of the ledger: in memory alone, as it is equal for equal bytes.

    What is stored of it is `mark`, another one for each release, so that what is stored of two releases does not tell whether
    they have the same source. "The same" means byte for byte: one more newline makes another source.
    """

    base: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, root: bytes, chunks: Iterable[bytes]) -> SourceDigest:
        """The digest of the concatenated chunks, keyed with what hangs on the root key of a ledger."""
        digest = hmac.new(subkey(root, "source"), digestmod=hashlib.sha256)
        for chunk in chunks:
            digest.update(chunk)
        return cls(base=digest.digest(), key=subkey(root, "source of a release"))

    def mark(self, release_id: str) -> str:
        """What manifest and ledger keep: HMAC-SHA256(key, release id || digest), hex."""
        return hmac.digest(self.key, release_id.encode() + self.base, hashlib.sha256).hex()

    def matches(self, release_id: str, stored: str) -> bool:
        """Whether `stored` is the mark of these bytes for the release, or the digest itself, which 0.1.0 has stored."""
        return any(hmac.compare_digest(mine, stored) for mine in (self.mark(release_id), self.base.hex()))
