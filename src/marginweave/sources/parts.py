"""Files that a source is read from: on this machine, or objects on S3, which pyarrow's own file system reads.

The environment or the files of AWS say who reads S3, never a configuration. Of S3's messages only the code is passed on. An
object's ETag is a digest of rows without a key: it is compared in memory and written nowhere.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast
from urllib.parse import urlsplit

from marginweave.base.errors import InputError
from marginweave.base.places import FRAME, S3_PREFIX, is_path
from marginweave.configuration.execution import check_place

State: TypeAlias = tuple[object, ...]
_BUFFER = 1 << 23  # each read of an object is a request
_PARTS = (".parquet", ".pq")
_OTHER_TABLES = (".csv", ".tsv", ".feather", ".arrow", ".ipc", ".xlsx", ".gz", ".zst")
_FRAME_ADVICE = f': write the frame there in Python, frame.to_parquet("{FRAME}"), or name its table with --source'
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True)
class LocalFile:
    """A file of this machine."""

    path: Path

    @property
    def name(self) -> str:
        """Last part of its path."""
        return self.path.name

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.path.stat().st_size

    @property
    def state(self) -> State:
        """Inode, size and times, which differ if the file was written to, even if it was written back."""
        stat = self.path.stat()
        return self.name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    def open(self) -> BinaryIO:
        """Open the file for reading its bytes from the beginning."""
        return self.path.open("rb")

    def for_arrow(self) -> Any:
        """Return the path, which pyarrow opens by itself."""
        return self.path


@dataclass(frozen=True)
class S3Object:
    """An object on S3; its key begins with the name of the bucket."""

    key: str

    @property
    def name(self) -> str:
        """Last part of its key."""
        return self.key.rpartition("/")[2]

    @property
    def size(self) -> int:
        """Size in bytes."""
        with self.for_arrow() as file:
            return int(file.size())

    @property
    def state(self) -> State:
        """Size, ETag and time, which differ if the object was replaced."""
        with self.for_arrow() as file:
            headers = {key.lower(): value for key, value in file.metadata().items()}
        return self.name, *(headers.get(key) for key in ("content-length", "etag", "last-modified"))

    def open(self) -> BinaryIO:
        """Open the object for reading its bytes from the beginning, some megabytes a request."""
        return cast("BinaryIO", io.BufferedReader(self.for_arrow(), _BUFFER))

    def for_arrow(self) -> Any:
        """Open the object as a file that pyarrow reads without calling Python."""
        return _s3().open_input_file(self.key)


Part: TypeAlias = LocalFile | S3Object


def find_from(below: Path, source: str) -> str:
    """Return the place of a source that is named in the folder `below`, as it is found from any other folder.

    Raises:
        InputError: it is another URL than that of an object on S3.
    """
    refuse_url(source)
    return str(below / source) if is_path(source) else source


def refuse_url(source: str) -> None:
    """Refuse what is neither a path, an object on S3 nor an example; raises InputError."""
    try:
        check_place(source)
    except ValueError as error:
        raise InputError(f"source {error}") from None


def parts_of(source: str) -> list[Part]:
    """Return the one file of a source, or its Parquet parts in the order of their names.

    Raises:
        InputError: there is none, it cannot be read, or `source` is another URL than that of an object on S3.
    """
    refuse_url(source)
    with reading(source):
        parts = _objects(source) if source.startswith(S3_PREFIX) else _files(source)
    if not parts:
        raise InputError(f"source ({source}) is a folder without parquet files")
    return parts


def _files(source: str) -> list[Part]:
    path = Path(source)
    if path.is_dir():
        entries = {entry.name: entry.is_dir() for entry in path.iterdir()}
        names = _parts_among(source, entries)
        return [LocalFile(path / name) for name in names]
    if not path.exists():
        advice = _FRAME_ADVICE if path.name == FRAME else ""
        raise InputError(f"source ({path}) does not exist{advice}")
    if not path.is_file():
        raise InputError(f"source ({path}) must be a file or a folder of Parquet files")
    return [LocalFile(path)]


def _parts_among(source: str, entries: Mapping[str, bool]) -> list[str]:
    """Return the names of the Parquet parts of a folder, in order; `entries` says of each entry whether it is a folder.

    Entries that may hold rows but are not read are refused, as the parts alone would pass for the table: other kinds of tables,
    folders, and parts whose names mark them as hidden. Notes and the marks of writers (`_SUCCESS`, `.crc`) are ignored.

    Raises:
        InputError: it names the entry.
    """
    parts = []
    for name, is_folder in sorted(entries.items()):
        ending = Path(name).suffix.lower()
        is_part = ending in _PARTS
        is_hidden = name.startswith(("_", "."))
        if is_hidden and not is_part:
            continue
        if is_hidden or is_folder or ending in _OTHER_TABLES:
            raise InputError(
                f"source ({source}) is a folder of Parquet parts and has {name!r} as well, which is not read: move it "
                "elsewhere, or make it a part (a .parquet file in this folder)"
            )
        if is_part or not ending:
            parts.append(name)
    return parts


def _objects(source: str) -> list[Part]:
    from pyarrow.fs import FileSelector, FileType

    key = source.removeprefix(S3_PREFIX).rstrip("/")
    files = _s3()
    info = files.get_file_info(key)
    if info.type == FileType.Directory:
        entries = {}
        for entry in files.get_file_info(FileSelector(key)):
            entries[entry.base_name] = entry.type == FileType.Directory
        return [S3Object(f"{key}/{name}") for name in _parts_among(source, entries)]
    if info.type != FileType.File:
        raise InputError(
            f"source ({source}) does not exist: no such bucket, or no such object in it"
        )
    return [S3Object(key)]


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Say what is wrong with `source` where it cannot be read."""
    try:
        yield
    except OSError as error:
        raise InputError(
            fault_of(source, error) or f"source ({source}) cannot be read: {_reason(source, error)}"
        ) from None


