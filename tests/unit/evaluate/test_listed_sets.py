"""A verdict lists every pair of a usual table; of a wide one those with counts, and the others by grade and reason."""

from __future__ import annotations

import itertools
from collections import Counter

from marginweave.evaluate.listed_sets import MOST_LISTED, listed_sets
from marginweave.released.verdict import SetVerdict, Unmeasured, grade

NOT_MEASURED: tuple[Unmeasured, ...] = ("not chosen", "not asked for")


def verdicts(columns: int) -> list[SetVerdict]:
    """Return those of columns and pairs: every tenth pair was measured, and of some others nothing is known."""
    rows = [
        SetVerdict(attributes=(f"c{place}",), error=0.01, grade="good") for place in range(columns)
    ]
    names = [f"c{place}" for place in range(columns)]
    for place, pair in enumerate(itertools.combinations(names, 2)):
        why = None if place % 10 == 0 else NOT_MEASURED[place % 2]
        error = None if why == "not asked for" else place % 40 / 100
        rows.append(SetVerdict(attributes=pair, error=error, grade=grade(error), unmeasured=why))
    return rows


def test_up_to_ten_thousand_pairs_are_listed() -> None:
    rows = verdicts(141)
    assert len(rows) - 141 <= MOST_LISTED
    assert listed_sets(rows) == (tuple(rows), ())


def test_of_more_pairs_none_is_lost() -> None:
    """Columns and measured pairs stay as they are, and each other pair is counted once, with its grade and reason."""
    rows = verdicts(150)
    listed, unlisted = listed_sets(rows)
    assert listed == tuple(
        row for row in rows if len(row.attributes) == 1 or row.unmeasured is None
    )
    left = [row for row in rows if row not in set(listed)]
    assert Counter((row.grade, row.unmeasured) for row in left) == {
        (group.grade, group.unmeasured): group.pairs for group in unlisted
    }
    for group in unlisted:
        errors = [
            row.error
            for row in left
            if (row.grade, row.unmeasured) == (group.grade, group.unmeasured)
            and row.error is not None
        ]
        assert (group.least_error, group.largest_error) == (
            (min(errors), max(errors)) if errors else (None, None)
        )
