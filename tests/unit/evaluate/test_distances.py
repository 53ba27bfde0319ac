"""Distances of marginals: their fixed points, their samples, and the part of noise."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.evaluate.agreement import noise_distance, sampled_sets
from marginweave.evaluate.cells import Records
from marginweave.evaluate.metrics import evaluate_internal, evaluate_release
from marginweave.observations.combinations import LevelNoise
from tests.support.known import known
from tests.support.noisy_counts import SIZES, aggregates_of, domain_of, tally

TABLE = st.lists(st.tuples(*(st.integers(0, size) for size in SIZES)), min_size=1, max_size=20).map(
    np.array
)


@given(TABLE, st.randoms(use_true_random=False))
def test_a_table_is_no_distance_from_its_rows_in_another_order(
    table: np.ndarray, random: object
) -> None:
    """Order of records is nothing: distance 0, score 1000, and the same bytes."""
    mixed = table[random.sample(range(len(table)), len(table))]  # pyright: ignore[reportAttributeAccessIssue]
    evaluation = evaluate_internal(table.T, mixed.T, domain_of())
    assert [(d.length, d.sets, d.of, d.tvd, d.l1) for d in evaluation.distances] == [
        (k, math.comb(4, k), math.comb(4, k), 0, 0) for k in (1, 2, 3, 4)
    ]
    assert evaluation.k_marginal_score == 1000
    assert evaluation.score == 100
    assert evaluation.association.cramers_v.mean_difference == 0
    assert evaluation.to_json() == evaluate_internal(mixed.T, table.T, domain_of()).to_json()


def test_tables_without_a_common_value_are_as_far_as_can_be() -> None:
    """Distance 1 and score 0, whatever the numbers of records."""
    one, other = np.zeros((30, 5), int), np.ones((70, 5), int)
    evaluation = evaluate_internal(one.T, other.T, domain_of((2, 3, 4, 5, 6)))
    assert [(d.length, d.tvd, d.l1) for d in evaluation.distances] == [
        (k, 1, 2) for k in (1, 2, 3, 4, 5)
    ]
    assert evaluation.k_marginal_score == 0
    assert [d.tvd for d in evaluation.marginals] == [1] * 10
    assert evaluation.expansion == pytest.approx(100 * 40 / 30)


@pytest.mark.parametrize(("moved", "score"), [(0, 100), (20, 75), (40, 50), (80, 0)])
def test_the_true_score_is_the_part_of_a_dependence_that_is_kept(moved: int, score: int) -> None:
    """Two columns of halves that are alike (D = 1/2); of 160 records `moved` have another value, e = moved / 160."""
    rows = np.repeat([[0, 0], [1, 1]], 80, axis=0)
    records = rows.copy()
    records[: moved // 2, 1] = 1
    records[80 : 80 + moved // 2, 1] = 0
    domain = domain_of((2, 2))
    evaluation = evaluate_internal(rows.T + 1, records.T + 1, domain)
    assert evaluation.distances[1].tvd == moved / 160
    assert evaluation.score == score


def test_a_dependence_that_is_not_in_the_rows_cannot_be_lost() -> None:
    """Of independent columns the scale is .05: records that are .01 away keep four fifths, rounded down."""
    rows = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 100, axis=0)
    records = rows.copy()
    records[:4, 1] = 1
    evaluation = evaluate_internal(rows.T + 1, records.T + 1, domain_of((2, 2)))
    assert evaluation.score in (79, 80)


def test_one_column_has_no_true_score() -> None:
    rows = np.zeros((9, 1), int)
    assert evaluate_internal(rows.T, rows.T, domain_of((2,))).score is None


@pytest.mark.parametrize(
    ("columns", "length", "limit", "found"), [(5, 3, 100, 10), (9, 4, 100, 100), (90, 5, 40, 40)]
)
def test_a_sample_of_sets_is_of_distinct_ones_and_always_the_same(
    columns: int, length: int, limit: int, found: int
) -> None:
    """All sets where they are few; else so many, also of 44 million that are not listed."""
    sets = sampled_sets(range(columns), length, limit)
    assert len(sets) == len(set(sets)) == found
    assert all(len(chosen) == length and list(chosen) == sorted(set(chosen)) for chosen in sets)
    assert sets == sampled_sets(range(columns), length, limit)
    if found < limit:
        assert sets == list(combinations(range(columns), length))


def test_noise_explains_the_distance_of_noisy_counts() -> None:
    """Exact records against their counts with normal noise of sd 15 on every cell: within a tenth of what is expected.

    The distance without the rest cell is a mean of some 180 half-normals; it is seeded.
    """
    rng = np.random.default_rng(11)
    table = rng.integers(0, np.array(SIZES), (40_000, 4))
    noise = tuple(
        LevelNoise(
            length=k,
            contribution_bound=1,
            deviation=15.0,
            threshold=1,
            private_threshold=0,
            candidates=None,
        )
        for k in (1, 2, 3)
    )
    noisy = {t: n + round(rng.normal(0, 15)) for t, n in tally(table, 3).items()}
    aggregates = replace(aggregates_of(noisy, record_count=40_000), noise=noise)
    marginals = evaluate_release(Records([table.T], aggregates.domain), aggregates).marginals
    assert len(marginals) == 10
    assert [m.tvd for m in marginals] == sorted((m.tvd for m in marginals), reverse=True)
    triples = [m for m in marginals if len(m.attributes) == 3]
    assert len(triples) == 4
    expected = {
        m.attributes: 0.5 * math.prod(SIZES[int(a[1])] for a in m.attributes) for m in triples
    }
    for m in triples:
        assert m.noise == pytest.approx(
            expected[m.attributes] * 15 * math.sqrt(2 / math.pi) / 40_000
        )
    assert sum(m.tvd for m in triples) == pytest.approx(
        sum(known(m.noise) for m in triples), rel=0.1
    )


def test_noise_of_measured_marginals_is_their_own() -> None:
    """Each measured marginal has its deviation; no distance is above 1; without noise there is none."""
    table = np.random.default_rng(1).integers(0, np.array(SIZES), (50, 4))
    counts = {
        t: n for t, n in tally(table, 2).items() if len(t) == 1 or {t[0][0], t[1][0]} == {1, 3}
    }
    deviations = {(0,): 1.0, (1,): 2.0, (2,): 3.0, (3,): 4.0, (1, 3): 5.0}
    aggregates = replace(aggregates_of(counts, record_count=50, length=2), measured=deviations)
    found = {
        m.attributes: m
        for m in evaluate_release(Records([table.T], aggregates.domain), aggregates).marginals
    }
    assert set(found) == {("c0",), ("c1",), ("c2",), ("c3",), ("c1", "c3")}
    cells = sum(len(t) == 2 for t in counts)
    assert found["c1", "c3"].noise == pytest.approx(noise_distance(cells, 5.0, 50))
    assert noise_distance(10**6, 5.0, 50) == 1
    records = Records([table.T], aggregates.domain)
    assert evaluate_release(records, replace(aggregates, measured=None)).marginals[0].noise is None
