"""Laws of synthesis in shards: counts and records are split exactly, and nothing depends on the number of threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.configuration.synthesis import SynthesisSettings
from marginweave.estimate.normalize import normalize
from marginweave.records.shards import ShardPlan, stream
from tests.support.noisy_counts import SIZES, aggregates_of, counts_of, noisy_counts, tally
from tests.support.synthesized import every_record, seeded, synthesize_records

STRICT = {"sample_missing": False, "relax": False}
COUNTS = st.lists(st.integers(0, 10**12), min_size=1, max_size=20).map(
    lambda counts: np.array(counts, np.int64)
)


@given(COUNTS, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 5000))
def test_every_count_is_split_exactly_and_in_order(counts, counted, records, most):
    """The parts add up, differ by one at most, and grow with the count; so do the numbers of records."""
    plan = ShardPlan.of(counted % (50 * most), records % (50 * most), most=most)
    assert plan.shards % plan.parts == 0
    parts = np.array([plan.counts(np.sort(counts), shard) for shard in range(plan.shards)])
    assert (parts.sum(axis=0) == np.sort(counts) * (plan.shards // plan.parts)).all()
    assert np.ptp(parts, axis=0).max() <= 1
    assert (np.diff(parts, axis=1) >= 0).all()
    made = [plan.records(records % (50 * most), shard) for shard in range(plan.shards)]
    assert sum(made) == records % (50 * most)
    assert max(made) <= most


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(1, 10**6))
def test_there_are_no_more_parts_than_needed(counted, records, most):
    """One shard where its records fit; as many parts as the fewer of both numbers asks for."""
    plan = ShardPlan.of(counted, records, most=most)
    assert plan.parts == max(1, min(-(-counted // most), -(-records // most)))
    assert (plan.shards == 1) == (records <= most)
    assert ShardPlan.of(counted, most=most) == ShardPlan.of(counted, counted, most=most)


def test_the_first_stream_is_the_seed_and_all_differ():
    """A table of one shard is what it was before there were shards."""
    assert stream([7, 1], 0).random() == np.random.default_rng([7, 1]).random()
    assert (
        len({stream(seed, shard).random() for seed in (7, [7, 1], [7, 2]) for shard in range(50)})
        == 150
    )


@settings(max_examples=20, deadline=None)
@given(noisy_counts(low=1, size=15), st.integers(1, 9), st.integers(0, 2))
def test_shards_used_up_use_every_value_as_often_as_released(counts, most, seed):
    """With `exhaust` the counts of length 1 come out exactly over all shards, and no combination is fabricated."""
    record_count = max([n for t, n in counts.items() if len(t) == 1], default=1)
    aggregates = normalize(aggregates_of(counts, record_count=record_count))
    options = SynthesisSettings.model_validate({**STRICT, "records": "exhaust", "seed": seed})
    maker = seeded(aggregates, options, most=most)
    made = every_record(maker)
    released = counts_of(aggregates)
    assert dict(tally(made, 1)) == {t: n for t, n in released.items() if len(t) == 1}
    assert set(tally(made, 3)) <= set(released)
    for shard in range(maker.plan.shards):
        parts = maker.plan.counts(maker.combinations.counts, shard)
        lattice = maker.combinations
        for node, (first, last) in enumerate(pairwise(lattice.starts[:: lattice.width])):
            assert node == 0 or (parts[lattice.children[first:last]] <= parts[node]).all()


@settings(max_examples=8, deadline=None)
@given(noisy_counts(low=1, size=15), st.integers(1, 40), st.integers(1, 12))
def test_records_are_as_many_as_wanted_and_the_same_in_any_order(counts, records, most):
    """The total is exact, no record is forbidden, and a shard depends on no other: threads cannot matter."""
    aggregates = normalize(aggregates_of(counts, record_count=25))
    never = (((0, 0), (1, 1)), ((2, 1), (3, 0)))
    options = SynthesisSettings(records=records, seed=3)
    maker = seeded(aggregates, options, forbidden=never, most=most)
    backwards = [maker.records(shard) for shard in reversed(range(maker.plan.shards))][::-1]
    made = every_record(maker)
    assert made.shape == (records, len(SIZES))
    assert (made == np.concatenate(backwards)).all()
    assert not any((made[:, a] == v).__and__(made[:, b] == w).any() for (a, v), (b, w) in never)
    if records <= most:
        assert (made == synthesize_records(aggregates, options, forbidden=never)).all()
    kept = every_record(
        seeded(aggregates, options.model_copy(update={"max_records": 7}), most=most)
    )
    assert len(kept) == min(7, records)


def test_a_split_loses_little():
    """6000 records in 24 shards keep pairs about as well as in one: 0.02 of total variation, of some 0.04, at most."""
    rng = np.random.default_rng(2)
    first = rng.integers(0, SIZES[0], 6000)
    table = np.stack(
        [first, *((first + rng.geometric(0.6, 6000)) % size for size in SIZES[1:])], axis=1
    )
    aggregates = aggregates_of(tally(table, 2), record_count=6000, length=2)
    distances = []
    for most in (6000, 250):
        made = every_record(seeded(aggregates, SynthesisSettings(), most=most))
        assert len(made) == 6000
        seen, truth = tally(made, 2), tally(table, 2)
        distances.append(
            sum(abs(seen[t] - truth[t]) for t in {*seen, *truth} if len(t) == 2) / 2 / 6 / 6000
        )
    assert distances[1] < distances[0] + 0.02
