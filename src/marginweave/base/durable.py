"""Writes durable files: complete or absent after a crash at any point, and never other bytes than were meant for the name."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from marginweave.base.errors import MachineError

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644


@contextmanager
def at_place(place: Path, action: str) -> Iterator[None]:
    """Turn a fault of the disk (full, read-only, forbidden, broken) into a MachineError that names `place`."""
    try:
        yield
    except OSError as error:
        raise MachineError(f"{place} cannot be {action}: {error.strerror}") from error


def write_once(path: Path, data: bytes) -> bool:
    """Write `data` to `path` (0600) unless the name is taken; True if it was written.

    Temporary name, fsync, link (which never overwrites), fsync of the folder.

    Raises:
        MachineError: the disk refuses.
    """
    with staged_file(path, len(data)) as staged:
        return staged.keep(data)


@dataclass(frozen=True)
class StagedFile:
    """A temporary file in the folder of `path` that is to become `path`."""

    path: Path
    temporary: Path
    descriptor: int

    def keep(self, data: bytes, permitted: Callable[[], None] | None = None) -> bool:
        """Write `data` durably and give the file its name unless that is taken; return whether it was given.

        `permitted` is called right before the name is given: if it raises, no file is left.

        Raises:
            MachineError: the disk refuses.
        """
        with at_place(self.path, "written"):
            self.write(data)
        if permitted is not None:
            permitted()
        with at_place(self.path, "written"):
            try:
                self.name_it()
            except FileExistsError:
                return False
        return True

    def name_it(self) -> None:
        """Give the file, whose content is durable, its name, durably; raises FileExistsError where that is taken."""
        os.link(self.temporary, self.path)
        sync_folder(self.path.parent)

    def take_over(self) -> None:
        """Replace the file that has the name by this one, in one step.

        Raises:
            MachineError: the disk refuses; the old content is kept.
        """
        with at_place(self.path, "written"):
            self.temporary.replace(self.path)
            sync_folder(self.path.parent)

    def write(self, data: bytes) -> None:
        """Make `data` the complete durable content of the temporary file."""
        with self.stream() as stream:
            stream.write(data)
            stream.truncate()

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """Open a stream into the temporary file; its content is durable after the block ends without an error."""
        with os.fdopen(os.dup(self.descriptor), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def staged_file(path: Path, room: int, mode: int = PRIVATE_MODE) -> Iterator[StagedFile]:
    """Make a temporary file for `path` with `room` bytes of disk set aside; it is deleted at the end unless it was renamed.

    Up to `room` bytes can be written later even if the disk has filled up since.

    Raises:
        MachineError: the disk refuses, or is full.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with at_place(path, "written"):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with at_place(path, "written"):
            _set_aside(descriptor, room)
        yield StagedFile(path, temporary, descriptor)
    finally:
        os.close(descriptor)
        # a folder that has become read-only is swept by the next attempt
        with contextlib.suppress(OSError):
            temporary.unlink()


def replace_file(path: Path, data: bytes, mode: int = PUBLIC_MODE) -> None:
    """Replace the content of `path`, if any, by `data`, in one step; the file gets `mode`.

    Raises:
        MachineError: the disk refuses; the old content is kept.
    """
    with staged_file(path, len(data), mode) as staged, at_place(path, "written"):
        staged.write(data)
        staged.take_over()


@contextmanager
def streamed_file(path: Path, mode: int = PUBLIC_MODE) -> Iterator[DigestedStream]:
    """Open a stream whose content replaces that of `path`, in one step, when the block ends without an error.

    Raises:
        MachineError: the disk refuses; the old content is kept.
    """
    with staged_file(path, 0, mode) as staged, at_place(path, "written"):
        with staged.stream() as raw:
            yield DigestedStream(raw)
        staged.take_over()


class DigestedStream(io.RawIOBase):
    """A stream that is written to once, from its beginning, and computes the SHA-256 of its content."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__()
        self._raw = raw
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        self._digest.update(data)
        return self._raw.write(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._raw.tell()

    @property
    def digest(self) -> str:
        """SHA-256 of the content written, hex."""
        return self._digest.hexdigest()


@contextmanager
def opened_file(path: Path) -> Iterator[io.BufferedReader | None]:
    """Open `path` for reading inside the block; None where there is no such file; a link is not followed.

    Raises:
        MachineError: the disk refuses.
    """
    with at_place(path, "read"), contextlib.ExitStack() as opened:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            stream = None
        else:
            stream = opened.enter_context(os.fdopen(descriptor, "rb"))
        yield stream


def file_digest(path: Path) -> str | None:
    """Return SHA-256 of the bytes of `path`, hex, or None where there is no such file; a link is not followed.

    Raises:
        MachineError: the disk refuses.
    """
    with opened_file(path) as stream:
        return None if stream is None else hashlib.file_digest(stream, "sha256").hexdigest()


def read_file(path: Path) -> bytes | None:
    """Return the bytes of `path`, or None where there is no such file; a link is not followed.

    Raises:
        MachineError: the disk refuses.
    """
    with opened_file(path) as stream:
        return None if stream is None else stream.read()


def remove_file(path: Path) -> None:
    """Remove `path` and every temporary file that was meant to become it.

    The temporary files go first: without them, no process that is still running can give `path` back its name.

    Raises:
        MachineError: the disk refuses.
    """
    with at_place(path, "removed"):
        if not path.parent.is_dir():
            return
        prefix = f".{path.name}."
        for entry in path.parent.iterdir():
            if entry.name.startswith(prefix) and entry.suffix == ".tmp":
                entry.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files of interrupted writers from `folder`; a writer that is still at work loses its file.

    Raises:
        MachineError: the disk refuses.
    """
    with at_place(folder, "cleaned"):
        if folder.is_dir():
            for entry in folder.glob(".*.tmp"):
                entry.unlink(missing_ok=True)


def _set_aside(descriptor: int, size: int) -> None:
    """Reserve room on the disk, by writing zeros where the system has no call for it, as on macOS."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    elif size:
        os.pwrite(descriptor, bytes(size), 0)


@dataclass(frozen=True)
class Reserve:
    """A file of `size` bytes without content, at `place`, whose room can be freed when the disk is full."""

    place: Path
    size: int

    def make(self) -> bool:
        """Set the room aside unless it is; return whether it is set aside at the end."""
        try:
            descriptor = os.open(self.place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
        except OSError:
            return False
        try:
            if os.fstat(descriptor).st_size < self.size:
                _set_aside(descriptor, self.size)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            return False
        finally:
            os.close(descriptor)
        return True

    def give_up(self) -> bool:
        """Free the room; return whether there was any."""
        try:
            existed = self.place.stat().st_size > 0
            self.place.unlink()
        except OSError:
            return False
        return existed
