"""What the place of a table or a folder is by its spelling: a path, a URL, an object on S3, or an example."""

from __future__ import annotations

import re
from pathlib import Path

from marginweave.base.errors import InputError

FRAME = "frame.parquet"
"""What the configuration of a frame has as its source, where it names none."""
EXAMPLE_PREFIX = "example:"
S3_PREFIX = "s3://"

_NAME, _PATH = 255, 4095
"""The most bytes of the name of a file, and of a path, on the file systems of Linux."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # pathlib makes one slash of two


def is_path(source: str) -> bool:
    """Whether a source is a path, which is relative to something, and neither an example nor on S3."""
    return not source.startswith((EXAMPLE_PREFIX, S3_PREFIX))


def refuse_long(what: str, place: str | Path) -> None:
    """Refuse a path that no file can have, before a file system is asked and raises an OSError. Raises InputError."""
    whole, path = str(place), Path(place)
    if max(map(_bytes, path.parts), default=0) > _NAME or _bytes(whole) > _PATH:
        raise InputError(
            f"{what} has a name that is too long: a file's has at most {_NAME} bytes, {_PATH} with its folders; choose a "
            "shorter one"
        )


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def scheme_of(place: str) -> str | None:
    """The scheme of a URL; None for a path."""
    found = _URL.match(place)
    return found and found[1]
