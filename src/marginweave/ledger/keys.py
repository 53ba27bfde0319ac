"""Loads the key that seals a ledger: from the environment, or from a file that only `create` makes; never in the database."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from marginweave.base.errors import BudgetError, InputError, MarginweaveError
from marginweave.ledger.location import (
    KEY_FILE_VARIABLE,
    LedgerLocation,
    PostgresLocation,
    opening_command,
)

KEY_VARIABLE = "MARGINWEAVE_LEDGER_KEY"
KEY_BYTES = 32
_ID_DIGITS = 16
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){32,}")


def subkey(key: bytes, purpose: str) -> bytes:
    """Return a key for one purpose: HMAC-SHA256(key, "marginweave:" + purpose); 32 bytes."""
    return hmac.digest(key, f"marginweave:{purpose}".encode(), hashlib.sha256)


@dataclass(frozen=True)
class LedgerKey:
    """The key of a ledger: it seals rows, and the keys for digests of sources and checkpoints are derived from it.

    Without its `secret` it seals nothing and verifies no seal.
    """

    secret: bytes | None = field(default=None, repr=False)

    @property
    def material(self) -> bytes:
        """Secret of the key.

        Raises:
            BudgetError: it is missing.
        """
        if self.secret is None:
            raise BudgetError("the ledger's key is missing; restore it")
        return self.secret

    @cached_property
    def name(self) -> str:
        """Public name of the key: the first 16 hex digits of a digest from which the key cannot be found."""
        return subkey(self.material, "id").hex()[:_ID_DIGITS]

    def seal(self, hash_hex: str) -> str:
        """Return the seal `<name of the key>:<HMAC-SHA256(key, hash), hex>`; raises BudgetError if the secret is missing."""
        return f"{self.name}:{hmac.digest(self.material, hash_hex.encode(), hashlib.sha256).hex()}"

    def has_sealed(self, seal: str, hash_hex: str) -> bool | None:
        """Return whether `seal` is that of `hash_hex` under this key; None if the secret is missing."""
        if self.secret is None:
            return None
        return hmac.compare_digest(self.seal(hash_hex).encode(), seal.encode())


_NEXT_TABLE = b"\xff" * 8
"""Comes before the name of a linked table, where a part of a table would have its length: no part is so long."""


@dataclass(frozen=True, kw_only=True)
class SourceDigest:
    """HMAC-SHA256 of the bytes of a source under a key of the ledger: only in memory, as it is equal for equal bytes.

    `base` is that of all tables together, `tables` has that of each table alone, by its name; the name of the source is empty.
    Without linked tables both are the same. Only marks are stored, which differ for each release: two marks do not reveal
    whether two releases have the same source. "The same" means byte for byte: one more newline makes another source. The bytes
    of a data frame are those of all its cells (`frame_chunks`).
    """

    base: bytes = field(repr=False)
    tables: Mapping[str, bytes] = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, root: bytes, tables: Mapping[str, Iterable[bytes]]) -> SourceDigest:
        """Return the digest of the chunks of each table, by its name, under a key derived from the key of a ledger, `root`.

        All together are digested in the order of their names. Each name comes before its table with its length, so that bytes
        that move from one table to the next change the digest.
        """
        empty = hmac.new(subkey(root, "source"), digestmod=hashlib.sha256)
        together = empty.copy()
        digests = {}
        for name, chunks in sorted(tables.items()):
            alone = empty.copy()
            if name:
                encoded = name.encode()
                together.update(_NEXT_TABLE + len(encoded).to_bytes(8, "big") + encoded)
            for chunk in chunks:
                together.update(chunk)
                if name:
                    alone.update(chunk)
            digests[name] = (alone if name else together).digest()
        key = subkey(root, "source of a release")
        return cls(base=together.digest(), tables=digests, key=key)

    def mark(self, release_id: str) -> str:
        """Return the mark that manifest and ledger keep: HMAC-SHA256(key, release id || digest), hex."""
        return self._mark(release_id, self.base)

    def matches(self, release_id: str, stored: str) -> bool:
        """Return whether `stored` is the mark of these bytes for the release."""
        return hmac.compare_digest(self.mark(release_id), stored)

    def table_marks(self, release_id: str) -> list[str]:
        """Return the marks of linked tables and their source for the ledger, in the order of their names; none for one table.

        The place of a table is a part of its mark: equal tables of one release have different marks.
        """
        if len(self.tables) == 1:
            return []
        return [
            self._mark(_with_place(release_id, place), digest)
            for place, (_, digest) in enumerate(sorted(self.tables.items()))
        ]

    def tables_in(self, release_id: str, mark: str, table_marks: Sequence[str]) -> tuple[str, ...]:
        """Return the names of those tables that a release had, by its `mark` and the marks of its tables."""
        if self.matches(release_id, mark):
            return tuple(self.tables)
        marks = {release_id: mark}
        marks |= {_with_place(release_id, place): each for place, each in enumerate(table_marks)}
        return tuple(
            name
            for name, digest in self.tables.items()
            if any(hmac.compare_digest(self._mark(at, digest), each) for at, each in marks.items())
        )

    def _mark(self, name: str, digest: bytes) -> str:
        return hmac.digest(self.key, name.encode() + digest, hashlib.sha256).hex()


def _with_place(release_id: str, place: int) -> str:
    """Return the name under which the table at a place is marked: no release has an id like this."""
    return f"{release_id}/{place}"


def key_file(location: LedgerLocation) -> Path:
    """Return the path of the ledger's key file: next to a database file, or as the location of a database has it."""
    if isinstance(location, PostgresLocation):
        return location.key_file
    return location.with_name("ledger.key")


