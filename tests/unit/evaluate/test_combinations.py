"""Combinations kept, lost and invented: published counts, a worked example, and what SDS's bins hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.evaluate.agreement import (
    bucket_means,
    bucket_sums,
    combination_sums,
    count_buckets,
    length_metrics,
)
from marginweave.evaluate.cells import Cells, Records
from marginweave.evaluate.metrics import evaluate_internal, evaluate_release
from marginweave.evaluate.tallies import Numbering
from tests.support.known import known
from tests.support.noisy_counts import aggregates_of, domain_of

# Synthetic Data Showcase, documentation of its DP counts, 2.1: five records of three columns and all their combinations.
ROWS = [(0, 0, 0), (0, 1, 0), (1, 2, 1), (1, 1, 0), (0, 1, 2)]
PUBLISHED = {
    ((0, 0),): 3, ((0, 1),): 2, ((1, 0),): 1, ((1, 1),): 3, ((2, 0),): 3, ((2, 1),): 1,
    ((0, 0), (1, 0)): 1, ((0, 0), (1, 1)): 2, ((0, 0), (2, 0)): 2, ((0, 1), (1, 1)): 1,
    ((0, 1), (2, 0)): 1, ((0, 1), (2, 1)): 1, ((1, 0), (2, 0)): 1, ((1, 1), (2, 0)): 2,
    ((0, 0), (1, 0), (2, 0)): 1, ((0, 0), (1, 1), (2, 0)): 1, ((0, 1), (1, 1), (2, 0)): 1,
}  # fmt: skip


def cells_of(reference: list[float], synthetic: list[float], length: int = 2) -> Cells:
    return Cells(
        numbering=Numbering(
            attributes=tuple(range(length)), radices=(len(reference) + 1,) * length
        ),
        keys=np.arange(len(reference)),
        reference=np.array(reference, float),
        synthetic=np.array(synthetic, float),
        complete=np.ones(len(reference), bool),
        one_cell_per_record=True,
    )


def test_published_counts_are_the_reference() -> None:
    """17 combinations, as documented; the records against them are perfect, whichever side counts."""
    table, sizes = np.array(ROWS).T, (2, 2, 2)
    released = evaluate_release(
        Records([table], domain_of(sizes)), aggregates_of(PUBLISHED, record_count=5, sizes=sizes)
    )
    internal = evaluate_internal(table, table, domain_of(sizes))
    for evaluation in (released, internal):
        assert [metrics.combinations for metrics in evaluation.lengths] == [6, 8, 3]
        for m in evaluation.lengths:
            assert (m.preservation, m.sds_preservation, m.shown_preservation) == (1, 1, 1)
            assert (
                m.suppressed,
                m.fabricated,
                m.sds_fabricated,
                m.mean_error,
                m.sds_mean_error,
            ) == (0,) * 5
            assert (m.proportional_error, m.sds_proportional_error, m.weighted_error, m.tvd) == (
                0,
            ) * 4
        assert evaluation.expansion == 0
        assert evaluation.by_count_means.sds_combination_loss == 0


def test_a_worked_example() -> None:
    """S = 20, 10, 4, 6, 0, 0 and Y = 10, 15, 0, 6, 3, 1: what SDS prints is kinder than what counts everything."""
    sums = [
        combination_sums(cells_of([20, 10, 4], [10, 15, 0])),
        combination_sums(cells_of([6, 0, 0], [6, 3, 1])),
    ]
    metrics = length_metrics(2, sums, [0.5, 0.25], [0.25, 0.5])
    assert metrics.combinations == 4
    assert metrics.preservation == pytest.approx((0.5 + 1 + 0 + 1) / 4)
    assert metrics.sds_preservation == pytest.approx((0.5 + 1 + 0 + 1 + 0 + 0) / 6)
    assert metrics.shown_preservation == pytest.approx((0.5 + 1 + 1 + 0 + 0) / 5)
    assert metrics.suppressed == pytest.approx(100 / 4)
    assert (metrics.fabricated, metrics.sds_fabricated) == (
        pytest.approx(200 / 5),
        pytest.approx(200 / 4),
    )
    assert metrics.mean_error == pytest.approx((10 + 5 + 4 + 0 + 3 + 1) / 6)
    assert metrics.sds_mean_error == pytest.approx((10 + 5 + 0) / 3)
    assert metrics.proportional_error == pytest.approx((0.5 + 0.5 + 1 + 0) / 4)
    assert metrics.sds_proportional_error == pytest.approx((0.5 + 0.5 + 1 + 0 + 1 + 1) / 6)
    assert metrics.shown_proportional_error == pytest.approx((0.5 + 0.5 + 0 + 1 + 1) / 5)
    assert metrics.weighted_error == pytest.approx(19 / 40)
    assert (metrics.frequent_error, metrics.frequent_suppressed) == (pytest.approx(0.5), 0)
    assert (metrics.tvd, metrics.tvd_missing, metrics.l1_missing) == (0.375, 0.375, 0.75)


def test_bins_of_the_synthetic_count() -> None:
    """(0, 10], (10, 20], (20, 40], …: the suppressed lie in the first, an empty bin counts 0 in the plain means."""
    pair = cells_of([20, 0, 100, 5, 90], [10, 11, 81, 0, 80])
    buckets = count_buckets([bucket_sums(pair), bucket_sums(cells_of([20], [20], length=1))])
    assert [b.at_most for b in buckets] == [10, 20, 40, 80, 160]
    assert [b.combinations for b in buckets] == [2, 2, 0, 1, 1]
    assert [b.mean_count for b in buckets] == [5, 15.5, None, 80, 81]
    assert [b.mean_length for b in buckets] == [2, 1.5, None, 2, 2]
    assert [b.preservation for b in buckets] == pytest.approx([0.25, 0.5, None, 80 / 90, 0.81])
    assert [b.proportional_error for b in buckets] == pytest.approx([0.75, 0.5, None, 1 / 9, 0.19])
    means = bucket_means(buckets)
    assert means.sds_combination_loss == pytest.approx((0.75 + 0.5 + 0 + 1 / 9 + 0.19) / 5)
    assert means.sds_proportional_error == pytest.approx((0.75 + 0.5 + 0 + 1 / 9 + 0.19) / 5)


COUNTS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).filter(any), min_size=1, max_size=30
)


@given(COUNTS)
def test_bins_and_lengths_hold_the_same_combinations(counts: list[tuple[int, int]]) -> None:
    """The bins together are {S > 0 or Y > 0}; their weighted means are SDS's means by length."""
    cells = cells_of([s for s, _ in counts], [y for _, y in counts])
    metrics = length_metrics(2, [combination_sums(cells)], [0.0], [0.0])
    buckets = [b for b in count_buckets([bucket_sums(cells)]) if b.combinations]
    assert sum(b.combinations for b in buckets) == len(counts)
    kept = sum(b.combinations * known(b.preservation) for b in buckets) / len(counts)
    assert kept == pytest.approx(metrics.sds_preservation)
    gap = sum(b.combinations * known(b.proportional_error) for b in buckets) / len(counts)
    assert gap == pytest.approx(metrics.sds_proportional_error)
