"""Columns whose cells hold several values: counted once a value, bounded by public caps, cut evenly, put together again."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from marginweave.configuration.attributes import most_combinations
from marginweave.configuration.synthesis import SynthesisSettings
from marginweave.counts.released_rows import recode
from marginweave.estimate.normalize import normalize
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, encode_table
from tests.support.candidates import all_candidates, counted
from tests.support.configurations import configuration
from tests.support.counting import contributions, count_bounded, histogram
from tests.support.noisy_counts import collect
from tests.support.synthesized import synthesize_codes
from tests.support.tables import FixedWords, level_from, tuple_counts

COLUMNS = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "signs": {"type": "set", "values": ["a", "b", "c", "d", "e"], "max_values": 3},
    "grade": {"type": "category", "values": [1, 2, 3]},
    "codes": {"type": "set", "separator": ",", "domain": "private", "max_values": 2},
}
CONFIGURATION = configuration(columns=COLUMNS)
CELL = st.lists(st.sampled_from("abcde"), max_size=5).map(";".join)
ROW = st.tuples(
    st.sampled_from(["f", "m", ""]),
    CELL,
    st.sampled_from(["1", "2", "3", "9"]),
    CELL.map(lambda c: c.replace(";", ",")),
)
ROWS = st.lists(ROW, max_size=15)


def encoded(rows, seed=1):
    raw = pa.table(
        {name: pa.array([row[j] for row in rows], pa.string()) for j, name in enumerate(COLUMNS)}
    )
    return encode_table(clean_table(raw, CONFIGURATION), CONFIGURATION, FixedWords(seed))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 4))
def test_the_public_cap_counts_every_choice(widths, length):
    """The most combinations of one record, counted one by one; without sets it is C(m, k)."""
    values = [(j, v) for j, width in enumerate(widths) for v in range(width)]
    counted = sum(len({j for j, _ in t}) == length for t in itertools.combinations(values, length))
    assert most_combinations(widths, length) == counted
    assert most_combinations([1] * len(widths), length) == math.comb(len(widths), length)


@settings(max_examples=25)
@given(ROWS, st.integers(1, 4))
def test_counts_equal_the_slow_reference_and_stay_below_the_cap(rows, length):
    """Every choice of one value a set is counted; no record holds more than the public cap."""
    table = encoded(rows)
    assert (counted(table, length) == dict(tuple_counts(table, length))) is True
    held = contributions(table.codes, all_candidates(table, length))
    cap = CONFIGURATION.contribution_cap(length)
    assert held.max(initial=0) <= cap
    assert np.array_equal(
        histogram(table, all_candidates(table, length), cap), np.bincount(held, minlength=cap + 1)
    )


@settings(max_examples=25)
@given(ROWS, ROW, st.integers(1, 3), st.integers(1, 7), st.integers(0, 9))
def test_one_record_more_moves_at_most_delta_counts_by_one(rows, one, length, bound, seed):
    """Sensitivity by construction: L0 and squared L2 at most Delta_k, Linf 1, with all other choices coupled."""
    both = encoded([*rows, one])
    vectors = []
    for table in (both, EncodedTable(codes=tuple(c[:-1] for c in both.codes), labels=both.labels)):
        candidates = all_candidates(table, length)
        bounded = count_bounded(table, candidates, bound, FixedWords(seed))
        dense = [
            bounded.vector(i, candidates.mask(c).size) for i, c in enumerate(bounded.column_sets)
        ]
        vectors.append(np.concatenate(dense))
    change = vectors[0] - vectors[1]
    assert np.count_nonzero(change) <= bound
    assert np.abs(change).max(initial=0) <= 1


@settings(max_examples=15)
@given(ROWS)
def test_a_record_over_the_bound_keeps_exactly_the_bound(rows):
    """The counts sum to sum_u min(w_u, bound)."""
    table = encoded(rows)
    candidates = all_candidates(table, 2)
    held = contributions(table.codes, candidates)
    bounded = count_bounded(table, candidates, 4, FixedWords(3))
    assert sum(int(c.sum()) for c in bounded.counts) == np.minimum(held, 4).sum()


def test_a_long_cell_is_cut_to_a_uniform_choice():
    """Cells a to e, cap 3, 20000 times: each of the 10 subsets a tenth of the time (chi-square, false alarm 1e-6)."""
    rng = np.random.default_rng(9)

    class Words:
        def words_of(
            self,
            records: NDArray[np.int64],
            slots: NDArray[np.int64] | int = 0,  # noqa: ARG002
        ) -> NDArray[np.uint64]:
            return rng.integers(0, 2**64, len(records), dtype=np.uint64)

    n = 20_000
    config = configuration(columns={"signs": COLUMNS["signs"]})
    clean = clean_table(pa.table({"signs": ["e;d;c;b;a", "b"] * n}), config)
    codes = encode_table(clean, config, Words()).codes[0]
    assert codes.shape == (2 * n, 3)
    assert np.unique(codes[1::2], axis=0).tolist() == [[1, 5, 5]]
    kept, seen = np.unique(codes[::2], axis=0, return_counts=True)
    assert (len(kept), kept[0].tolist()) == (10, [0, 1, 2])
    assert ((seen - n / 10) ** 2 / (n / 10)).sum() < chi2.isf(1e-6, 9)


def test_values_are_trimmed_matched_and_told_apart():
    """Repetition, order, blanks and empty parts do not count; a value outside follows `outside`."""
    signs = {"type": "set", "separator": "|", "values": [" 9 ", "b c"], "max_values": 3}
    for outside, labels in (("null", ("9", "b c")), ("other", ("9", "b c", "other"))):
        config = configuration(columns={"s": {**signs, "outside": outside}}, missing=["", "none"])
        clean = clean_table(
            pa.table({"s": ["b c|9.0|| b c ", "none", "|", "x|y|9", None]}), config
        ).column("s")
        more = ["other"] if outside == "other" else []
        assert clean.to_pylist() == [["9", "b c"], None, None, ["9", *more], None]
        assert encode_table(pa.table({"s": clean}), config).labels == (labels,)


def exact(rows, length, configuration=CONFIGURATION):
    """Aggregates of the exact counts of a table: a release without noise."""
    table = encoded(rows)
    levels = [level_from(dict(tuple_counts(table, k)), k) for k in range(1, length + 1)]
    names = tuple(a.name for a in configuration.attributes)
    return table, normalize(collect(names, table.labels, len(rows), 0.0, levels, ()))


def values_of(codes, size):
    return Counter(v for v in np.ravel(codes).tolist() if v < size)


@settings(max_examples=15, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=25), st.integers(0, 3))
def test_exact_counts_give_sets_of_exact_values(rows, seed):
    """From exact 1-counts every value of every attribute comes out at most as often as it was, single ones exactly so.

    Sets never pass their cap; what the cap cuts is all that is lost.
    """
    table, aggregates = exact(rows, 1)
    made = synthesize_codes(aggregates, CONFIGURATION, SynthesisSettings(seed=seed))
    for j, attribute in enumerate(CONFIGURATION.attributes):
        was, now = values_of(table.codes[j], table.sizes[j]), values_of(made[j], table.sizes[j])
        assert all(now[v] <= was[v] for v in now)
        if attribute.is_set:
            assert made[j].shape == (len(rows), attribute.width)
            assert all(
                len(set(c)) == len(c)
                for c in ([v for v in r if v < table.sizes[j]] for r in made[j].tolist())
            )
        else:
            assert now == was


def test_values_keep_their_company():
    """Signs that come with one sex alone stay with it: a set's values are synthesized with what they were counted with."""
    rows = [("f", "a;b", "1", "")] * 300 + [("m", "c", "2", "x")] * 200
    _, aggregates = exact(rows, 2)
    sex, signs, _, codes = synthesize_codes(aggregates, CONFIGURATION, SynthesisSettings())
    made = Counter(zip(sex.tolist(), map(tuple, signs.tolist()), codes[:, 0].tolist(), strict=True))
    assert made == {(0, (0, 1, 5), 1): 300, (1, (2, 5, 5), 0): 200}


@pytest.mark.parametrize("kept", [(), ("b",), ("d", "a")])
def test_values_that_were_not_released_are_lost_from_cells(kept):
    """Recoding over a released domain leaves the other values of a cell, wherever they stand in it."""
    table = encoded([("f", "a", "1", "a,b"), ("f", "a", "1", "d,a")])
    coded = recode(table, {3: tuple(sorted(kept))})
    shown = [*sorted(kept), None]
    cells = [{shown[v] for v in row} - {None} for row in coded.codes[3].tolist()]
    assert cells == [{"a", "b"} & set(kept), {"a", "d"} & set(kept)]
