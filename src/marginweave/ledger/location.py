"""Locates the ledger: by the user or the environment, never by the working directory or on a network disk."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import platformdirs
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from marginweave.accounting.charges import ChargedPlan
from marginweave.base.budget import BasicAmount
from marginweave.base.errors import BudgetError, InputError

LEDGER_VARIABLE = "MARGINWEAVE_LEDGER"
OWNER_VARIABLE = "MARGINWEAVE_LEDGER_OWNER"
KEY_FILE_VARIABLE = "MARGINWEAVE_LEDGER_KEY_FILE"
FILE_NAME = "ledger.sqlite"
_SCHEME = "postgresql"


@dataclass(frozen=True, kw_only=True)
class PostgresLocation:
    """A ledger in a PostgreSQL database, and the file on this machine with its key. As text it has no password."""

    url: URL = field(repr=False)
    key_file: Path

    def __str__(self) -> str:
        host = self.url.host or self.url.query.get("host") or "localhost"
        port = "" if self.url.port is None else f":{self.url.port}"
        return f"{_SCHEME}://{host}{port}/{self.url.database}"


# A path is the SQLite file there.
LedgerLocation: TypeAlias = Path | PostgresLocation


def ledger_location(environment: Mapping[str, str]) -> LedgerLocation:
    """Return the location of the ledger: MARGINWEAVE_LEDGER, or a file in the user's data directory.

    Raises:
        InputError: MARGINWEAVE_LEDGER is neither an absolute path nor postgresql://…, or MARGINWEAVE_LEDGER_KEY_FILE no
            absolute path.
    """
    declared = environment.get(LEDGER_VARIABLE, "")
    if not declared:
        return _user_folder() / FILE_NAME
    if "://" in declared:
        url = _database_url(LEDGER_VARIABLE, declared)
        key_file = environment.get(KEY_FILE_VARIABLE, "")
        if key_file and not Path(key_file).is_absolute():
            raise InputError(f"{KEY_FILE_VARIABLE} ({key_file}) must be an absolute path")
        return PostgresLocation(
            url=url, key_file=Path(key_file or _user_folder() / "postgresql-ledger.key")
        )
    if not Path(declared).is_absolute():
        raise InputError(
            f"{LEDGER_VARIABLE} ({declared}) must be an absolute path or postgresql://…"
        )
    return Path(declared)


def owner_url(location: PostgresLocation, environment: Mapping[str, str]) -> URL:
    """Return the URL under which tables are made: MARGINWEAVE_LEDGER_OWNER, or that of the ledger.

    Raises:
        InputError: MARGINWEAVE_LEDGER_OWNER is no URL of a PostgreSQL database.
    """
    declared = environment.get(OWNER_VARIABLE, "")
    return _database_url(OWNER_VARIABLE, declared) if declared else location.url


def example_ledger_location(home: Path) -> Path:
    """Return the location of the ledger of `example:` sources, which are public data: inside the home."""
    return home / ".marginweave" / "example-ledger" / FILE_NAME


def opening_command(
    dataset: str = "DATASET",
    epsilon: float | str = "E",
    delta: float | str = "D",
    *,
    unit: str = "row",
    neighbors: str = "add-remove",
) -> str:
    """Return the command that opens an account, for the end of a refusal."""
    command = f"marginweave ledger open {shlex.quote(dataset)} --epsilon {epsilon} --delta {delta}"
    if unit != "row":
        command += f" --unit {shlex.quote(unit)}"
    return command if neighbors == "add-remove" else f"{command} --neighbors {neighbors}"


def opening_for(dataset: str, plan: ChargedPlan, configuration: Path | None = None) -> str:
    """Return the command that opens an account for a release of `plan`, for the end of a refusal.

    `configuration` is the file that has the plan, if there is one.
    """
    if configuration is not None:
        return f"marginweave ledger open {shlex.quote(dataset)} --for {shlex.quote(str(configuration))}"
    return opening_command(
        dataset, plan.epsilon, plan.delta, unit=plan.unit, neighbors=plan.neighbors
    )


def raising_command(dataset: str, cap: BasicAmount) -> str:
    """Return the command that raises the cap of an account, for the end of a refusal."""
    numbers = f"--epsilon {cap.epsilon:f} --delta {float(cap.delta)!r}"
    return f'marginweave ledger cap {shlex.quote(dataset)} {numbers} --reason "…"'


def _database_url(variable: str, text: str) -> URL:
    """Return the URL of a PostgreSQL database in an environment variable, or refuse another text."""
    scheme = text.partition("://")[0]
    if scheme != _SCHEME:  # the rest of a URL may hold a password
        raise InputError(f"{variable} ({scheme}://…) must be an absolute path or {_SCHEME}://…")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    if url is None or not url.database:
        raise InputError(
            f"{variable} must be of the form {_SCHEME}://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    return url.set(drivername=f"{_SCHEME}+psycopg")


def _user_folder() -> Path:
    """Return the user's data directory. Raises InputError where the user has no home, as in some containers."""
    try:
        return platformdirs.user_data_path("marginweave", appauthor=False)
    except RuntimeError:  # of pathlib, which finds no home
        raise InputError(
            f"this user has no home, where the ledger would be: set {LEDGER_VARIABLE} to the absolute path of a file"
        ) from None


MOUNTS = Path("/proc/self/mounts")
# A program serves "fuse." file systems, most often over a network; the two exceptions are local disks.
_NETWORK = re.compile(
    r"9p|afs|beegfs|ceph|cifs|coda|davfs|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|prl_fs|smb3|smbfs|vboxsf"
    r"|fuse\.(?!fuse-overlayfs$|ntfs).*"
)


def check_local(file: Path) -> None:
    """Refuse a database file on a network file system. If the system lists no mounts, no file is refused.

    Raises:
        BudgetError: names the kind of file system and the way out.
    """
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = file_system(file.parent.resolve(), mounts)
    if _NETWORK.fullmatch(kind):
        raise BudgetError(
            f"the ledger {file} would lie on a network file system ({kind}), where SQLite's locks and write-ahead log do not "
            "hold; choose a local disk, or PostgreSQL: MARGINWEAVE_LEDGER=postgresql://…"
        )


def file_system(folder: Path, mounts: str) -> str:
    """Return the type of the file system of the absolute `folder`, from the lines of /proc/self/mounts.

    Of several mounts on the same folder the newest counts.
    """
    kind = ""
    depth = -1
    for line in mounts.splitlines():
        _, place, name, *_ = line.split(" ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place))
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            kind = name
            depth = len(point.parts)
    return kind
