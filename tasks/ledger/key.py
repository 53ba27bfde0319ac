"""The key that seals the ledger: from the environment, or from a file that only `create` makes; never in the database."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.tasks.ledger.keyring import Keyring
from marginweave.tasks.ledger.location import LedgerLocation, PostgresLocation

KEY_VARIABLE = "MARGINWEAVE_LEDGER_KEY"
KEY_BYTES = 32
_TWICE = "holds the same key twice: a key that was replaced is not used again; keep the first of the two"
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){32,}")


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
    keys = text.split(",")
    if not all(map(_HEX.fullmatch, keys)):
        raise InputError(
            f"{KEY_VARIABLE} must be at least {2 * KEY_BYTES} hexadecimal digits, two a byte, for each key"
        )
    ring = Keyring(tuple(map(bytes.fromhex, keys)))
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
    if not keys or not all(map(_HEX.fullmatch, keys)):
        raise BudgetError(f"the file {place} holds no ledger key")
    ring = Keyring(tuple(map(bytes.fromhex, keys)))
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
