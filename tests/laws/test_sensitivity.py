"""Sensitivity by construction: one record more changes few counts by little, with every other record's choice coupled."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.candidates import SIZES, all_candidates, from_codes
from tests.support.counting import count_bounded
from tests.support.tables import FixedWords

records = st.tuples(*(st.integers(0, size) for size in SIZES))


def count_vector(rows: list[tuple[int, ...]], length: int, bound: int, seed: int) -> np.ndarray:
    """All bounded counts of a table over the full candidate space, as one vector."""
    table = from_codes(rows)
    candidates = all_candidates(table, length)
    bounded = count_bounded(table, candidates, bound, FixedWords(seed))
    return np.concatenate([bounded.vector(i, candidates.mask(c).size) for i, c in enumerate(bounded.column_sets)])


@given(st.lists(records, max_size=25), records, st.integers(1, 4), st.integers(1, 6), st.integers(0, 9))
@settings(deadline=None)
def test_adding_a_record(
    rows: list[tuple[int, ...]], record: tuple[int, ...], length: int, bound: int, seed: int
) -> None:
    """Add-remove: L0 and squared L2 at most Delta_k, Linf at most 1."""
    change = count_vector([*rows, record], length, bound, seed) - count_vector(rows, length, bound, seed)
    assert np.count_nonzero(change) <= bound
    assert np.abs(change).max(initial=0) <= 1
    assert (change**2).sum() <= bound


@given(st.lists(records, max_size=25), records, records, st.integers(1, 4), st.integers(1, 6), st.integers(0, 9))
@settings(deadline=None)
def test_replacing_a_record(
    rows: list[tuple[int, ...]], one: tuple[int, ...], other: tuple[int, ...], length: int, bound: int, seed: int
) -> None:
    """Replace-one: L0 and squared L2 at most 2 Delta_k, Linf at most 1."""
    change = count_vector([*rows, one], length, bound, seed) - count_vector([*rows, other], length, bound, seed)
    assert np.count_nonzero(change) <= 2 * bound
    assert np.abs(change).max(initial=0) <= 1
    assert (change**2).sum() <= 2 * bound
