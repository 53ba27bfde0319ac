"""What is left of the bins of a column whose missing codes lie inside its bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Gap: TypeAlias = tuple[int, int]
"""First and last point of a grid that mean "no value"."""

Run: TypeAlias = tuple[int, int, int]
"""A bin, and the first and last of consecutive points of its grid."""


def open_runs(runs: Iterable[Run], gaps: Sequence[Gap]) -> tuple[Run, ...]:
    """The runs without the points of the gaps; a run that is nothing but gaps is left out."""
    ordered = sorted(gaps)
    return tuple(rest for run in runs for rest in _rest(run, ordered))


def longest_gap(gaps: Sequence[Gap]) -> int:
    """The most consecutive points that all mean "no value"."""
    longest, start, stop = 0, 0, 0
    for first, last in sorted(gaps):
        start = start if longest and first <= stop else first
        stop = max(stop, last + 1) if longest else last + 1
        longest = max(longest, stop - start)
    return longest


def _rest(run: Run, gaps: Sequence[Gap]) -> Iterable[Run]:
    owner, first, last = run
    for start, end in gaps:
        if end < first or start > last:
            continue
        if start > first:
            yield owner, first, start - 1
        first = end + 1
    if first <= last:
        yield owner, first, last
