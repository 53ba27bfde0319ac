"""The keys that seal a ledger: from the environment, or from a file that only `create` makes; never in the database."""

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

from marginweave.accounting.records import Event, EventKind
from marginweave.base.durable import PRIVATE_MODE, replace_file
from marginweave.base.errors import BudgetError, InputError, MarginweaveError
from marginweave.ledger.location import KEY_FILE_VARIABLE, LedgerLocation, PostgresLocation, opening_command

KEY_VARIABLE = "MARGINWEAVE_LEDGER_KEY"
KEY_BYTES = 32
_ID_DIGITS = 16
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){32,}")


def subkey(key: bytes, purpose: str) -> bytes:
    """A key for one purpose: HMAC-SHA256(key, "marginweave:" + purpose); 32 bytes."""
    return hmac.digest(key, f"marginweave:{purpose}".encode(), hashlib.sha256)


def key_id(key: bytes) -> str:
    """The public name of a key: the first 16 hex digits of a digest from which the key cannot be found."""
    return subkey(key, "id").hex()[:_ID_DIGITS]


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

    @cached_property
    def _places(self) -> dict[str, int]:
        """Where in the ring the key of an id is."""
        return {key_id(key): place for place, key in enumerate(self.keys)}

    def may_follow(self, name: str, before: str) -> bool:
        """Whether a rotation may lead from key `before` to key `name`: never back to an older one, as far as both are here."""
        return self._places.get(name, len(self.keys)) > self._places.get(before, -1)

    def mac(self, name: str, hash_hex: str) -> str | None:
        """The seal `<key id>:<HMAC-SHA256(key, hash), hex>` under the key of this id, or None where it is not here.

        Rows from before there was a ring bear no id (the empty name): they are sealed with the root.
        """
        place = self._places.get(name) if name or not self.keys else 0
        if place is None:
            return None
        seal = hmac.digest(self.keys[place], hash_hex.encode(), hashlib.sha256).hex()
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
        """Whether `stored` is the mark of these bytes for the release."""
        return hmac.compare_digest(self.mark(release_id), stored)


def key_file(location: LedgerLocation) -> Path:
    """The key file of the ledger at `location`: beside a file, or where the location of a database says."""
    return location.key_file if isinstance(location, PostgresLocation) else location.with_name("ledger.key")


def environment_key(environment: Mapping[str, str]) -> Keyring | None:
    """The keys in MARGINWEAVE_LEDGER_KEY, oldest first with commas between, or None where it is not set.

    Raises:
        InputError: one is not hexadecimal, shorter than 32 bytes, or there twice.
    """
    text = environment.get(KEY_VARIABLE, "")
    malformed = (
        f"must be at least {2 * KEY_BYTES} hexadecimal digits for each key: the key itself, not the path of its file"
    )
    return _ring(text.split(","), KEY_VARIABLE, malformed, InputError) if text else None


def load_key(location: LedgerLocation, environment: Mapping[str, str], command: str = opening_command()) -> Keyring:
    """The keys of the ledger at `location`; nothing is created.

    Raises:
        BudgetError: no key, a key others can read, or a key file that holds no key, or one twice.
        InputError: MARGINWEAVE_LEDGER_KEY is malformed.
    """
    given = environment_key(environment)
    if given is not None:
        return given
    place = key_file(location)
    try:
        mode = place.stat().st_mode
        keys = place.read_text(encoding="ascii").split()
    except FileNotFoundError:
        elsewhere = f", or say in {KEY_FILE_VARIABLE} where it is" if isinstance(location, PostgresLocation) else ""
        begin = "" if isinstance(location, Path) and location.exists() else f", or where there was no ledger: {command}"
        raise BudgetError(
            f"the ledger's key is neither in {KEY_VARIABLE} nor at {place}. Restore the key file there from a backup{elsewhere}"
            f": the ledger {location} is of no use without it, and no other key fits{begin}"
        ) from None
    except (OSError, UnicodeDecodeError):
        raise BudgetError(f"the ledger's key at {place} cannot be read") from None
    if os.name == "posix" and mode & 0o077:
        raise BudgetError(f"the ledger's key at {place} must be readable by its owner alone; chmod 600 {place}")
    return _ring(keys, f"the file {place}", "holds no ledger key", BudgetError)


def make_key_file(place: Path) -> None:
    """Write a fresh random key of 32 bytes to `place`, mode 0600; never over another one."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(KEY_BYTES) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _ring(texts: Sequence[str], where: str, malformed: str, error: type[MarginweaveError]) -> Keyring:
    """The keys that hexadecimal `texts` say; refused where there is none, one is malformed, or one is there twice."""
    if not texts or not all(map(_HEX.fullmatch, texts)):
        raise error(f"{where} {malformed}")
    keys = tuple(map(bytes.fromhex, texts))
    if len(set(keys)) < len(keys):  # its place among the others says nothing
        raise error(
            f"{where} holds the same key twice: a key that was replaced is not used again; keep the first of the two"
        )
    return Keyring(keys)


def with_unused_key(
    present: Keyring, events: Iterable[Event], location: LedgerLocation, environment: Mapping[str, str]
) -> Keyring:
    """The ring with a key at its end that has sealed nothing yet: the environment's, an interrupted rotation's, or new."""
    used = {key_id(present.root), *(event.body["new"] for event in events if event.kind == EventKind.KEY_ROTATED)}
    if key_id(present.keys[-1]) not in used:
        return present
    if environment_key(environment) is not None:
        raise InputError(
            f"{KEY_VARIABLE} must hold all keys, oldest first with commas between, and a new one at its end "
            f"({2 * KEY_BYTES} random hexadecimal digits) to rotate to"
        )
    keys = Keyring((*present.keys, secrets.token_bytes(KEY_BYTES)))
    replace_file(key_file(location), "".join(f"{key.hex()}\n" for key in keys.keys).encode(), PRIVATE_MODE)
    return keys
