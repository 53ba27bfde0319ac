"""Rounds of selection and measurement: which candidates there are, how shares are taken, what repeated measurements say."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.configuration.attributes import Attribute
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.marginals import AdaptiveCliques
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Mask
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.model import pack_mixture, unpack_mixture
from marginweave.measurements.round_candidates import Candidates
from marginweave.measurements.rounds import (
    Round,
    candidate_sets,
    next_pace,
    next_round,
    open_places,
    shares_of,
    shares_of_ordinary_columns,
    weight,
)
from marginweave.observations.means import expected_noise, merge_observations
from marginweave.observations.payloads import pack_pick, pack_tables, unpack_pick, unpack_tables
from marginweave.observations.tables import Observation

SIZES = (2, 3, 5, 7)


def test_candidates_are_all_sets_that_are_small_enough() -> None:
    """2 to k attributes, at most `max_cells` cells, none with an attribute of a single value; shorter ones first."""
    every = [c for k in (2, 3) for c in combinations(range(4), k)]
    assert candidate_sets(AdaptiveCliques(), SIZES) == tuple(every)
    small = candidate_sets(AdaptiveCliques(max_cells=30), SIZES)
    assert small == ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (0, 1, 2))
    assert candidate_sets(AdaptiveCliques(adaptive=4), SIZES) == (*every, (0, 1, 2, 3))
    assert candidate_sets(AdaptiveCliques(adaptive=2), (2, 1, 5)) == ((0, 2),)
    assert candidate_sets(AdaptiveCliques(), (4,)) == ()


def test_coarser_candidates_have_fewer_and_fewer_cells() -> None:
    """Of attributes with 7, 3 and 16 bins: a step joins bins of the widest; a level without fewer codes is no candidate."""
    bins = [7, 3, 16]
    attributes = [
        Attribute(name=f"a{i}", column=f"a{i}", labels=(), bins=number)
        for i, number in enumerate(bins)
    ]
    levels = BinLevels.make(bins, attributes)  # 3: 7 as 4; 4 and 5: 16 as 8 and 4
    settings = AdaptiveCliques(adaptive=2, coarsen=True)
    sets = candidate_sets(settings, bins)
    whole = Candidates(sets=sets, levels=levels, codes=levels.codes([*map(np.arange, bins)]))
    assert whole.of_set == {
        (0, 1): ((0, 1), (1, 3)),
        (0, 2): ((0, 2), (0, 4), (0, 5), (3, 5)),
        (1, 2): ((1, 2), (1, 4), (1, 5)),
    }
    assert whole.all == tuple(chain.from_iterable(whole.of_set.values()))
    assert whole.columns == tuple(map(levels.columns, whole.all))
    assert len(whole.all) == settings.candidates(levels)
    # noise of 2 records a cell has an L1 norm of 34, 179 and 77 records on these sets of 21, 112 and 48 cells
    allowed = whole.worth_counting(2.0, 100.0).tolist()
    assert [c for c, may in zip(whole.all, allowed, strict=True) if may] == [
        (0, 1),
        *whole.of_set[0, 2],
        (1, 2),
    ]
    table = np.arange(112).reshape(7, 16)
    for counted, joined in zip(
        whole.tables((0, 2), table), [(1, 1), (1, 2), (1, 4), (2, 4)], strict=True
    ):
        rows = np.add.reduceat(table, range(0, 7, joined[0]), axis=0)
        assert (counted == np.add.reduceat(rows, range(0, 16, joined[1]), axis=1)).all()
    # rare bins of the first attribute were merged: what it had in four codes is in three, and in three of its level
    merged = replace(levels, sizes=(3, 3, 16, 3, 8, 4))
    few = Candidates(sets=((0, 1),), levels=merged, codes=())
    assert few.all == ((0, 1),)


@pytest.mark.parametrize(
    ("ordinary", "sets", "shares"),
    [(10, (22,), 13), (10, (), 16), (2, (5,), 5), (2, (5, 3), 2), (1, (5,), 0), (0, (4, 4), 0)],
)
def test_the_first_shares_are_for_ordinary_columns(
    ordinary: int, sets: tuple[int, ...], shares: int
) -> None:
    """Of 16, as many as pairs of two ordinary columns are of all pairs of columns: 45 of 55, 1 of 3; a set is one column."""
    attributes = [
        Attribute(name=f"c{j}", column=f"c{j}", labels=("x", "y")) for j in range(ordinary)
    ]
    for number, values in enumerate(sets):
        attributes += [
            Attribute(name=f"s{number}={v}", column=f"s{number}", labels=(f"{v}",), of_set=True)
            for v in range(values)
        ]
    assert shares_of_ordinary_columns(attributes, 16) == shares


@given(st.sets(st.sampled_from([*combinations(range(4), 2)])))
def test_a_value_of_a_set_waits_for_ordinary_columns(picks: set[tuple[int, ...]]) -> None:
    """What was picked is left out; with attributes 2 and 3 of a set, one of these may be chosen only once (0, 1) is gone."""
    candidates = [*combinations(range(4), 2)]
    places = {candidates[place] for place in open_places(candidates, picks, [2, 3]).tolist()}
    remaining = {*candidates} - picks
    assert places == ({(0, 1)} if (0, 1) in remaining else remaining)
    assert {*open_places(candidates, picks, ()).tolist()} == {
        candidates.index(c) for c in remaining
    }


@pytest.mark.parametrize("longest", [2, 3, 4])
def test_the_weight_is_that_of_aim_for_all_sets(longest: int) -> None:
    """sum over sets s of 2 to k of 6 attributes of |r and s|, up to one factor for all r."""
    workload = [s for k in range(2, longest + 1) for s in combinations(range(6), k)]
    settings = AdaptiveCliques(adaptive=longest)
    ratios = {sum(len(set(r) & set(s)) for s in workload) / weight(settings, r) for r in workload}
    assert len(ratios) == 1
    assert {weight(AdaptiveCliques(weights="equal"), r) for r in workload} == {1}


@given(st.integers(1, 100), st.lists(st.booleans(), max_size=100))
def test_rounds_take_every_share_once_and_no_other(shares: int, learned: list[bool]) -> None:
    """Whatever rounds find: shares 1 … T, one after the other, never more; a round takes its pace, but for the last."""
    found: list[Round] = []
    while not found or found[-1].last < shares:
        moved = 2.0 if len(found) < len(learned) and learned[len(found)] else 0.5
        pace = next_pace(found[-1].pace, moved, 1.0) if found else 1
        found.append(next_round(found[-1] if found else None, pace, shares))
    taken = [share for one in found for share in range(one.first, one.last + 1)]
    assert taken == list(range(1, shares + 1))
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    assert all(one.shares == one.pace for one in found[:-1])
    assert all(after.pace in (before.pace, 4 * before.pace) for before, after in pairwise(found))
    assert found[-1].shares < 2 * found[-1].pace


def test_a_round_of_one_share_each_is_the_fixed_schedule() -> None:
    assert [shares_of(1, left) for left in (9, 2, 1)] == [1, 1, 1]
    assert [shares_of(4, left) for left in (12, 8, 7, 3)] == [4, 4, 7, 3]


def test_repeated_measurements_weigh_by_their_inverse_variances() -> None:
    """Deviations 2 and 4: weights 4 to 1 but for rounding; those of one set only, in order of first appearance."""
    one = Observation(attributes=(0,), counts=np.array([100, 0], np.int64), deviation=2.0)
    two = Observation(attributes=(0,), counts=np.array([0, 100], np.int64), deviation=4.0)
    other = Observation(
        attributes=(0, 1), counts=np.array([[1, 2], [3, 4]], np.int64), deviation=3.0
    )
    mean, same = merge_observations([one, other, two])
    precision = 1 / (4 + 1 / 12) + 1 / (16 + 1 / 12)
    assert mean.counts.dtype == np.int64
    assert mean.counts.tolist() == [
        round(100 / (4 + 1 / 12) / precision),
        round(100 / (16 + 1 / 12) / precision),
    ]
    assert mean.deviation == pytest.approx(precision**-0.5)
    assert same is other


def test_the_expected_noise_is_that_of_a_gaussian() -> None:
    assert expected_noise(3.0, 50) == pytest.approx(50 * 3.0 * math.sqrt(2 / math.pi))


def test_what_rounds_keep_is_read_back() -> None:
    assert unpack_pick(pack_pick((0, 2, 3), 16)) == ((0, 2, 3), 16)
    tables = {(0, 1): np.arange(6).reshape(2, 3), (1, 3): np.arange(21).reshape(3, 7)}
    for (clique, found), (name, table) in zip(
        unpack_tables(pack_tables(tables)).items(), tables.items(), strict=True
    ):
        assert clique == name
        assert np.array_equal(found, table)
    one_way = [
        Observation(attributes=(a,), counts=np.arange(1, size + 1), deviation=1.0)
        for a, size in enumerate(SIZES)
    ]
    masks = [Mask(attributes=(0, 1), allowed=np.array([[True, True, False], [True, True, True]]))]
    model = fit_mixture(
        one_way, SIZES, 30.0, masks, MixtureSynthesis(components=4, fits=1, iterations=3)
    )
    again = unpack_mixture(pack_mixture(model))
    for clique in ((0, 1), (1, 2, 3), (3,)):
        assert np.array_equal(again.marginal(clique), model.marginal(clique))
