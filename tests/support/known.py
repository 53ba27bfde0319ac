"""Values that a test expects to be there."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value; fails where there is none."""
    assert value is not None
    return value
