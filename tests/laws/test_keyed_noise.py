"""Noise is a function of the draw and the cell, not of chunks, threads, memory or order; and other addresses are others.

Statistics have a false alarm of 1e-6 together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtri

from marginweave.base.digests import counts_digest
from marginweave.base.errors import InputError
from marginweave.base.parallel import LocalEngine
from marginweave.counts.bounded_counts import BoundedCounts, bounded_counts
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.count_runs import MemoryBudget
from marginweave.domain.combinations import Level
from marginweave.measurements import levels as level_module
from marginweave.measurements.digests import level_digest, values_digest
from marginweave.measurements.levels import LevelMechanism, draw_level
from marginweave.measurements.marginals import measure_marginals
from marginweave.measurements.private_values import discover_labels
from marginweave.mechanisms import gaussian as mechanisms
from marginweave.mechanisms import zero_cells
from marginweave.mechanisms.gaussian import add_noise
from marginweave.mechanisms.randomness import DrawBits, KeyedBits
from marginweave.mechanisms.zero_cells import passing_noise, passing_zeros
from tests.support.counting import AMPLE, WholeCounts, blocks_of
from tests.support.draws import GAUSSIAN
from tests.support.level_draws import surviving_values, table_of
from tests.support.seeded_bits import SeededBits

FALSE_ALARM = 1e-6
SEED = bytes(range(32))
BITS = DrawBits(seed=SEED, context=("release", 1, "level-2"))
CELLS = 40_000
LAST = 2**21  # words of a key


@given(
    st.integers(0, 3),
    st.sampled_from([0, 5, LAST - 50, 3 * LAST - 1]),
    st.lists(st.integers(0, 60), max_size=5),
)
@settings(max_examples=25, deadline=None)
def test_words_do_not_depend_on_chunks_or_order(table: int, start: int, sizes: list[int]) -> None:
    """Any cutting, in any order and from new objects, across the edge of a key as well; streams in any portions."""
    whole = BITS.words(table, start, sum(sizes))
    edges = [start, *(start + done for done in itertools.accumulate(sizes))]
    parts = [
        DrawBits(seed=SEED, context=BITS.context).words(table, a, b - a)
        for a, b in itertools.pairwise(edges)
    ]
    backwards = [BITS.words(table, a, b - a) for a, b in list(itertools.pairwise(edges))[::-1]][
        ::-1
    ]
    for some in (parts, backwards):
        assert np.concatenate([np.zeros(0, np.uint64), *some]).tolist() == whole.tolist()
    stream = BITS.stream(table, start)
    portions = [stream.words(size) for size in sizes]
    assert (
        np.concatenate([np.zeros(0, np.uint64), *portions]).tolist()
        == BITS.stream(table, start).words(sum(sizes)).tolist()
    )


@pytest.mark.parametrize("chunk", [1, 7, 1000, 1 << 20])
def test_noise_does_not_depend_on_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`add_noise` in pieces of any size, and by any chunk of its own, is `add_noise` of the whole."""
    counts = np.arange(3000, dtype=np.int64)
    whole = add_noise(counts, Fraction(20), BITS, table=4, start=9)
    monkeypatch.setattr(mechanisms, "_CHUNK", chunk)
    assert np.array_equal(add_noise(counts, Fraction(20), BITS, table=4, start=9), whole)
    pieces = [
        add_noise(counts[a : a + 77], Fraction(20), BITS, table=4, start=9 + a)
        for a in range(0, len(counts), 77)
    ]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_threads_make_the_same_noise() -> None:
    """Forty tables by eight threads that share one source, in whatever order they come to it."""
    alone = [
        add_noise(np.zeros(500, np.int64), Fraction(300), SeededBits(1), table=i).tolist()
        for i in range(40)
    ]
    shared = SeededBits(1)
    with ThreadPoolExecutor(8) as pool:
        together = pool.map(
            lambda i: add_noise(np.zeros(500, np.int64), Fraction(300), shared, table=i), range(40)
        )
    assert [noise.tolist() for noise in together] == alone


