"""Normalization: the published vector, and its laws against a dictionary that knows nothing of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.estimate.normalize import normalize, row_keys
from tests.support.noisy_counts import aggregates_of, counts_of, noisy_counts, parts


def reference(counts):
    """Close under parts with the largest count above, take the minimum over parts, drop what is not positive."""
    closed = dict(counts)
    for combination, count in counts.items():
        for part in parts(combination):
            if part not in counts:
                closed[part] = max(closed.get(part, count), count)
    lowest = {t: min(closed[p] for p in parts(t, proper=False)) for t in closed}
    return {t: n for t, n in lowest.items() if n > 0}


def test_published_vector():
    """The example of Synthetic Data Showcase: 25, 30, 40 become 25, 25, 25."""
    ab, c1, c2 = ((0, 0), (1, 0)), (2, 0), (2, 1)
    counts = counts_of(normalize(aggregates_of({ab: 25, (*ab, c1): 30, (*ab, c2): 40})))
    assert [counts[t] for t in (ab, (*ab, c1), (*ab, c2))] == [25, 25, 25]


def test_missing_parts_come_back_with_the_largest_count_that_needs_them():
    """A single triple of 9 and one of 4 that share a pair bring back all parts, the shared ones with 9."""
    shared, more, less = ((0, 1), (1, 2)), (3, 5), (3, 6)
    counts = counts_of(normalize(aggregates_of({(*shared, more): 9, (*shared, less): 4})))
    assert counts[shared] == counts[shared[:1]] == 9
    assert counts[(less,)] == counts[(*shared, less)] == 4
    assert len(counts) == 2 + 2 + 1 + 4 + 2


@settings(max_examples=50, deadline=None)
@given(noisy_counts())
def test_equals_the_definition(counts):
    """Arrays and dictionary agree on every input."""
    assert counts_of(normalize(aggregates_of(counts))) == reference(counts)


@settings(max_examples=40, deadline=None)
@given(noisy_counts())
def test_monotone_closed_idempotent_and_canonical(counts):
    """The result is closed, monotone, positive, in canonical order, and a fixed point."""
    once = normalize(aggregates_of(counts))
    released = counts_of(once)
    assert all(released[p] >= n > 0 for t, n in released.items() for p in parts(t))
    assert list(released) == list(counts_of(aggregates_of(released)))
    assert counts_of(normalize(once)) == released


def test_no_levels_and_empty_levels_pass_through():
    """Nothing released stays nothing."""
    assert counts_of(normalize(aggregates_of({}))) == {}
    assert normalize(aggregates_of({}, length=0)).levels == ()


@pytest.mark.parametrize("sizes", [(3, 5, 7), (2**31, 5, 2**30), (2**30, 2**31, 2**30, 2**31)])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_row_keys_sort_as_rows_do(sizes, data):
    """Keys order and distinguish rows like the rows themselves, however large the domain."""
    cell = st.tuples(*(st.one_of(st.integers(0, 2), st.integers(s - 2, s - 1)) for s in sizes))
    rows = data.draw(st.lists(cell, min_size=1, max_size=30))
    keys, bound = row_keys(list(np.array(rows, np.int64).T), sizes)
    assert [rows[i] for i in np.argsort(keys, kind="stable")] == sorted(rows)
    assert len(set(keys.tolist())) == len(set(rows))
    assert keys.min() >= 0
    assert keys.max() < bound
