"""The keys of a ledger: from the environment, or from a file that only `create` makes; never in the database."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, replace_file
from marginweave.tasks.ledger.keyring import Keyring, SourceDigest, key_id, subkey
from marginweave.tasks.ledger.location import LedgerLocation, PostgresLocation
from marginweave.tasks.ledger.session import Session

KEY_VARIABLE = "MARGINWEAVE_LEDGER_KEY"
KEY_BYTES = 32
_TWICE = "holds the same key twice: a key that was replaced is not used again; keep the first of the two"
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){32,}")


@dataclass(frozen=True)
class Keys:
    """What a ledger derives from its root key, and the rotation of the key that seals its rows."""

    session: Session

    @property
    def checkpoint_key(self) -> bytes:
        """The key for checkpoints and draws of runs under this ledger; 32 bytes derived from the root key."""
        return subkey(self.session.key.root, "checkpoint")

    def source_digest(self, chunks: Iterable[bytes]) -> SourceDigest:
        """The digest of the concatenated chunks, keyed with the root: never stored, only its mark for a release is."""
        return SourceDigest.of(self.session.key.root, chunks)

    def rotate(self, reason: str, *, actor: str, environment: Mapping[str, str] = os.environ) -> str:
        """Seal all rows from the next one on with a new key, and return the id of that key.

        The new key is durable before the row that names it is committed, and the row decides: whichever step is the last,
        the ledger and the keys on disk fit together. Old keys stay in the ring, where they verify old rows; the first stays
        the root of the digests of sources and checkpoints.

        Raises:
            InputError: no reason, or MARGINWEAVE_LEDGER_KEY without an unused key at its end.
            StageError: the key file cannot be written; the old key stays in use.
        """
        if not reason.strip():
            raise InputError("reason must say why the key is rotated")
        with self.session.writing() as journal:
            keys = _with_unused_key(self.session.key, journal.all_events(), self.session.location, environment)
            old, new = journal.sealing_key(), key_id(keys.keys[-1])
            entry = Event(kind=EventKind.KEY_ROTATED, actor=actor, body={"old": old, "new": new, "reason": reason})
            replace(journal, key=keys).append(entry, sealed_by=new)
        self.session.key = keys
        return new


def key_file(location: LedgerLocation) -> Path:
    """The key file of the ledger at `location`: beside a file, or where the location of a database says."""
    return location.key_file if isinstance(location, PostgresLocation) else location.with_name("ledger.key")


def environment_key(environment: Mapping[str, str]) -> Keyring | None:
    """The keys in MARGINWEAVE_LEDGER_KEY, oldest first with commas between, or None where it is not set.

    Raises:
        InputError: one is not hexadecimal, shorter than 32 bytes, or there twice.
    """
    text = environment.get(KEY_VARIABLE, "")
    if not text:
        return None
    ring = _ring(text.split(","))
    if ring is None:
        raise InputError(
            f"{KEY_VARIABLE} must be at least {2 * KEY_BYTES} hexadecimal digits, two a byte, for each key"
        )
    if ring.repeats:
        raise InputError(f"{KEY_VARIABLE} {_TWICE}")
    return ring


def load_key(location: LedgerLocation, environment: Mapping[str, str], command: str) -> Keyring:
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
        raise BudgetError(
            f"the ledger's key is neither in {KEY_VARIABLE} nor at {place}; "
            f"restore it (an existing ledger is of no use without), or where there was no ledger: {command}"
        ) from None
    except (OSError, UnicodeDecodeError):
        raise BudgetError(f"the ledger's key at {place} cannot be read") from None
    if os.name == "posix" and mode & 0o077:
        raise BudgetError(f"the ledger's key at {place} must be readable by its owner alone; chmod 600 {place}")
    ring = _ring(keys)
    if ring is None:
        raise BudgetError(f"the file {place} holds no ledger key")
    if ring.repeats:
        raise BudgetError(f"the file {place} {_TWICE}")
    return ring


def make_key_file(place: Path) -> None:
    """Write a fresh random key of 32 bytes to `place`, mode 0600; never over another one."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(KEY_BYTES) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _ring(texts: Sequence[str]) -> Keyring | None:
    """The keys that hexadecimal `texts` say, or None where there is none or one is malformed."""
    return Keyring(tuple(map(bytes.fromhex, texts))) if texts and all(map(_HEX.fullmatch, texts)) else None


def _with_unused_key(
    present: Keyring, events: Sequence[Event], location: LedgerLocation, environment: Mapping[str, str]
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