# --- levels --------------------------------------------------------------------------------------------------------

SIZES = (40, 50, 60)
MECHANISM = LevelMechanism(length=2, contribution_bound=2, sigma=Fraction(3), threshold=4)
TABLE = table_of(
    [np.random.default_rng(j).integers(0, size, 5000).tolist() for j, size in enumerate(SIZES)],
    SIZES,
)
PAIRS = CandidateSet.above(surviving_values(SIZES), SIZES)
WORDS = KeyedBits(key=SEED, purpose="test")


def counted(place: Path, memory: int, cores: int = 1, records: int | None = None) -> BoundedCounts:
    """The bounded counts of the pairs of the table, by so much memory, on so many cores, in blocks of so many records."""
    place.mkdir(exist_ok=True)
    return bounded_counts(
        blocks_of(TABLE, records), PAIRS, 2, WORDS, LocalEngine(cores), MemoryBudget(memory, place)
    )


def told(level: Level) -> tuple[Any, ...]:
    return level.columns.tolist(), level.values.tolist(), level.counts.tolist()


@pytest.fixture
def ways(tmp_path: Path) -> dict[str, Any]:
    """The same counts by ample memory, by so little that pieces are set aside, and in other pieces."""
    ample = counted(tmp_path / "ample", AMPLE)
    return {
        "ample": ample,
        "little": counted(tmp_path / "little", 400_000),
        "none": counted(tmp_path / "none", 384, cores=2, records=700),
        "other pieces": WholeCounts.of(ample),
    }


