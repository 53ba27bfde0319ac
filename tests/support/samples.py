"""Cases of a test that are run in `make test`, and those that wait for `make test-long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every(step: int, cases: Iterable[Any], *, first: int = 0) -> list[Any]:
    """All cases, of which each `step`-th from `first` on is run always and the others in `make test-long`."""
    found = [case if isinstance(case, tuple) else (case,) for case in cases]
    usual = {place % len(found) for place in range(first, first + len(found), step)}
    return [
        pytest.param(*case, marks=() if place in usual else pytest.mark.long)
        for place, case in enumerate(found)
    ]
