"""How the ledger's file may be opened from where it lies: to write and read, to read, or to read what cannot change."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from marginweave.schemas.errors import BudgetError


@dataclass(frozen=True, kw_only=True)
class Access:
    """What this process may do with a database file, its folder and the two files that SQLite keeps beside it.

    `log_bytes` is the size of the write-ahead log, None where there is none; `shared` says that log and index are both
    there and may be read.
    """

    folder_writable: bool
    file_writable: bool
    log_bytes: int | None
    shared: bool


def access_to(file: Path) -> Access:
    """The facts as the system tells them now; a read-only mount counts for root, too."""
    log, index = (file.with_name(file.name + suffix) for suffix in ("-wal", "-shm"))
    try:
        log_bytes = log.stat().st_size
    except OSError:
        log_bytes = None
    return Access(
        folder_writable=os.access(file.parent, os.W_OK | os.X_OK),
        file_writable=os.access(file, os.W_OK),
        log_bytes=log_bytes,
        shared=os.access(log, os.R_OK) and os.access(index, os.R_OK),
    )


def database_uri(file: Path, access: Access, *, still: bool = False) -> str:
    """The URI under which SQLite opens `file`, which it never creates.

    SQLite reads a database with a write-ahead log through the log and its index, which it makes where the folder lets it. In
    a folder that cannot be written it needs both to be there, or a promise that nothing changes (`immutable`), which leaves
    the log out: it is given only where the log is empty. So it does where the disk is full (`still`).

    Raises:
        BudgetError: newer rows are in a log that cannot be read here.
    """
    if (access.folder_writable or access.shared) and not (still and not access.log_bytes):
        query = "mode=rw" if access.file_writable else "mode=ro"
    elif access.log_bytes:
        raise BudgetError(
            f"the newest rows of the ledger {file} are in {file.name}-wal, which cannot be read where its folder cannot be "
            f"written; copy both into a folder that can, or close the program that writes the ledger and copy it then"
        )
    else:
        query = "mode=ro&immutable=1"
    return f"{file.absolute().as_uri()}?{query}"
