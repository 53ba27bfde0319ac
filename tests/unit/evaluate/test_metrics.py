"""Metrics against pandas counting combination by combination, and at their fixed points."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.domain.combinations import Level
from marginweave.estimate.normalize import normalize
from marginweave.evaluate.cells import Records
from marginweave.evaluate.metrics import evaluate_internal, evaluate_release
from tests.support.noisy_counts import SIZES, aggregates_of, domain_of, noisy_counts, tally

TABLE = st.lists(st.tuples(*(st.integers(0, size) for size in SIZES)), min_size=1, max_size=25)


def brute_force(reference, records, chosen):
    """Both sides' counts of one column set: complete combinations, and the distance with missing as a value."""
    frames = [
        pd.DataFrame(t, columns=list("abcd"))[["abcd"[j] for j in chosen]]
        for t in (reference, records)
    ]
    left, right = (frame.value_counts() for frame in frames)
    joined = pd.concat([left, right], axis=1, keys=["s", "y"]).fillna(0)
    joined["y"] *= len(reference) / len(records)
    distance = (joined.s - joined.y).abs().sum() / 2 / len(reference)
    complete = [all(v < SIZES[j] for v, j in zip(key, chosen, strict=True)) for key in joined.index]
    return joined[complete], distance


@settings(max_examples=12, deadline=None)
@given(TABLE, TABLE)
def test_internal_metrics_equal_brute_force(reference, records):
    """Every metric of every length is what counting in pandas gives."""
    evaluation = evaluate_internal(np.array(reference).T, np.array(records).T, domain_of())
    assert (evaluation.reference_records, evaluation.records) == (len(reference), len(records))
    for metrics in evaluation.lengths:
        sides = [brute_force(reference, records, c) for c in combinations(range(4), metrics.length)]
        cells = pd.concat([side for side, _ in sides])
        real, made = cells[cells.s > 0], cells[cells.y > 0]
        assert metrics.combinations == len(real)
        assert metrics.tvd_missing == pytest.approx(np.mean([distance for _, distance in sides]))
        assert metrics.mean_error == (
            pytest.approx((cells.s - cells.y).abs().mean()) if len(cells) else None
        )
        if len(real):
            assert metrics.suppressed == pytest.approx(100 * (real.y == 0).mean())
            assert metrics.preservation == pytest.approx((real.y / real.s).clip(upper=1).mean())
        assert metrics.fabricated == (
            pytest.approx(100 * (made.s == 0).mean()) if len(made) else None
        )
        per_set = []
        for side, _ in sides:
            known = side[side.s > 0]
            if known.empty:
                continue
            p, q = known.s / len(reference), known.y / len(reference)
            per_set.append(((p - q).abs().sum() + abs((1 - p.sum()) - (1 - q.sum()))) / 2)
        assert metrics.tvd == (pytest.approx(np.mean(per_set)) if per_set else None)


@settings(max_examples=12, deadline=None)
@given(TABLE, TABLE)
def test_exact_counts_as_a_release_give_the_internal_metrics(reference, records):
    """Released counts that are exact say the same as the table they come from."""
    release = evaluate_release(
        Records([np.array(records).T], domain_of()),
        aggregates_of(tally(reference, 3), record_count=len(reference)),
    )
    internal = evaluate_internal(np.array(reference).T, np.array(records).T, domain_of())
    for ours, exact in zip(release.lengths, internal.lengths, strict=True):
        for name in (
            "combinations",
            "preservation",
            "suppressed",
            "fabricated",
            "mean_error",
            "tvd",
        ):
            assert getattr(ours, name) == pytest.approx(getattr(exact, name))


@settings(max_examples=12, deadline=None)
@given(noisy_counts(low=1), TABLE)
def test_ranges(counts, records):
    """Distances lie in [0, 1] and percentages in [0, 100], however much noise the release has."""
    aggregates = normalize(aggregates_of(counts, record_count=3))
    for metrics in evaluate_release(
        Records([np.array(records).T], aggregates.domain), aggregates
    ).lengths:
        assert metrics.tvd is None or 0 <= metrics.tvd <= 1 + 1e-12
        assert all(0 <= p <= 100 for p in (metrics.suppressed, metrics.fabricated) if p is not None)


