"""Where a ledger lives: fixed per user or by the environment, never by the working directory."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import platformdirs
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from marginweave.schemas.errors import InputError

LEDGER_VARIABLE = "MARGINWEAVE_LEDGER"
OWNER_VARIABLE = "MARGINWEAVE_LEDGER_OWNER"
KEY_FILE_VARIABLE = "MARGINWEAVE_LEDGER_KEY_FILE"
FILE_NAME = "ledger.sqlite"
_SCHEME = "postgresql"


@dataclass(frozen=True, kw_only=True)
class PostgresLocation:
    """A ledger in a PostgreSQL database, and the file on this machine that its key is in. Its words have no password."""

    url: URL = field(repr=False)
    key_file: Path

    def __str__(self) -> str:
        host = self.url.host or self.url.query.get("host") or "localhost"
        port = "" if self.url.port is None else f":{self.url.port}"
        return f"{_SCHEME}://{host}{port}/{self.url.database}"


# A path is the SQLite file there.
LedgerLocation: TypeAlias = Path | PostgresLocation


def ledger_location(environment: Mapping[str, str]) -> LedgerLocation:
    """The place of the ledger: MARGINWEAVE_LEDGER, or a file in the user's data directory.

    Raises:
        InputError: MARGINWEAVE_LEDGER is neither an absolute path nor postgresql://…, or MARGINWEAVE_LEDGER_KEY_FILE no
            absolute path.
    """
    declared = environment.get(LEDGER_VARIABLE, "")
    if not declared:
        return _user_folder() / FILE_NAME
    if "://" in declared:
        return PostgresLocation(url=_database_url(LEDGER_VARIABLE, declared), key_file=_declared_key_file(environment))
    if not Path(declared).is_absolute():
        raise InputError(f"{LEDGER_VARIABLE} ({declared}) must be an absolute path or postgresql://…")
    return Path(declared)


def owner_url(location: PostgresLocation, environment: Mapping[str, str]) -> URL:
    """The URL under which tables are made: MARGINWEAVE_LEDGER_OWNER, or the ledger's own.

    Raises:
        InputError: MARGINWEAVE_LEDGER_OWNER is no URL of a PostgreSQL database.
    """
    declared = environment.get(OWNER_VARIABLE, "")
    return _database_url(OWNER_VARIABLE, declared) if declared else location.url


def example_ledger_location(home: Path) -> Path:
    """The place of the ledger of `example:` sources, which are public data: inside the home."""
    return home / ".marginweave" / "example-ledger" / FILE_NAME


def opening_command(
    dataset: str = "DATASET",
    epsilon: float | str = "E",
    delta: float | str = "D",
    *,
    unit: str = "row",
    neighbors: str = "add-remove",
) -> str:
    """The command that opens an account, for the end of a refusal."""
    command = f"marginweave ledger open {shlex.quote(dataset)} --epsilon {epsilon} --delta {delta}"
    if unit != "row":
        command += f" --unit {shlex.quote(unit)}"
    return command if neighbors == "add-remove" else f"{command} --neighbors {neighbors}"


def opening_command_for(dataset: str, configuration: Path) -> str:
    """The command that opens an account for the plan of a configuration file."""
    return f"marginweave ledger open {shlex.quote(dataset)} --for {shlex.quote(str(configuration))}"


def raising_command(dataset: str, epsilon: str, delta: str) -> str:
    """The command that raises the cap of an account, for the end of a refusal."""
    return f'marginweave ledger cap {shlex.quote(dataset)} --epsilon {epsilon} --delta {delta} --reason "…"'


def _database_url(variable: str, text: str) -> URL:
    scheme = text.partition("://")[0]
    if scheme != _SCHEME:  # the rest of a URL may hold a password
        raise InputError(f"{variable} ({scheme}://…) must be an absolute path or {_SCHEME}://…")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    if url is None or not url.database:
        raise InputError(f"{variable} must be of the form {_SCHEME}://USER:PASSWORD@HOST:PORT/DATABASE")
    return url.set(drivername=f"{_SCHEME}+psycopg")


def _declared_key_file(environment: Mapping[str, str]) -> Path:
    declared = environment.get(KEY_FILE_VARIABLE, "")
    if declared and not Path(declared).is_absolute():
        raise InputError(f"{KEY_FILE_VARIABLE} ({declared}) must be an absolute path")
    return Path(declared) if declared else _user_folder() / "postgresql-ledger.key"


def _user_folder() -> Path:
    return platformdirs.user_data_path("marginweave", appauthor=False)
