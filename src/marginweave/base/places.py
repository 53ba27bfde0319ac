"""What the place of a table or a folder is by its spelling: a path, a URL, an object on S3, or an example."""

from __future__ import annotations

import re

FRAME = "frame.parquet"
"""What the configuration of a frame has as its source, where it names none."""
EXAMPLE_PREFIX = "example:"
S3_PREFIX = "s3://"

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # pathlib makes one slash of two


def is_path(source: str) -> bool:
    """Whether a source is a path, which is relative to something, and neither an example nor on S3."""
    return not source.startswith((EXAMPLE_PREFIX, S3_PREFIX))


def scheme_of(place: str) -> str | None:
    """The scheme of a URL; None for a path."""
    found = _URL.match(place)
    return found and found[1]
