"""Normalization: the published vector, and its laws against a reference that uses a dictionary instead of arrays."""

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
    positive = {}
    for combination in closed:
        lowest = min(closed[part] for part in parts(combination, proper=False))
        if lowest > 0:
            positive[combination] = lowest
    return positive


def test_published_vector():
    """Check the example of Synthetic Data Showcase: 25, 30, 40 become 25, 25, 25."""
    ab = ((0, 0), (1, 0))
    abc1 = (*ab, (2, 0))
    abc2 = (*ab, (2, 1))
    counts = counts_of(normalize(aggregates_of({ab: 25, abc1: 30, abc2: 40})))
    assert counts[ab] == counts[abc1] == counts[abc2] == 25


def test_missing_parts_come_back_with_the_largest_count_that_needs_them():
    """Check that a triple of 9 and one of 4 that share a pair bring back all parts, the shared ones with 9."""
    shared = ((0, 1), (1, 2))
    frequent = (3, 5)
    rare = (3, 6)
    counts = counts_of(normalize(aggregates_of({(*shared, frequent): 9, (*shared, rare): 4})))
    assert counts[shared] == counts[shared[:1]] == 9
    assert counts[(rare,)] == counts[(*shared, rare)] == 4
    assert len(counts) == 2 + 2 + 1 + 4 + 2


@settings(max_examples=50, deadline=None)
@given(noisy_counts())
def test_equals_the_definition(counts):
    """Check that arrays and dictionary agree on every input."""
    assert counts_of(normalize(aggregates_of(counts))) == reference(counts)


@settings(max_examples=40, deadline=None)
@given(noisy_counts())
def test_monotone_closed_idempotent_and_canonical(counts):
    """Check that the result is closed, monotone, positive, in canonical order, and a fixed point."""
    normalized = normalize(aggregates_of(counts))
    released = counts_of(normalized)
    for combination, count in released.items():
        assert all(released[part] >= count > 0 for part in parts(combination))
    assert list(released) == list(counts_of(aggregates_of(released)))
    assert counts_of(normalize(normalized)) == released


def test_no_levels_and_empty_levels_pass_through():
    """Check that nothing released gives nothing."""
    assert counts_of(normalize(aggregates_of({}))) == {}
    assert normalize(aggregates_of({}, length=0)).levels == ()


@pytest.mark.parametrize("sizes", [(3, 5, 7), (2**31, 5, 2**30), (2**30, 2**31, 2**30, 2**31)])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_row_keys_sort_as_rows_do(sizes, data):
    """Check that keys order and distinguish rows like the rows themselves, however large the domain."""
    codes = [st.one_of(st.integers(0, 2), st.integers(size - 2, size - 1)) for size in sizes]
    cell = st.tuples(*codes)
    rows = data.draw(st.lists(cell, min_size=1, max_size=30))
    keys, bound = row_keys(list(np.array(rows, np.int64).T), sizes)
    assert [rows[i] for i in np.argsort(keys, kind="stable")] == sorted(rows)
    assert len(set(keys.tolist())) == len(set(rows))
    assert keys.min() >= 0
    assert keys.max() < bound
