"""Measuring and selecting marginals: the noise that is claimed, and sensitivities by enumeration of all neighbors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError, StageError
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.marginals import AllCliques
from marginweave.counts.marginals import all_cliques, cells
from marginweave.measurements.marginals import budget_shares, measure_marginals, split_noise
from marginweave.measurements.pair_scores import (
    indif_score,
    indif_scores,
    indif_sensitivity,
    measure_indif,
    plan_indif,
)
from marginweave.measurements.selection import select_marginals
from marginweave.mechanisms.catalogue import count_noise
from marginweave.mechanisms.gaussian import RoundedGaussian, marginal_sigma
from marginweave.mechanisms.noise_table import MAX_SIGMA
from marginweave.mechanisms.randomness import fresh_bits
from tests.support.counting import count_marginal

SIZES = (2, 3, 5, 7)
ONE = Stability(records=1, neighbors="add-remove")
FALSE_ALARM = 1e-6


def table(rows: list[tuple[int, ...]], width: int) -> tuple[np.ndarray, ...]:
    return tuple(np.array([row[j] for row in rows], np.uint8) for j in range(width))


def small_tables(rows: int) -> Iterator[np.ndarray]:
    """Every 2 x 3 marginal of up to `rows` records."""
    for n in range(rows + 1):
        for chosen in itertools.combinations_with_replacement(range(6), n):
            yield np.bincount(np.array(chosen, np.int64), minlength=6).reshape(2, 3)


@given(st.lists(st.tuples(*(st.integers(0, n - 1) for n in SIZES)), max_size=40))
def test_counts_are_those_of_a_count_by_hand(rows: list[tuple[int, ...]]) -> None:
    """Every marginal of one to four attributes against a loop over the records."""
    codes = table(rows, len(SIZES))
    for length in range(len(SIZES) + 1):
        for clique in itertools.combinations(range(len(SIZES)), length):
            expected = np.zeros([SIZES[a] for a in clique], np.int64)
            for row in rows:
                expected[tuple(row[a] for a in clique)] += 1
            assert np.array_equal(count_marginal(codes, SIZES, clique), expected)


def test_counting_goes_on_beyond_one_chunk() -> None:
    """More rows than are counted at a time: nothing is lost between two passes."""
    rows = (1 << 20) + 5
    codes = (np.arange(rows, dtype=np.uint32) % 3, np.arange(rows, dtype=np.uint32) % 2)
    counts = count_marginal(codes, (3, 2), (0, 1))
    assert counts.sum() == rows
    assert np.ptp(counts) <= 1


def test_a_code_outside_its_size_is_refused_without_telling_it() -> None:
    with pytest.raises(StageError, match=r"^codes of attribute 1 must be below its size$"):
        count_marginal(table([(0, 2)], 2), (2, 2), (0, 1))


def test_the_noise_of_a_marginal_has_the_deviation_it_claims() -> None:
    """Sum of squared noise over sd^2 + 1/12 is chi-square with as many degrees as cells: two sides, 1e-6 for both.

    4 times 125 000 cells: a deviation that is off by 1 % in one of the two is 10 standard errors away.
    """
    sizes = (50, 50, 50)
    codes = tuple(np.zeros(1000, np.uint8) for _ in sizes)
    exact = count_marginal(codes, sizes, (0, 1, 2))
    for sd in (Fraction(5), Fraction(40)):
        drawn = [
            next(
                iter(
                    measure_marginals(
                        RoundedGaussian(ONE), [exact], [(0, 1, 2)], [sd], fresh_bits()
                    )
                )
            )
            for _ in range(4)
        ]
        squares = sum(float(((m.counts - exact) ** 2).sum()) for m in drawn) / (
            float(sd) ** 2 + 1 / 12
        )
        tail = stats.chi2(4 * exact.size).cdf(squares)
        assert FALSE_ALARM / 4 < tail < 1 - FALSE_ALARM / 4
        assert {m.deviation for m in drawn} == {float(sd)}


def test_marginals_of_one_measurement_never_share_noise() -> None:
    """The noises of two marginals of 2500 cells, drawn together, correlate below 5.2/sqrt(2500): false alarm 2e-7."""
    codes = tuple(np.zeros(3, np.uint8) for _ in range(3))
    pairs = [(0, 1), (1, 2)]
    exact = [count_marginal(codes, (50, 50, 50), pair) for pair in pairs]
    first, second = measure_marginals(
        RoundedGaussian(ONE), exact, pairs, [Fraction(9)] * 2, fresh_bits()
    )
    r = np.corrcoef(first.counts.ravel(), second.counts.ravel())[0, 1]
    assert abs(r) < 5.2 / 50


@pytest.mark.parametrize("max_records", [1, 2, 3])
def test_the_sensitivity_of_a_marginal_is_the_largest_move_of_one_subject(max_records: int) -> None:
    """All ways in which a subject of at most theta records can come, go or be replaced: the bound is reached, not passed."""
    subjects = [
        np.bincount(np.array(chosen, np.int64), minlength=6)
        for n in range(max_records + 1)
        for chosen in itertools.combinations_with_replacement(range(6), n)
    ]
    comes = max(float((u**2).sum()) for u in subjects)
    replaced = max(float(((u - v) ** 2).sum()) for u in subjects for v in subjects)
    assert marginal_sigma(1.0, Stability(records=max_records, neighbors="add-remove")) ** 2 == comes
    replacing = marginal_sigma(1.0, Stability(records=max_records, neighbors="replace-one"))
    assert 0 <= float(replacing) ** 2 - replaced < 0.01


@pytest.mark.parametrize("steps", [1, 8, 1024])
def test_indif_moves_by_at_most_its_sensitivity(steps: int) -> None:
    """Every 2 x 3 table of up to 5 records, every record added, and every record replaced; theta 1 and 2."""
    add = indif_sensitivity(steps, ONE)
    replace = indif_sensitivity(steps, Stability(records=1, neighbors="replace-one"))
    twice = indif_sensitivity(steps, Stability(records=2, neighbors="add-remove"))
    assert (add, replace, twice) == (4 * steps, 8 * steps, 8 * steps)
    unit = np.eye(6, dtype=np.int64).reshape(6, 2, 3)
    for counts in small_tables(5):
        here = indif_score(counts, steps)
        grown = [indif_score(counts + one, steps) for one in unit]
        assert max(abs(score - here) for score in grown) <= add
        assert max(grown) - min(grown) <= replace
        assert (
            max(abs(indif_score(counts + a + b, steps) - here) for a in unit for b in unit) <= twice
        )


def test_the_sensitivity_of_indif_is_nearly_reached() -> None:
    """n records in one cell and one in the opposite: InDif 4 n/(n + 1) where it was 0. A bound below 4 would be wrong."""
    before = np.array([[99, 0, 0], [0, 0, 0]])
    after = before + np.array([[0, 0, 0], [0, 0, 1]])
    assert indif_score(before, 1024) == 0
    assert indif_score(after, 1024) == round(1024 * 4 * 99 / 100)


def test_indif_of_an_empty_table_is_zero() -> None:
    assert indif_score(np.zeros((2, 3), np.int64), 1024) == 0


@given(st.lists(st.integers(0, 60), min_size=6, max_size=6), st.sampled_from([1, 8, 1024]))
def test_indif_is_the_printed_formula_in_exact_arithmetic(counts: list[int], steps: int) -> None:
    """|| M - M_a x M_b / n ||_1 in fractions, to the nearest step."""
    pair = np.array(counts, np.int64).reshape(2, 3)
    n = sum(counts)
    rows, columns = pair.sum(axis=1).tolist(), pair.sum(axis=0).tolist()
    exact = sum(
        (
            abs(Fraction(int(pair[i, j])) - Fraction(rows[i] * columns[j], max(n, 1)))
            for i in range(2)
            for j in range(3)
        ),
        Fraction(0),
    )
    assert abs(indif_score(pair, steps) - exact * steps) <= Fraction(1, 2)


@pytest.mark.parametrize("multiplier", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_the_noise_of_the_scores_covers_their_joint_sensitivity(
    multiplier: float, neighbors: str
) -> None:
    """sd = multiplier sqrt(m) (S theta + 1/1024) in records, whatever the grid of at most one record is; never less."""
    plan = plan_indif(91, multiplier, Stability(records=2, neighbors=neighbors))  # pyright: ignore[reportArgumentType]
    records = (8 if neighbors == "replace-one" else 4) * 2
    claimed = multiplier * math.sqrt(91) * (records + 1 / 1024)
    assert 0 <= float(plan.sigma) / plan.steps - claimed < 0.001
    assert plan.steps == 1024 or float(plan.sigma) > 4000  # no coarser than the table asks for


def test_a_share_without_a_noise_table_makes_all_shares_equal() -> None:
    """A cell beside a million: its part of mu^2 would be 1e-4, its noise 7.1e6; together they cost no more for that."""
    sizes, cliques = (1, 1000, 1000), [(0,), (1, 2)]
    found = split_noise(RoundedGaussian(ONE), 70_000.0, cliques, sizes, "cells")
    assert found == split_noise(RoundedGaussian(ONE), 70_000.0, cliques, sizes, "equal")
    assert max(found) <= MAX_SIGMA
    assert sum(1 / Fraction(sd) ** 2 for sd in found) <= 1 / Fraction(70_000) ** 2
    assert len(set(split_noise(RoundedGaussian(ONE), 7.0, cliques, sizes, "cells"))) == 2


def test_the_scores_carry_that_noise() -> None:
    """300 pairs of an empty table, 40 times: mean square within 5.1 standard errors of the variance (false alarm 4e-7)."""
    codes = tuple(np.zeros(0, np.uint8) for _ in range(25))
    pairs = all_cliques([2] * 25, 2)
    plan = plan_indif(len(pairs), 0.5, ONE)
    scores = indif_scores([codes], [2] * 25, pairs, plan.steps)
    noise = np.concatenate([measure_indif(scores, plan, fresh_bits()) for _ in range(40)])
    sd = float(plan.sigma) / plan.steps
    assert abs((noise**2).mean() / sd**2 - 1) < 5.1 * math.sqrt(2 / len(noise))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(2, 4), st.integers(1, 800))
def test_declared_marginals_hold_all_that_has_few_enough_cells(
    sizes: list[int], length: int, most: int
) -> None:
    """They are the sets of 2 to k attributes with at most so many cells, and beside larger sets all pairs, that are part of no
    other such set."""
    length = min(length, len(sizes))
    found = [*AllCliques(all=length, max_cells=most).places(BinLevels(sizes=tuple(sizes)))]
    lengths = range(2, length + 1)
    every = [c for k in lengths for c in itertools.combinations(range(len(sizes)), k)]
    few = [set(c) for c in every if cells(c, sizes) <= most or len(c) == 2 < length]
    assert len(found) == len(set(found))
    assert {frozenset(c) for c in found} == {
        frozenset(c) for c in few if not any(c < other for other in few)
    }
    assert all(list(places) == sorted(places) for places in found)
    assert [*AllCliques(all=length).places(BinLevels(sizes=tuple(sizes)))] == [
        *all_cliques(sizes, length)
    ]


def test_all_cliques_within_a_cell_limit() -> None:
    assert all_cliques(SIZES, 2) == ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    assert all_cliques(SIZES, 3, 42) == ((0, 1, 2), (0, 1, 3))
    assert [cells(c, SIZES) for c in all_cliques(SIZES, 3)] == [30, 42, 70, 105]
    with pytest.raises(InputError, match=r"^length \(5\) must"):
        all_cliques(SIZES, 5)


@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=8), st.integers(0, 2**32 - 1))
def test_no_other_split_has_less_expected_error(cell_counts: list[int], seed: int) -> None:
    """sum c_i / sqrt(share_i) is convex in the shares: no random other split, and not the equal one, does better."""
    cliques = [(a,) for a in range(len(cell_counts))]
    shares = budget_shares(cliques, cell_counts, "cells")
    assert math.isclose(shares.sum(), 1)

    def error(split: np.ndarray) -> float:
        return float((np.array(cell_counts) / np.sqrt(split)).sum())

    others = np.random.default_rng(seed).dirichlet(np.ones(len(cell_counts)), 20)
    for other in [*others, budget_shares(cliques, cell_counts, "equal")]:
        assert error(shares) <= error(np.maximum(other, 1e-300)) * (1 + 1e-12)


def test_an_empty_selection_is_measured_as_nothing() -> None:
    """Independent columns may leave nothing to select: no error after the draws that selected it."""
    assert select_marginals([6, 10], np.array([0.0, -5.0]), 1.0) == ()
    assert len(budget_shares([], SIZES, "cells")) == 0
    assert list(measure_marginals(RoundedGaussian(ONE), [], [], [], fresh_bits())) == []


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.floats(-50, 2000)), min_size=1, max_size=7),
    st.floats(0.001, 10),
    st.sampled_from([1.0, 3.0]),
    st.sampled_from(["rounded-gaussian", "discrete-laplace"]),
)
def test_densemarg_follows_the_paper_step_by_step(
    pairs: list[tuple[int, float]], budget: float, unit: float, kind: Any
) -> None:
    """The greedy choice by the printed sum, every allocation computed anew, without the closed form; with either noise."""
    sizes = np.array([c for c, _ in pairs], float)
    left_out = np.maximum([s for _, s in pairs], 0)

    def error(chosen: set[int]) -> float:
        inside = sorted(chosen)
        power = 2 / 3 if kind == "rounded-gaussian" else 1 / 2
        share = (
            budget * sizes[inside] ** power / (sizes[inside] ** power).sum()
            if inside
            else np.ones(0)
        )
        scale = np.sqrt(np.pi * share / 2) if kind == "rounded-gaussian" else share
        noise = float((sizes[inside] * unit / scale).sum())
        return noise + float(sum(left_out[i] for i in range(len(pairs)) if i not in chosen))

    chosen: set[int] = set()
    while len(chosen) < len(pairs):
        best = min(set(range(len(pairs))) - chosen, key=lambda i: error({*chosen, i}))
        if error({*chosen, best}) >= error(chosen) - 1e-9:
            break
        chosen.add(best)
    noise = count_noise(kind)(Stability(records=int(unit), neighbors="add-remove"))
    parameter = budget if noise.is_pure else budget**-0.5
    asked = noise.cell_error(parameter), noise.share_power
    selected = select_marginals([c for c, _ in pairs], np.array([s for _, s in pairs]), *asked)
    assert list(selected) == sorted(selected)
    assert abs(error(set(selected)) - error(chosen)) <= 1e-6 * (1 + error(chosen))
