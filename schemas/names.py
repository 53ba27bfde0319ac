"""Names that can stand in a path."""

from __future__ import annotations

import re

NAME_RULE = "must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or a digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(text: str) -> str:
    """A name that can stand in a path: of a dataset or a run."""
    if not _NAME.fullmatch(text):
        raise ValueError(NAME_RULE)
    return text
