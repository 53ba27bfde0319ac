"""Compares the quality of two releases, as a frame: which of two configurations keeps more of a table. DP: post-processing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marginweave.base.errors import InputError
from marginweave.inference.opened import Release

if TYPE_CHECKING:
    import pandas as pd

    from marginweave.released.verdict import SetVerdict, Verdict


def compare(first: Release | str | Path, second: Release | str | Path) -> pd.DataFrame:
    """Return the expected distance and grade of every column and pair in two releases, a row for each set of columns.

    Each is a release, its folder, or the name of a run of the working folder. The frame has the names of each set (`columns`),
    and its expected distance (TVD) from the rows as each release prepared them (`first`, `second`). The grades are
    `first_grade` and `second_grade`. A set that a release does not have, or does not list, is empty there. `attrs` has the
    `score`, from 0 to 100, and the `verdict`, the line that a run ends with, of both. Where the table changed between two
    releases, the scores are of two tables. `marginweave report RUN --against RUN` says which counts changed.

    Raises:
        InputError: one is no release; both are the same one; or they are of two datasets.
    """
    import pandas as pd

    releases = [Release.open(first), Release.open(second)]
    if releases[0].statement.release == releases[1].statement.release:
        raise InputError("first and second are the same release: compare it with another one")
    datasets = [release.statement.dataset for release in releases]
    if datasets[0] != datasets[1]:
        raise InputError(
            f"first is a release of {datasets[0]}, and second one of {datasets[1]}: scores of two tables cannot be compared"
        )
    verdicts = [release.evaluation.verdict for release in releases]
    first_sets = _sets(verdicts[0])
    second_sets = _sets(verdicts[1])
    rows = []
    for columns in dict.fromkeys([*first_sets, *second_sets]):
        first_set = first_sets.get(columns)
        second_set = second_sets.get(columns)
        rows.append(
            {
                "columns": columns,
                "first": _error(first_set),
                "second": _error(second_set),
                "first_grade": _grade(first_set),
                "second_grade": _grade(second_set),
            }
        )
    frame = pd.DataFrame(
        rows, columns=["columns", "first", "second", "first_grade", "second_grade"]
    )
    frame.attrs = {
        "score": [verdict.score for verdict in verdicts],
        "verdict": [str(verdict.line) for verdict in verdicts],
    }
    return frame


def _sets(verdict: Verdict) -> dict[tuple[str, ...], SetVerdict]:
    """Return the verdict on each column and pair, by its names in order: two releases may have columns in different orders."""
    return {tuple(sorted(row.attributes)): row for row in verdict.sets}


def _error(row: SetVerdict | None) -> float | None:
    return None if row is None else row.error


def _grade(row: SetVerdict | None) -> str | None:
    return None if row is None else row.grade
