"""Candidates as sorted keys, against sets of Python tuples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import StageError
from marginweave.counts import candidates as module
from marginweave.counts.candidates import CandidateSet
from tests.support.tables import level_from

SIZES = (2, 3, 5, 4)
Combination = tuple[tuple[int, int], ...]


def combinations(length: int) -> list[Combination]:
    return [
        tuple(zip(columns, values, strict=True))
        for columns in itertools.combinations(range(len(SIZES)), length)
        for values in itertools.product(*(range(SIZES[j]) for j in columns))
    ]


def above(
    survivors: list[Combination], length: int, forbidden: list[Combination]
) -> list[Combination]:
    """V_k by its definition."""
    there = set(survivors)
    return [
        c
        for c in combinations(length)
        if c not in forbidden
        and all(part in there for part in itertools.combinations(c, length - 1))
    ]


@st.composite
def cases(draw: Any) -> tuple[int, list[Combination], list[Combination]]:
    length = draw(st.integers(2, 4))
    survivors = [c for c in combinations(length - 1) if draw(st.integers(0, 3))]
    return length, survivors, draw(st.lists(st.sampled_from(combinations(length)), max_size=4))


@given(cases())
@settings(deadline=None, max_examples=30)
def test_candidates_are_those_of_the_definition(
    case: tuple[int, list[Combination], list[Combination]],
) -> None:
    """Cells, masks, membership, numbers and superset all say the same, in canonical order, each combination once."""
    length, survivors, forbidden = case
    expected = above(survivors, length, forbidden)
    found = CandidateSet.above(
        level_from(dict.fromkeys(survivors, 1), length - 1), SIZES, forbidden
    )
    assert found.any() == bool(expected)
    assert found.total == len(expected) <= found.superset
    told = []
    for columns in found.column_sets():
        shape = found.shape(columns)
        cells = np.concatenate([np.zeros(0, np.int64), *found.cells(columns)])
        assert (np.diff(cells) > 0).all()
        values = np.stack(np.unravel_index(cells, shape), axis=1).tolist()
        told += [tuple(zip(columns, row, strict=True)) for row in values]
        assert found.counts[columns] == len(cells)
        assert np.flatnonzero(found.mask(columns)).tolist() == cells.tolist()
        every = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1).astype(
            np.int64
        )
        assert np.flatnonzero(found.contains(columns, every)).tolist() == cells.tolist()
        universe = found.universe(columns)
        members = universe.flat(universe.pairs(np.arange(universe.size)))
        assert (np.diff(members) > 0).all()
        assert members[found.allowed(columns, members)].tolist() == cells.tolist()
        for first, last in [
            (0, universe.size),
            (universe.size // 3, universe.size - universe.size // 4),
        ]:
            if first < last:
                assert (
                    universe.flat(universe.stretch(first, last)).tolist()
                    == members[first:last].tolist()
                )
    assert told == expected


def test_single_values_are_all_candidates() -> None:
    found = CandidateSet(length=1, sizes=SIZES)
    assert found.total == found.superset == sum(SIZES)
    assert [cells.tolist() for j in range(4) for cells in found.cells((j,))] == [
        list(range(n)) for n in SIZES
    ]
    assert found.contains((1,), np.arange(4)[:, None]).tolist() == [True] * 3 + [False]


def test_counting_gives_an_upper_bound_where_the_superset_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = dict.fromkeys(combinations(2)[::2], 1)
    exact = CandidateSet.above(level_from(pairs, 2), SIZES)
    assert exact.total < exact.superset
    monkeypatch.setattr(module, "MOST_COUNTED", 3)
    assert CandidateSet.above(level_from(pairs, 2), SIZES).total == exact.superset


def test_large_domains_have_no_masks_but_members() -> None:
    """Pairs of 3 x 10^9 and of 10^4 x 10^4 values; what does not fit 63 bits is refused."""
    size = 10_000
    singles = level_from({((j, v),): 1 for j in range(2) for v in range(0, size, 7)}, 1)
    found = CandidateSet.above(singles, (size, size))
    assert not found.is_dense((0, 1))
    assert found.contains((0, 1), np.array([[7, 14], [7, 15], [size, 7]])).tolist() == [
        True,
        False,
        False,
    ]
    assert found.total == (len(singles) // 2) ** 2
    with pytest.raises(
        StageError, match=r"^a mask \(100020001 cells\) must have at most 67108864$"
    ):
        found.mask((0, 1))
    with pytest.raises(
        StageError,
        match=r"^aggregate: columns number 1, 3 have more than 2\^63 combinations; use coarser",
    ):
        CandidateSet.above(singles, (1 << 32, 5, 1 << 32))
