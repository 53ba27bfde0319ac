"""Says which pairs a verdict lists one by one: all of a usual table, those that were measured of a wide one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from marginweave.released.verdict import SetVerdict, UnlistedPairs

MOST_LISTED = 10_000
"""Pairs of columns that a verdict lists one by one, whatever is known of them: those of 141 columns."""


def listed_sets(
    sets: Sequence[SetVerdict],
) -> tuple[tuple[SetVerdict, ...], tuple[UnlistedPairs, ...]]:
    """Return the sets that a verdict lists, and what it says of the others together.

    All are listed up to `MOST_LISTED` pairs. Of more the measured ones are: what is known of another follows from its columns,
    and a line for each of 500,000 pairs would hide the few that have counts.
    """
    pairs = [row for row in sets if len(row.attributes) == 2]
    if len(pairs) <= MOST_LISTED:
        return tuple(sets), ()
    kept: list[SetVerdict] = []
    left: dict[tuple[str, str], list[SetVerdict]] = {}
    for row in sets:
        if len(row.attributes) != 2 or row.unmeasured is None:
            kept.append(row)
        else:
            left.setdefault((row.grade, row.unmeasured), []).append(row)
    unlisted = [_together(left[key]) for key in sorted(left)]
    return tuple(kept), tuple(unlisted)


def _together(pairs: Iterable[SetVerdict]) -> UnlistedPairs:
    """Return what is said of at least one pair that has the same grade as the others, for the same reason."""
    first, *others = pairs
    errors = [row.error for row in (first, *others) if row.error is not None]
    return UnlistedPairs(
        pairs=1 + len(others),
        grade=first.grade,
        unmeasured=first.unmeasured or "not asked for",
        least_error=min(errors, default=None),
        largest_error=max(errors, default=None),
    )