def test_a_copy_is_perfect():
    """A table compared with itself: nothing lost, nothing invented, no distance."""
    table = np.random.default_rng(2).integers(0, np.array(SIZES) + 1, (300, 4))
    for metrics in evaluate_internal(table.T, table.T, domain_of()).lengths:
        assert (metrics.preservation, metrics.suppressed, metrics.fabricated) == (1, 0, 0)
        assert (metrics.mean_error, metrics.tvd, metrics.tvd_missing) == (0, 0, 0)


def test_columns_of_which_nothing_was_released_are_at_no_distance():
    """Records of them are not perfect: nothing is known. The mean is over the others, and none is told where there are none."""
    records = Records([np.zeros((4, 10), int)], domain_of())
    half, nothing = ({((0, 0),): 5}, 0.5), ({}, None)
    for counts, distance in (half, nothing):
        evaluation = evaluate_release(records, aggregates_of(counts, record_count=10, length=2))
        assert [metrics.tvd for metrics in evaluation.lengths] == [distance, None]
        assert [m.attributes for m in evaluation.marginals] == (
            [] if distance is None else [("c0",)]
        )


@pytest.mark.parametrize("times", [2, 4])
def test_more_records_of_the_same_shares_are_no_error(times):
    """Records of a table that is repeated are a copy: each counts as a part of one, in counts, bins and SDS's numbers."""
    table = np.random.default_rng(4).integers(0, np.array(SIZES) + 1, (300, 4))
    aggregates = aggregates_of(tally(table, 3), record_count=300)
    once, more = (
        evaluate_release(Records([np.tile(table.T, number)], domain_of()), aggregates)
        for number in (1, times)
    )
    assert (more.records, more.reference_records) == (300 * times, 300)
    assert more.lengths == once.lengths
    assert (more.by_count, more.by_count_means) == (once.by_count, once.by_count_means)
    assert [row.mean_error for row in more.lengths] == [0, 0, 0]
    assert once.weight_sentence is None
    assert f"each of them is counted as {1 / times:.3g}." in str(more.weight_sentence)


def test_large_domains_are_ranked_first():
    """Counting does not depend on the number of possible cells: 3000 x 4000 x 5000 gives what small codes give."""
    rng = np.random.default_rng(3)
    small = [rng.integers(0, 3, (200, 3)) for _ in range(2)]
    spread = np.array([997, 1999, 2001])
    wide = evaluate_internal(
        (small[0] * spread).T, (small[1] * spread).T, domain_of((3000, 4000, 5000))
    )
    narrow = evaluate_internal(small[0].T, small[1].T, domain_of((3, 3, 3)))
    for large, little in zip(wide.lengths, narrow.lengths, strict=True):
        assert large.model_dump() == pytest.approx(little.model_dump())


def test_other_columns_are_refused():
    """Records of another width are an error."""
    with pytest.raises(InputError, match="4 attributes"):
        evaluate_internal(np.zeros((4, 2), int), np.zeros((3, 2), int), domain_of())


def test_a_length_of_which_nothing_was_counted_is_left_out():
    """Marginals of all four columns tell of pairs, not of triples: there are metrics of lengths 1, 2 and 4."""
    counts = aggregates_of(tally([(0, 1, 2, 3), (1, 2, 4, 6)] * 9, 4), record_count=18, length=4)
    sets = [c for k in (1, 2, 4) for c in combinations(range(4), k)]
    levels = tuple(Level.empty(3) if level.length == 3 else level for level in counts.levels)
    told = replace(counts, levels=levels, measured=dict.fromkeys(sets, 1.0))
    records = Records([np.array([(0, 1, 2, 3), (1, 2, 4, 6)]).T], domain_of())
    lengths = evaluate_release(records, told).lengths
    assert [length.length for length in lengths] == [1, 2, 4]
    assert [length.tvd for length in lengths] == [0, 0, 0]
