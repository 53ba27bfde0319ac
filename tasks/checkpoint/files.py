"""Durable files: whole or absent after a crash at any point, and never one set of bytes in the place of another."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marginweave.schemas.errors import StageError

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644


@contextmanager
def at_place(place: Path, action: str) -> Iterator[None]:
    """Turn a fault of the disk (full, read-only, forbidden, broken) into a StageError that names `place`."""
    try:
        yield
    except OSError as error:
        raise StageError(f"{place} cannot be {action}: {error.strerror}") from error


def write_once(path: Path, data: bytes) -> bool:
    """Write `data` to `path` (0600) unless the name is taken; True if it was written.

    Temporary name, fsync, link (which never overwrites), fsync of the folder.

    Raises:
        StageError: the disk refuses.
    """
    with at_place(path, "written"):
        with _temporary(path, data, PRIVATE_MODE) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        sync_folder(path.parent)
    return True


def replace_file(path: Path, data: bytes, mode: int = PUBLIC_MODE) -> None:
    """Put `data` in the place of whatever `path` holds, in one step; the file gets `mode`.

    Raises:
        StageError: the disk refuses; the old content stands.
    """
    with at_place(path, "written"):
        with _temporary(path, data, mode) as temporary:
            temporary.replace(path)
        sync_folder(path.parent)


def read_file(path: Path) -> bytes | None:
    """The bytes of `path`, or None where there is no such file; a link is not followed.

    Raises:
        StageError: the disk refuses.
    """
    with at_place(path, "read"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read()


def remove_file(path: Path) -> None:
    """Remove `path` and every temporary file that was meant to become it.

    Raises:
        StageError: the disk refuses.
    """
    with at_place(path, "removed"):
        if not path.parent.is_dir():
            return
        prefix = f".{path.name}."
        for entry in path.parent.iterdir():
            if entry.name == path.name or (entry.name.startswith(prefix) and entry.suffix == ".tmp"):
                entry.unlink(missing_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