def environment_key(environment: Mapping[str, str]) -> LedgerKey | None:
    """Return the key in MARGINWEAVE_LEDGER_KEY, or None if it is not set.

    Raises:
        InputError: it is not hexadecimal, or shorter than 32 bytes.
    """
    text = environment.get(KEY_VARIABLE, "")
    malformed = f"{KEY_VARIABLE} must be at least {2 * KEY_BYTES} hexadecimal digits: the key itself, not the path of its file"
    return _key(text, InputError(malformed)) if text else None


def load_key(
    location: LedgerLocation, environment: Mapping[str, str], command: str = opening_command()
) -> LedgerKey:
    """Return the key of the ledger at `location`; nothing is created.

    Raises:
        BudgetError: no key, a key others can read, or a key file that holds no key.
        InputError: MARGINWEAVE_LEDGER_KEY is malformed.
    """
    key = environment_key(environment)
    if key is not None:
        return key
    place = key_file(location)
    try:
        mode = place.stat().st_mode
        text = place.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        elsewhere = (
            f", or say in {KEY_FILE_VARIABLE} where it is"
            if isinstance(location, PostgresLocation)
            else ""
        )
        begin = (
            ""
            if isinstance(location, Path) and location.exists()
            else f", or where there was no ledger: {command}"
        )
        raise BudgetError(
            f"the ledger's key is neither in {KEY_VARIABLE} nor at {place}. Restore the key file there from a backup{elsewhere}"
            f": the ledger {location} is of no use without it, and no other key fits{begin}"
        ) from None
    except (OSError, UnicodeDecodeError):
        raise BudgetError(f"the ledger's key at {place} cannot be read") from None
    if os.name == "posix" and mode & 0o077:
        raise BudgetError(
            f"the ledger's key at {place} must be readable by its owner alone; chmod 600 {place}"
        )
    return _key(text, BudgetError(f"the file {place} holds no ledger key"))


def make_key_file(place: Path) -> None:
    """Write a new random key of 32 bytes to `place`, mode 0600; never over another file."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(KEY_BYTES) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _key(text: str, malformed: MarginweaveError) -> LedgerKey:
    """Return the key in a hexadecimal `text`; raises `malformed` if there is none."""
    if not _HEX.fullmatch(text):
        raise malformed
    return LedgerKey(bytes.fromhex(text))
