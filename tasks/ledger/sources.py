"""Which release was made from which source: a digest that only the key and the rows together can test."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

from marginweave.tasks.ledger.keyring import subkey


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
