"""Tells by its spelling whether the place of a table or a folder is a path, a URL, an object on S3, or an example."""

from __future__ import annotations

import re
from pathlib import Path

from marginweave.base.errors import InputError

FRAME = "frame.parquet"
"""The source in the configuration of a frame that names none."""
EXAMPLE_PREFIX = "example:"
S3_PREFIX = "s3://"

_NAME = 255
_PATH = 4095
"""Most bytes of the name of a file, and of a path, on the file systems of Linux."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # pathlib makes one slash of two


def is_path(source: str) -> bool:
    """Return whether a source is a path, which may be relative, and neither an example nor on S3."""
    return not source.startswith((EXAMPLE_PREFIX, S3_PREFIX))


def refuse_long(thing: str, place: str | Path) -> None:
    """Refuse a path that no file can have, before a file system raises an OSError. Raises InputError."""
    longest_name = max(map(_bytes, Path(place).parts), default=0)
    if longest_name > _NAME or _bytes(str(place)) > _PATH:
        raise InputError(
            f"{thing} has a name that is too long: a file's has at most {_NAME} bytes, {_PATH} with its folders; choose a "
            "shorter one"
        )


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def scheme_of(place: str) -> str | None:
    """Return the scheme of a URL; None for a path."""
    match = _URL.match(place)
    return None if match is None else match[1]
