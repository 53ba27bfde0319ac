"""Where a ledger lives: fixed per user or by the environment, never by the working directory."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from marginweave.schemas.errors import InputError

LEDGER_VARIABLE = "MARGINWEAVE_LEDGER"
FILE_NAME = "ledger.sqlite"


def ledger_location(environment: Mapping[str, str]) -> Path:
    """The place of the ledger: MARGINWEAVE_LEDGER, or the user's data directory.

    Raises:
        InputError: MARGINWEAVE_LEDGER is a URL or a relative path.
    """
    declared = environment.get(LEDGER_VARIABLE, "")
    if not declared:
        return platformdirs.user_data_path("marginweave", appauthor=False) / FILE_NAME
    scheme, separator, _ = declared.partition("://")
    if separator:  # the rest of a URL may hold a password
        raise InputError(f"{LEDGER_VARIABLE} ({scheme}://…) must be a path: this version keeps its ledger in a file")
    if not Path(declared).is_absolute():
        raise InputError(f"{LEDGER_VARIABLE} ({declared}) must be an absolute path")
    return Path(declared)


def example_ledger_location(home: Path) -> Path:
    """The place of the ledger of `example:` sources, which are public data: inside the home."""
    return home / ".marginweave" / "example-ledger" / FILE_NAME


def opening_command(dataset: str = "DATASET", epsilon: float | str = "E", delta: float | str = "D") -> str:
    """The command that opens an account, for the end of a refusal."""
    return f"marginweave ledger open {shlex.quote(dataset)} --epsilon {epsilon} --delta {delta}"


def raising_command(dataset: str, epsilon: str, delta: str) -> str:
    """The command that raises the cap of an account, for the end of a refusal."""
    return f'marginweave ledger cap {shlex.quote(dataset)} --epsilon {epsilon} --delta {delta} --reason "…"'
