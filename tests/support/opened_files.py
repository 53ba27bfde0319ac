"""Which files this process opens, lists or moves: told by Python itself, through an audit hook."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_EVENTS = {"open", "os.listdir", "os.scandir", "os.rename", "sqlite3.connect"}
_WATCHING: list[list[str]] = []


def _told(event: str, arguments: tuple[Any, ...]) -> None:
    if _WATCHING and event in _EVENTS:
        name = arguments[0]
        _WATCHING[-1].append(os.fsdecode(name) if isinstance(name, str | bytes | Path) else "")


@cache  # a hook stays for the life of the process
def _hook() -> None:
    sys.addaudithook(_told)


@contextmanager
def opened_files(names: list[str]) -> Iterator[list[str]]:
    """Add to `names` all that is opened meanwhile."""
    _hook()
    _WATCHING.append(names)
    try:
        yield names
    finally:
        _WATCHING.pop()


def within(names: list[str], *places: Path) -> list[str]:
    """Those of the names that lie in one of the places."""
    return [name for name in names if any(Path(name).is_relative_to(place) for place in places)]
