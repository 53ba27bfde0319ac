"""Exact counts, contributions and candidates against the published examples and a slow reference."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.counts.candidates import CandidateSet
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.codes import EncodedTable
from tests.support.candidates import SIZES, all_candidates, counted, from_codes, named_cells
from tests.support.configurations import letters
from tests.support.counting import contributions, count_bounded, histogram
from tests.support.tables import FixedWords, encoded, level_from, tuple_counts

SPEC_ROWS = [
    ["a1", "b1", "c1"],
    ["a1", "b2", "c1"],
    ["a2", "", "c2"],
    ["a2", "b2", "c1"],
    ["a1", "b2", ""],
]
SPEC_COUNTS = {
    "a1": 3, "a2": 2, "b1": 1, "b2": 3, "c1": 3, "c2": 1, "a1 b1": 1, "a1 b2": 2, "a1 c1": 2, "a2 b2": 1, "a2 c1": 1,
    "a2 c2": 1, "b1 c1": 1, "b2 c1": 2, "a1 b1 c1": 1, "a1 b2 c1": 1, "a2 b2 c1": 1,
}  # fmt: skip
SDS_ROWS = [["a1", "b1", "c1", "d1"], ["a2", "b2", "", "d2"], ["a1", "", "c1", ""]]


def labelled(table: EncodedTable, counts: dict[tuple[tuple[int, int], ...], int]) -> dict[str, int]:
    return {" ".join(table.labels[c][v] for c, v in cell): n for cell, n in counts.items()}


def test_the_counts_of_a_printed_example() -> None:
    """The 17 counts of the example, no other."""
    table = encoded(SPEC_ROWS, letters(SPEC_ROWS, ["A", "B", "C"]))
    found: dict[str, int] = {}
    for k in (1, 2, 3):
        found |= labelled(table, counted(table, k))
    assert found == SPEC_COUNTS


def test_the_record_sensitivities_of_a_printed_example() -> None:
    """Of each record: 3, 3, 1 pairs."""
    rows = SPEC_ROWS[:3]
    table = encoded(rows, letters(rows, ["A", "B", "C"]))
    assert contributions(table.codes, all_candidates(table, 2)).tolist() == [3, 3, 1]
    assert histogram(table, all_candidates(table, 2), 4).tolist() == [0, 1, 0, 2, 0]


def test_the_candidates_of_the_reference_suite() -> None:
    """SDS's own test: 7 values, 18 pairs, 20 triples; 14 triples once two pairs did not survive."""
    table = encoded(SDS_ROWS, letters(SDS_ROWS, ["A", "B", "C", "D"]))
    assert len(named_cells(all_candidates(table, 1))) == 7
    pairs = named_cells(all_candidates(table, 2))
    assert len(pairs) == 18
    assert len(named_cells(all_candidates(table, 3))) == 20
    name = lambda cell: "".join(table.labels[c][v] for c, v in cell)  # noqa: E731
    surviving = {cell: 1 for cell in pairs if name(cell) not in {"a1b1", "a2d1"}}
    left = CandidateSet.above(level_from(surviving, 2), table.sizes)
    assert sorted(name(cell) for cell in named_cells(left)) == [
        "a1b2c1", "a1b2d1", "a1b2d2", "a1c1d1", "a1c1d2", "a2b1c1", "a2b1d2",
        "a2b2c1", "a2b2d2", "a2c1d2", "b1c1d1", "b1c1d2", "b2c1d1", "b2c1d2",
    ]  # fmt: skip


tables = st.lists(st.tuples(*(st.integers(0, size) for size in SIZES)), max_size=40)


@given(tables, st.integers(1, 4))
@settings(deadline=None)
def test_unbounded_counts_equal_the_slow_reference(
    rows: list[tuple[int, ...]], length: int
) -> None:
    table = from_codes(rows)
    assert counted(table, length) == dict(tuple_counts(table, length))


@given(tables, st.integers(2, 3), st.integers(1, 3), st.data())
@settings(deadline=None)
def test_a_bounded_record_gives_exactly_its_share(
    rows: list[tuple[int, ...]], length: int, bound: int, data: st.DataObject
) -> None:
    """Over any survivors, the counts sum to sum_u min(w_u, bound), and no cell exceeds its true count or leaves V_k."""
    table = from_codes(rows)
    below = named_cells(all_candidates(table, length - 1))
    kept = data.draw(st.lists(st.sampled_from(below), unique=True))
    candidates = CandidateSet.above(level_from(dict.fromkeys(kept, 1), length - 1), table.sizes)
    allowed = set(named_cells(candidates))
    assert allowed == {
        cell
        for cell in named_cells(all_candidates(table, length))
        if all(part in set(kept) for part in itertools.combinations(cell, length - 1))
    }
    held = contributions(table.codes, candidates)
    bounded = count_bounded(table, candidates, bound, FixedWords(1))
    assert sum(int(c.sum()) for c in bounded.counts) == np.minimum(held, bound).sum()
    truth = tuple_counts(table, length)
    for index, columns in enumerate(bounded.column_sets):
        shape = tuple(table.sizes[j] + 1 for j in columns)
        for flat, count in zip(
            bounded.cells[index].tolist(), bounded.counts[index].tolist(), strict=True
        ):
            cell = tuple(zip(columns, (int(v) for v in np.unravel_index(flat, shape)), strict=True))
            assert cell in allowed
            assert 0 < count <= truth[cell]


@given(tables, st.integers(1, 10))
def test_the_contribution_histogram_has_every_record_once(
    rows: list[tuple[int, ...]], cap: int
) -> None:
    table = from_codes(rows)
    candidates = all_candidates(table, 2)
    found = histogram(table, candidates, cap)
    assert found.shape == (cap + 1,)
    assert found.sum() == len(rows)
    held = contributions(table.codes, candidates)
    assert np.array_equal(np.repeat(np.arange(cap + 1), found), np.sort(np.minimum(held, cap)))


def test_the_kept_combinations_are_a_uniform_choice() -> None:
    """One record with 10 pairs of 5 columns, bound 3, 30,000 times: each pair is kept 3/10 of the time.

    Chi-square with 9 degrees of freedom at a false-alarm rate of 1e-6 (critical value 44.8); keeping the first three by
    position, or sampling with a ratio that is off by 10 %, fails at once.
    """
    repeats = 30_000
    rows = [(0, 0, 0, 0, 0)] * repeats
    codes = tuple(np.array(column, np.uint8) for column in zip(*rows, strict=True))
    table = EncodedTable(codes=codes, labels=tuple((f"{j}",) for j in "abcde"))
    candidates = all_candidates(table, 2)
    bounded = count_bounded(table, candidates, 3, KeyedBits(key=bytes(range(32)), purpose="test"))
    kept = np.array([c.sum() for c in bounded.counts])
    assert kept.sum() == 3 * repeats
    # Counts of a draw without replacement: var = n p (1-p) 10/9 in the 9-dimensional subspace.
    p = 0.3
    statistic = ((kept - repeats * p) ** 2).sum() / (repeats * p * (1 - p)) * 9 / 10
    assert statistic < 44.8