@pytest.mark.parametrize("visited", [1 << 24, 3], ids=["visited", "not visited"])
@pytest.mark.parametrize("changes", [{}, {"threshold": -50}], ids=str)
def test_a_level_does_not_depend_on_memory_cores_and_blocks(
    ways: dict[str, Any], visited: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense arrays, runs in memory and in files, one core and two: the same bytes, and the same digest of what goes in."""
    assert ways["ample"].dense
    assert len(ways["none"].run.pieces) > 3
    assert not ways["none"].dense
    monkeypatch.setattr(level_module, "_VISITED", visited)
    monkeypatch.setattr(level_module, "_RARE", Fraction(1))
    mechanism = replace(MECHANISM, **changes)
    assert level_module.visits_all(PAIRS, mechanism) == (visited > 3 or bool(changes))
    levels = {
        name: told(draw_level(bounded, PAIRS, mechanism, SeededBits(6)))
        for name, bounded in ways.items()
    }
    assert len(levels["ample"][2]) > 100
    assert all(level == levels["ample"] for level in levels.values())
    assert len({level_digest(bounded, PAIRS, mechanism) for bounded in ways.values()}) == 1
    assert (
        told(draw_level(ways["ample"], PAIRS, mechanism, SeededBits(6, "another draw")))
        != levels["ample"]
    )


def test_the_noise_of_a_set_of_columns_has_its_number_and_places(ways: dict[str, Any]) -> None:
    """Set i is table i; candidate j of it has the word j, whatever occurs."""
    level = draw_level(ways["none"], PAIRS, replace(MECHANISM, threshold=-(10**6)), SeededBits(6))
    whole = WholeCounts.of(ways["ample"])
    for number, columns in enumerate(PAIRS.column_sets()):
        cells = np.concatenate(list(PAIRS.cells(columns)))
        exact = np.zeros(cells[-1] + 1, np.int64)
        exact[whole.cells[number]] = whole.counts[number]
        noisy = add_noise(exact[cells], MECHANISM.sigma, SeededBits(6), table=number)
        assert level.counts[(level.columns == columns).all(axis=1)].tolist() == noisy.tolist()


def test_blocks_of_zeros_have_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later block does not depend on the ones before it, nor its noise on another table's."""
    monkeypatch.setattr(zero_cells, "_PASSING", 20)
    blocks = {begin: found.tolist() for begin, found in passing_zeros(10_000, 8, Fraction(3), BITS)}
    assert len(blocks) > 2
    assert len({tuple(found) for found in blocks.values()}) == len(blocks)
    for begin, found in passing_zeros(max(blocks) + 1, 8, Fraction(3), BITS):
        assert begin == max(blocks) or found.tolist() == blocks[begin]
    noises = [tuple(passing_noise(30, 8, Fraction(3), BITS, table).tolist()) for table in range(3)]
    assert len(set(noises)) == 3
    assert noises[0] == tuple(passing_noise(30, 8, Fraction(3), BITS).tolist())


def test_other_draws_have_tables_too() -> None:
    """Marginal i is table i, and an attribute that is discovered has its own number, whichever are beside it."""
    zeros = [np.zeros((20, 30), np.int64)] * 2
    first, second = measure_marginals(GAUSSIAN, zeros, [(0, 1), (1, 2)], [Fraction(30)] * 2, BITS)
    for table, measured in enumerate((first, second)):
        assert np.array_equal(measured.counts, add_noise(zeros[0], Fraction(30), BITS, table=table))
    counts = {j: np.full(600, 9, np.int64) for j in (0, 2, 5)}
    labels = [tuple(f"{v:03}" for v in range(600))] * 6
    found = discover_labels(counts, labels, Fraction(30), 20, BITS)
    alone = {j: discover_labels({j: counts[j]}, labels, Fraction(30), 20, BITS)[j] for j in counts}
    assert found == alone
    assert len(set(found.values())) == 3


# --- other addresses -----------------------------------------------------------------------------------------------

OTHERS: dict[str, Callable[[], NDArray[np.uint64]]] = {
    "the words": lambda: BITS.words(0, 0, CELLS),
    "another seed": lambda: DrawBits(seed=SEED[::-1], context=BITS.context).words(0, 0, CELLS),
    "a seed of one bit more": lambda: DrawBits(seed=b"\1" + SEED[1:], context=BITS.context).words(
        0, 0, CELLS
    ),
    "another context": lambda: DrawBits(seed=SEED, context=("release", 2, "level-2")).words(
        0, 0, CELLS
    ),
    "no context": lambda: DrawBits(seed=SEED).words(0, 0, CELLS),
    "another table": lambda: BITS.words(1, 0, CELLS),
    "later cells": lambda: BITS.words(0, CELLS, CELLS),
    "another key": lambda: BITS.words(0, LAST, CELLS),
    "a stream": lambda: BITS.stream(0).words(CELLS),
    "another stream": lambda: BITS.stream(1).words(CELLS),
    "a stream of the stream": lambda: BITS.stream(0, 0).words(CELLS),
    "ties": lambda: np.array(
        [BITS.rest(0, cell) & (2**64 - 1) for cell in range(CELLS)], np.uint64
    ),
    "ties of another table": lambda: np.array(
        [BITS.rest(1, cell) >> 1 for cell in range(CELLS)], np.uint64
    ),
}


def agreements(series: list[NDArray[np.uint64]]) -> float:
    """The largest deviation of how often bits of two series agree, in standard errors: in place, and shifted by one or two."""
    bits = [np.unpackbits(words.view(np.uint8)).reshape(-1, 64) for words in series]
    widest = 0.0
    for one, other in itertools.combinations(bits, 2):
        for left, right in (
            (one, other),
            (one[1:], other[:-1]),
            (one[:-1], other[1:]),
            (one[:, 1:], other[:, :-1]),
        ):
            same = np.count_nonzero(left == right)
            widest = max(widest, abs(same - left.size / 2) / (math.sqrt(left.size) / 2))
    return widest


def test_words_of_other_addresses_are_independent() -> None:
    """40,000 words of each: their bits agree in half of the places, in place and shifted; no word stands twice."""
    series = [make() for make in OTHERS.values()]
    comparisons = 4 * math.comb(len(series), 2)
    assert agreements(series) < -ndtri(FALSE_ALARM / (4 * comparisons))
    words = np.concatenate(series)
    assert len(np.unique(words)) == len(words)  # a chance equality: below 1e-8


@pytest.mark.parametrize("damage", ["table", "context", "position", "ties"])
def test_addresses_that_share_words_would_be_found(
    damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistic has power, over one part of the address at a time."""
    names = {
        "table": "another table",
        "context": "another context",
        "position": "later cells",
        "ties": "a stream",
    }
    broken = {**OTHERS, names[damage]: OTHERS["the words"]}
    assert agreements([make() for make in broken.values()]) > 100


# --- digests -------------------------------------------------------------------------------------------------------


def test_a_level_that_is_another_has_another_digest(ways: dict[str, Any]) -> None:
    """Counts, cells, candidates and every number of the mechanism, and the texts of private values."""
    bounded, seen = WholeCounts.of(ways["ample"]), []
    moved = replace(bounded, counts=(bounded.counts[0] + 1, *bounded.counts[1:]))
    shifted = replace(
        bounded,
        cells=(np.append(bounded.cells[0][:-1], bounded.cells[0][-1] + 1), *bounded.cells[1:]),
    )
    fewer = {**PAIRS.survivors, (0,): PAIRS.survivors[(0,)][:-1]}
    never = {(0, 1): np.array([3, 7])}
    seen += [level_digest(counts, PAIRS, MECHANISM) for counts in (bounded, moved, shifted)]
    others = (
        replace(PAIRS, survivors=fewer),
        replace(PAIRS, forbidden=never),
        replace(PAIRS, sizes=(40, 50, 61)),
    )
    seen += [level_digest(bounded, candidates, MECHANISM) for candidates in others]
    changes: list[dict[str, Any]] = [
        {"sigma": Fraction(3073, 1024)}, {"threshold": 5}, {"private_threshold": 6}, {"contribution_bound": 3},
        {"private_columns": frozenset({0})}, {"private_columns": frozenset({1})}, {"raised_from": 2},
    ]  # fmt: skip
    seen += [level_digest(bounded, PAIRS, replace(MECHANISM, **change)) for change in changes]
    private = replace(MECHANISM, private_columns=frozenset({0}))
    labels = [("a", "b"), ("c",), ("d",)]
    seen += [
        level_digest(bounded, PAIRS, private, some)
        for some in (labels, [("a", "x"), *labels[1:]], [("ab",), *labels[1:]])
    ]
    assert len(set(seen)) == len(seen)
    assert level_digest(bounded, PAIRS, private, [labels[0], ("z",), ("z",)]) == level_digest(
        bounded, PAIRS, private, labels
    )


ARRAYS = st.lists(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6).map(
        lambda values: np.array(values, np.int64)
    ),
    max_size=4,
)


@given(ARRAYS, ARRAYS)
def test_counts_that_are_others_have_another_digest(
    one: list[NDArray[Any]], other: list[NDArray[Any]]
) -> None:
    """However they are divided among arrays; whether they come as a list or one by one does not matter."""
    equal = len(one) == len(other) and all(map(np.array_equal, one, other))
    assert (counts_digest(one) == counts_digest(iter(other))) == equal


def test_shapes_types_and_labels_count() -> None:
    six = np.arange(6)
    assert (
        counts_digest([six])
        != counts_digest([six.reshape(2, 3)])
        != counts_digest([six.reshape(3, 2)])
    )
    assert counts_digest([six.reshape(2, 3).T]) == counts_digest([six.reshape(2, 3).T.copy()])
    with pytest.raises(InputError, match="must be int64"):
        counts_digest([cast("Any", six.astype(np.float64))])
    counts, labels = {1: six}, [("x",), tuple("abcdef")]
    seen = {values_digest(counts, labels), values_digest({0: six}, [labels[1], ("x",)])}
    seen |= {
        values_digest({1: six[::-1].copy()}, labels),
        values_digest(counts, [("x",), tuple("abcdeg")]),
    }
    assert len(seen) == 4
    assert values_digest({1: six, 0: six[:1]}, labels) == values_digest(
        {0: six[:1], 1: six}, labels
    )
