"""The key that seals the ledger: from the environment, or from a file beside the database that only `create` makes."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from marginweave.schemas.errors import BudgetError, InputError

KEY_VARIABLE = "MARGINWEAVE_LEDGER_KEY"
KEY_BYTES = 32
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){32,}")


def key_file(location: Path) -> Path:
    """The key file of the ledger at `location`."""
    return location.with_name("ledger.key")


def environment_key(environment: Mapping[str, str]) -> bytes | None:
    """The key in MARGINWEAVE_LEDGER_KEY, or None where it is not set.

    Raises:
        InputError: it is not hexadecimal, or shorter than 32 bytes.
    """
    text = environment.get(KEY_VARIABLE, "")
    if not text:
        return None
    if not _HEX.fullmatch(text):
        raise InputError(f"{KEY_VARIABLE} must be at least {2 * KEY_BYTES} hexadecimal digits, two a byte")
    return bytes.fromhex(text)


def load_key(location: Path, environment: Mapping[str, str], command: str) -> bytes:
    """The key of the ledger at `location`; nothing is created.

    Raises:
        BudgetError: no key, a key others can read, or a key file that holds no key.
        InputError: MARGINWEAVE_LEDGER_KEY is malformed.
    """
    given = environment_key(environment)
    if given is not None:
        return given
    place = key_file(location)
    try:
        mode = place.stat().st_mode
        text = place.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise BudgetError(
            f"the ledger's key is neither in {KEY_VARIABLE} nor at {place}; "
            f"restore it (an existing ledger is of no use without), or where there was no ledger: {command}"
        ) from None
    except (OSError, UnicodeDecodeError):
        raise BudgetError(f"the ledger's key at {place} cannot be read") from None
    if os.name == "posix" and mode & 0o077:
        raise BudgetError(f"the ledger's key at {place} must be readable by its owner alone; chmod 600 {place}")
    if not _HEX.fullmatch(text):
        raise BudgetError(f"the file {place} holds no ledger key")
    return bytes.fromhex(text)


def make_key_file(location: Path) -> None:
    """Write a fresh random key of 32 bytes beside the database, mode 0600; never over another one."""
    descriptor = os.open(key_file(location), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(KEY_BYTES) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def subkey(key: bytes, purpose: str) -> bytes:
    """A key for one purpose: HMAC-SHA256(key, "marginweave:" + purpose); 32 bytes."""
    return hmac.digest(key, f"marginweave:{purpose}".encode(), hashlib.sha256)
