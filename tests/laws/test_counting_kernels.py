"""The compiled passes count what the slow reference counts, however the table is cut and whoever counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from marginweave.base.parallel import LocalEngine
from marginweave.counts import count_runs, layout
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.layout import lay_out, spans
from marginweave.counts.released_rows import ReleasedBlocks
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.codes import EncodedTable, code_type
from tests.support.counting import (
    AMPLE,
    as_counter,
    blocks_of,
    contributions,
    count_blocks,
    count_bounded,
    held_candidates,
    histogram,
    histogram_of,
    reference_counts,
    same_counts,
)
from tests.support.tables import level_from

SIZES = (2, 3, 5, 300)
WIDTHS = (1, 2, 1, 1)
KEY = bytes(range(32))
FALSE_ALARM = 1e-6


def words(purpose: str = "test") -> KeyedBits:
    """The words of a run, under a fixed key."""
    return KeyedBits(key=KEY, purpose=purpose)


@st.composite
def tables(draw: st.DrawFn) -> EncodedTable:
    """Up to 40 records with missing values; the second attribute is a set of at most two values."""
    few = [st.integers(0, size) for size in (2, 3, 5)]
    # of 300 values, those at the ends, so that combinations are shared
    many = st.sampled_from([0, 1, 298, 299, 300])
    rows = draw(
        st.lists(
            st.tuples(few[0], st.sets(st.integers(0, 2), max_size=2), few[2], many), max_size=40
        )
    )
    sets = np.array([[*sorted(s), *[3] * (2 - len(s))] for _, s, _, _ in rows], np.uint8).reshape(
        -1, 2
    )
    plain = [np.array([row[j] for row in rows]).astype(code_type(SIZES[j])) for j in (0, 2, 3)]
    labels = tuple(tuple(f"{j}.{v}" for v in range(size)) for j, size in enumerate(SIZES))
    return EncodedTable(codes=(plain[0], sets, plain[1], plain[2]), labels=labels)


@st.composite
def candidate_sets(draw: st.DrawFn, length: int) -> CandidateSet:
    """Candidates over survivors of which some are missing, and with combinations that cannot be."""
    if length == 1:
        return CandidateSet(length=1, sizes=SIZES)
    drop = draw(st.integers(0, 6))
    cells = {
        tuple(zip(columns, values, strict=True)): 1
        for columns in itertools.combinations(range(len(SIZES)), length - 1)
        for values in itertools.product(*(_ends(SIZES[j]) for j in columns))
    }
    kept = {cell: 1 for i, cell in enumerate(cells) if drop == 0 or i % 7 != drop}
    forbidden = [((0, 1), (2, 0)), ((0, 0), (1, 1), (3, 299))]
    return CandidateSet.above(level_from(kept, length - 1), SIZES, forbidden)


def _ends(size: int) -> list[int]:
    return list(range(size)) if size < 10 else [0, 1, size - 1]


@contextmanager
def counted_by(*, dense_cells: int | None, tile: int | None) -> Iterator[None]:
    """Fewer cells that are counted densely, smaller tiles and pieces, and fewer runs that are added up at once."""
    with pytest.MonkeyPatch.context() as patch:
        if dense_cells is not None:
            patch.setattr(layout, "MAX_DENSE", dense_cells)
        if tile is not None:
            patch.setattr(layout, "_TILE", tile)
            patch.setattr(layout, "_FEWEST", 1)
            patch.setattr(count_runs, "PIECE", tile)
            patch.setattr(count_runs, "_FAN_IN", 1 + tile)
        yield


DENSE_CELLS = st.sampled_from([None, 0, 40, 2000])
# Bytes that hold everything; nothing; some of what is counted, in the order of dense cells and of keys.
MEMORY = st.sampled_from([AMPLE, 0, 40 * 32, 400 * 32, 5 * 384, 20 * 384])


@given(st.data(), tables(), st.integers(1, 4), st.integers(1, 6), DENSE_CELLS)
@settings(max_examples=50, deadline=None)
def test_the_compiled_counts_are_those_of_the_slow_reference(
    data: st.DataObject, table: EncodedTable, length: int, bound: int, dense_cells: int | None
) -> None:
    """Counts, with the very choices of each record, and contributions; sets, missing and forbidden values; any layout."""
    candidates = data.draw(candidate_sets(length))
    with counted_by(dense_cells=dense_cells, tile=None):
        found = as_counter(count_bounded(table, candidates, bound, words()), SIZES)
        plan = lay_out(blocks_of(table), candidates, AMPLE)
        held = histogram(table, candidates, 30)
    assert (
        found == reference_counts(table, candidates, bound, words(), plan.dense + plan.sparse)
    ) is True
    assert (
        held.tolist() == np.bincount(contributions(table.codes, candidates), minlength=31).tolist()
    )


@dataclass(frozen=True)
class Listed:
    """Words that are written down."""

    words: NDArray[np.uint64]

    def words_at(self, start: int, count: int) -> NDArray[np.uint64]:
        """Words number `start` to `start + count - 1`."""
        return self.words[start : start + count]


@given(st.data(), tables(), st.integers(1, 3), st.integers(1, 6), DENSE_CELLS)
@settings(max_examples=50, deadline=None)
def test_a_record_in_the_middle_changes_at_most_bound_counts_by_one(
    data: st.DataObject, table: EncodedTable, length: int, bound: int, dense_cells: int | None
) -> None:
    """The coupling of the proof: the words behind the record are moved along with the records they belong to."""
    assume(table.records > 0)
    place = data.draw(st.integers(0, table.records - 1))
    drawn = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(
        0, 2**64, table.records, np.uint64
    )
    candidates = data.draw(candidate_sets(length))
    fewer = EncodedTable(
        codes=tuple(np.delete(codes, place, axis=0) for codes in table.codes), labels=table.labels
    )
    with counted_by(dense_cells=dense_cells, tile=None):
        one = as_counter(count_bounded(table, candidates, bound, Listed(drawn)), SIZES)
        other = as_counter(
            count_bounded(fewer, candidates, bound, Listed(np.delete(drawn, place))), SIZES
        )
    assert not other - one
    assert set((one - other).values()) <= {1}
    assert (one - other).total() == min(bound, contributions(table.codes, candidates)[place])


@given(
    st.data(),
    tables(),
    st.integers(1, 3),
    st.integers(1, 4),
    DENSE_CELLS,
    st.integers(1, 50),
    st.integers(1, 9),
    st.integers(1, 5),
    MEMORY,
)
@settings(max_examples=50, deadline=None)
def test_blocks_tiles_threads_and_memory_change_no_count(
    data: st.DataObject,
    table: EncodedTable,
    length: int,
    bound: int,
    dense_cells: int | None,
    records: int,
    tile: int,
    cores: int,
    memory: int,
) -> None:
    """The same key, other blocks, tiles, threads and memory: identical counts and contributions."""
    candidates = data.draw(candidate_sets(length))
    with counted_by(dense_cells=dense_cells, tile=None):
        one = count_bounded(table, candidates, bound, words())
        held = histogram(table, candidates, 9)
    with counted_by(dense_cells=dense_cells, tile=tile):
        blocks = blocks_of(table, records)
        other = count_blocks(blocks, candidates, bound, words(), LocalEngine(cores), memory)
        assert np.array_equal(held, histogram_of(blocks, candidates, 9, LocalEngine(cores), memory))
    assert same_counts(one, other)


def test_spans_hold_every_record_once() -> None:
    table = EncodedTable(codes=(np.zeros(10, np.uint8),), labels=(("a",),))
    for parts in (1, 3, 10, 13):
        found = spans(blocks_of(table, 4), parts)
        assert len(found) == parts
        assert [i for start, stop in found for i in range(start, stop)] == list(range(10))


def people(records: int, seed: int = 5) -> EncodedTable:
    """Five attributes without a missing value."""
    rng = np.random.default_rng(seed)
    codes = tuple(rng.integers(0, size, records).astype(np.uint8) for size in (2, 3, 4, 5, 6))
    return EncodedTable(
        codes=codes, labels=tuple(tuple("abcdef"[:size]) for size in (2, 3, 4, 5, 6))
    )


def pairs(table: EncodedTable) -> CandidateSet:
    """All pairs of values."""
    first = {((j, v),): 1 for j, size in enumerate(table.sizes) for v in range(size)}
    return CandidateSet.above(level_from(first, 1), table.sizes)


@pytest.mark.parametrize("dense_cells", [None, 0, 30])
@pytest.mark.parametrize("bound", [1, 3, 8])
def test_every_subset_is_as_likely(bound: int, dense_cells: int | None) -> None:
    """One record after the other of 6,000 alike: each of C(10, bound) subsets of its pairs equally often.

    Chi-square over subsets, false alarm 1e-6. A bound that is kept in the first places, a ratio that is off by one
    (needed / (left + 1)), or the same word for every candidate fails.
    """
    table = people(6000)
    one = EncodedTable(
        codes=tuple(np.zeros_like(codes) for codes in table.codes), labels=table.labels
    )
    candidates = pairs(one)
    with counted_by(dense_cells=dense_cells, tile=None):
        plan = lay_out(blocks_of(one), candidates, AMPLE)
        seen: dict[frozenset[tuple[int, ...]], int] = {}
        shipped = as_counter(count_bounded(one, candidates, bound, words()), one.sizes)
    total = 0
    for record, seed in enumerate(words().words_at(0, one.records)):
        kept = chosen(one, candidates, bound, seed, plan.dense + plan.sparse, record)
        seen[kept] = seen.get(kept, 0) + 1
        total += len(kept)
    subsets = len(list(itertools.combinations(range(10), bound)))
    counts = np.array([*seen.values(), *[0] * (subsets - len(seen))])
    expected = one.records / subsets
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, subsets - 1)
    assert sum(shipped.values()) == total == bound * one.records
    singles = {
        columns: sum(n for kept, n in seen.items() if columns in kept)
        for columns in plan.dense + plan.sparse
    }
    assert singles == {columns: n for (columns, _), n in shipped.items()}


def chosen(
    table: EncodedTable,
    candidates: CandidateSet,
    bound: int,
    seed: int,
    order: tuple[tuple[int, ...], ...],
    record: int,
) -> frozenset[tuple[int, ...]]:
    """The sets of columns of which one record is counted: by the shipped kernel, of that record alone."""
    from marginweave.counts.kernels import Choice, choose

    choice = Choice(
        remaining=np.array([len(order)], np.int32),
        needed=np.array([bound], np.int32),
        seeds=np.array([seed], np.uint64),
    )
    return frozenset(columns for columns in order if choose(np.ones(1, np.bool_), choice)[0])


def test_choices_of_two_records_and_of_two_lengths_are_independent() -> None:
    """Which pair record u keeps and which record u + 1, and which the same record keeps under the key of another length.

    Chi-square of 10 x 10 tables from 12,000 records, false alarm 1e-6; words that are shared fail at once.
    """
    n, order = 12_000, tuple(itertools.combinations(range(5), 2))
    first = np.array([keeps_one(seed, order) for seed in words("level-2").words_at(0, n)])
    second = np.array([keeps_one(seed, order) for seed in words("level-3").words_at(0, n)])
    for left, right in ((first[:-1], first[1:]), (first, second)):
        joint = np.bincount(left * 10 + right, minlength=100)
        expected = len(left) / 100
        assert ((joint - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, 99)


def keeps_one(seed: int, order: tuple[tuple[int, ...], ...]) -> int:
    """Number of the only pair that is kept."""
    table = EncodedTable(codes=(), labels=())
    (kept,) = chosen(table, CandidateSet(length=1, sizes=()), 1, seed, order, 0)
    return order.index(kept)


def test_a_missing_value_is_in_no_candidate() -> None:
    """`contains` and `mask` say the same of every cell, the missing values included."""
    candidates = pairs(people(1))
    for columns in candidates.column_sets():
        mask = candidates.mask(columns)
        cells = np.stack(np.unravel_index(np.arange(mask.size), mask.shape), axis=1)
        assert np.array_equal(candidates.contains(columns, cells.astype(np.int64)), mask.ravel())


def test_private_sizes_move_no_choice() -> None:
    """At length 1 a value more in a private domain leaves the counts of all other records as they were, whatever its size."""
    rng = np.random.default_rng(8)
    codes = tuple(rng.integers(0, 50, 400).astype(np.uint8) for _ in range(4))
    for dense_cells in (None, 0, 100, 152):
        counts = []
        for size in (50, 51):
            labels = (*((("",) * 50,) * 3), ("",) * size)
            table = EncodedTable(codes=codes, labels=labels)
            with counted_by(dense_cells=dense_cells, tile=None):
                found = count_bounded(table, CandidateSet(length=1, sizes=table.sizes), 2, words())
            counts.append(as_counter(found, table.sizes))
        assert counts[0] == counts[1]


def test_blocks_over_the_released_domain() -> None:
    """What was not released is missing in every block."""
    table = people(50)
    released = ReleasedBlocks(blocks_of(table, 7), {4: ("b", "e")})
    assert released.sizes == (2, 3, 4, 5, 2)
    codes = np.concatenate([released.table(i).codes[4] for i in range(len(released.offsets) - 1)])
    assert codes.tolist() == [{1: 0, 4: 1}.get(v, 2) for v in table.codes[4].tolist()]
    candidates = CandidateSet(length=1, sizes=released.sizes)
    assert (
        sum(
            1
            for i in range(50)
            for _ in held_candidates(table, CandidateSet(length=1, sizes=table.sizes), i)
        )
        == 250
    )
    held = histogram_of(released, candidates, 5, LocalEngine(2))
    assert held.tolist() == [0, 0, 0, 0, (codes == 2).sum(), (codes < 2).sum()]
