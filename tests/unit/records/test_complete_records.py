"""Records that forbidden combinations leave no value for, and what is put in their place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from marginweave.base.errors import StageError
from marginweave.records.synthesize import complete_records
from tests.support.noisy_counts import aggregates_of

SIZES = (2, 2, 2)
# Without a value the first column goes with no value of the second; with one, it must differ from it.
FORBIDDEN = [((0, 2), (1, 0)), ((0, 2), (1, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 1))]


def test_a_forbidden_gap_excludes_no_value() -> None:
    """The four combinations of two columns of two values are not all there are: two of them have no value."""
    aggregates = aggregates_of(
        {((j, v),): 50 for j in range(3) for v in range(2)}, length=1, sizes=SIZES
    )
    records = np.array([[2, 0, 0]], np.int32)
    forbidden = [*FORBIDDEN, ((0, 1), (1, 0), (2, 0))]
    complete_records(records, aggregates, (True, False, False), forbidden, np.random.default_rng(0))
    assert records.tolist() == [[0, 1, 0]]


def test_a_search_that_takes_too_long_is_not_said_to_have_found_nothing() -> None:
    """Thirteen columns, all different, of twelve values: 12! ways to fail."""
    sizes = (12,) * 13
    aggregates = aggregates_of(
        {((j, v),): 50 for j in range(13) for v in range(12)}, length=1, sizes=sizes
    )
    forbidden = [
        ((i, v), (j, v)) for i, j in itertools.combinations(range(13), 2) for v in range(12)
    ]
    records = np.full((1, 13), 12, np.int32)
    with pytest.raises(StageError, match="took too long"):
        complete_records(records, aggregates, (False,) * 13, forbidden, np.random.default_rng(0))