def _reason(source: str, error: OSError) -> str:
    if error.strerror is None and source.lower().endswith((".gz", ".zst")):
        return "its compression is damaged, or it is not whole"
    return error.strerror or "input error"


def fault_of(source: str, error: Exception) -> str | None:
    """Return a sentence about what S3 refuses; None if it was not S3 that refused."""
    code = re.search(r"AWS Error ([A-Z_]+)", str(error))
    if code is None:
        return None
    if code[1] in {"NETWORK_CONNECTION", "REQUEST_TIMEOUT"}:
        why = "S3 cannot be reached; for a server other than AWS's, AWS_ENDPOINT_URL names it"
    elif "HTTP status 301" in str(error) or "configured region" in str(error):
        why = "the bucket is in another region; AWS_REGION names it"
    elif code[1] == "NO_SUCH_BUCKET":
        why = "there is no such bucket"
    else:
        why = (
            f"S3 refuses it ({code[1]}); AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, must name somebody "
            "who may read it"
        )
    return f"source ({source}) cannot be read: {why}"


def _s3() -> Any:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    if endpoint is not None:
        place = urlsplit(endpoint)
        if place.scheme != "https" and not (place.scheme == "http" and place.hostname in _LOOPBACK):
            raise InputError(
                "AWS_ENDPOINT_URL must begin with https://: rows leave no machine unencrypted"
            )
    return _file_system(endpoint, os.environ.get("AWS_CA_BUNDLE"))


@cache
def _file_system(endpoint: str | None, authorities: str | None) -> Any:
    """Return the file system of AWS's S3, or of the server at `endpoint`, whose certificate one of `authorities` has signed."""
    try:
        from pyarrow.fs import S3FileSystem
    except ImportError:
        raise InputError(
            "source on S3 needs a pyarrow that was built with S3: pip install 'pyarrow>=20'"
        ) from None
    trust = {} if authorities is None else {"tls_ca_file_path": authorities}
    return S3FileSystem(endpoint_override=endpoint, **trust)
