"""What the overview asks somebody to do about a release."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marginweave.runs.overview import _leftovers, _open_decisions
from marginweave.runs.retention import Progress, RunSummary


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


@pytest.mark.parametrize(
    ("progress", "reason", "words"),
    [
        (Progress.NOT_BEGUN, "stopped.txt", "stopped.txt says why. Start it again"),
        (Progress.NOT_BEGUN, None, "marginweave resume tonight"),
        (Progress.UNFINISHED, None, "marginweave resume tonight"),
        (Progress.SKIPPED, "skipped.txt", None),
    ],
)
def test_what_to_do_about_a_run_depends_on_how_far_it_came(
    progress: Progress, reason: str | None, words: str | None
) -> None:
    """`resume` takes a run that was begun, and nobody has to do anything about a skipped one."""
    summary = RunSummary(
        name="tonight",
        dataset="",
        progress=progress,
        correction=None,
        begun="",
        holds_private=False,
        holds_exact=False,
        reason=None if reason is None else Path(reason),
    )
    asked = [str(sentence) for sentence in _leftovers(summary)]
    assert bool(asked) == (words is not None)
    assert all(str(words) in text for text in asked)
