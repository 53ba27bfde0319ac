"""What the overview asks somebody to do about a release."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from marginweave.runs.overview import _open_decisions


@pytest.mark.parametrize(("superseded_by", "is_asked"), [(None, True), ("its correction", False)])
def test_a_superseded_release_needs_nobody(superseded_by: str | None, is_asked: bool) -> None:
    """Whatever its verdict is: readers should have the correction."""
    line: Any = SimpleNamespace(
        awaits_approval=False,
        verdict="not for publication",
        record=SimpleNamespace(run="spring", superseded_by=superseded_by),
    )
    asked = [str(sentence) for sentence in _open_decisions([], [line])]
    assert bool(asked) == is_asked
    assert all(
        "spring is released, but marginweave publish would refuse it" in text for text in asked
    )
