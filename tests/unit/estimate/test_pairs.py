"""Counts of every pair of columns from marginals, measured or implied by independence, and records made from them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.configuration.attributes import forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import SynthesisSettings
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import domain_sizes
from marginweave.estimate.marginals import all_pairs, marginal_counts, normalize_marginals
from marginweave.observations.tables import Marginals, Observation
from tests.support.configurations import configuration
from tests.support.noisy_counts import counts_of, parts
from tests.support.synthesized import synthesize_codes

SEEDED: dict[str, Any] = {
    "aggregate__method": "marginals",
    "synthesize__method": "aggregate-seeded",
}
SET = {"type": "set", "values": ["a", "b", "c"], "max_values": 1}
Cliques = tuple[tuple[int, ...], ...]
PLACES = tuple(range(4))
CLIQUES = st.sampled_from(
    [
        (),
        ((0, 1),),
        ((0, 1), (1, 2, 3)),
        ((0, 1, 2, 3),),
        tuple(itertools.combinations(PLACES, 2)),
        tuple(itertools.combinations(PLACES, 3)),
        tuple(itertools.combinations(PLACES, 3))[1:],
    ]
)


def measured(
    config: Configuration, cliques: Cliques, seed: int, sd: float = 3.0, rows: int = 600
) -> Marginals:
    """Return normalized marginals of random rows in which the columns depend on each other."""
    rng = np.random.default_rng(seed)
    labels = tuple(attribute.labels for attribute in config.attributes)
    sizes = domain_sizes(config.attributes, labels)
    base = rng.geometric(0.4, rows) - 1
    codes = [np.minimum(base + rng.integers(0, 2, rows), size - 1) for size in sizes]

    def drawn(clique: tuple[int, ...]) -> Observation:
        counts = np.zeros([sizes[a] for a in clique], np.int64)
        np.add.at(counts, tuple(codes[a] for a in clique), 1)
        noise = np.rint(rng.normal(0, sd, counts.shape)).astype(np.int64)
        return Observation(attributes=clique, counts=counts + noise, deviation=sd)

    one_way = tuple(drawn((a,)) for a in range(len(sizes)))
    larger = tuple(drawn(clique) for clique in cliques)
    domain = Domain(names=tuple(a.name for a in config.attributes), labels=labels)
    return normalize_marginals(Marginals(domain=domain, one_way=one_way, larger=larger), config)


@settings(max_examples=20, deadline=None)
@given(CLIQUES, st.integers(0, 10**6), st.sampled_from([0, 40, 600]))
def test_every_pair_is_there(cliques: Cliques, seed: int, rows: int) -> None:
    """Check counts of two values: as measured, or n_a n_b / n rounded but at least 1; and that all are in order, closed."""
    config = configuration(**SEEDED, aggregate__compress="none")
    normalized = measured(config, cliques, seed, rows=rows)
    pairs = all_pairs(normalized, config)
    marginal = marginal_counts(normalized, config)
    counts = counts_of(pairs)
    released = counts_of(marginal)
    assert marginal.measured is not None
    for first, second in itertools.combinations(PLACES, 2):
        values = itertools.product(
            range(pairs.domain.sizes[first]), range(pairs.domain.sizes[second])
        )
        for a, b in values:
            pair = ((first, a), (second, b))
            if (first, second) in marginal.measured:
                assert counts.get(pair) == released.get(pair)
                continue
            first_count = counts.get(pair[:1], 0)
            second_count = counts.get(pair[1:], 0)
            expected = 0.0
            if first_count and second_count:
                expected = max(1, first_count * second_count / pairs.record_count)
            assert abs(counts.get(pair, 0) - expected) <= 0.5
    longest = {((0, 1, 2, 3),): 4, tuple(itertools.combinations(PLACES, 3)): 3}.get(cliques, 2)
    assert pairs.reporting_length == longest
    for full_table in normalized.consistent:
        if len(full_table.attributes) == 4:
            for combination, count in counts.items():
                codes = dict(combination)
                cells = tuple(codes.get(a, slice(None)) for a in PLACES)
                assert abs(count - full_table.counts[cells].sum()) <= 0.5 + 1e-6
    for combination, count in counts.items():
        assert 0 < count <= min((counts[part] for part in parts(combination)), default=count)
    for level in pairs.levels:
        ordered = np.concatenate([level.columns, level.values], axis=1)
        assert np.array_equal(np.lexsort(ordered.T[::-1]), np.arange(len(level)))


def test_one_column_has_no_pair() -> None:
    only = {"sex": {"type": "category", "values": ["f", "m"]}}
    config = configuration(columns=only, **SEEDED)
    pairs = all_pairs(measured(config, (), 1), config)
    assert [level.length for level in pairs.levels] == [1]


@pytest.mark.parametrize(
    "cliques", [(), ((0, 1),), ((0, 1), (1, 2, 3)), tuple(itertools.combinations(PLACES, 3))]
)
def test_records_follow_the_pairs(cliques: Cliques) -> None:
    """Check that there are as many complete records as counted, with measured pairs closer than independent columns are."""
    config = configuration(**SEEDED)
    normalized = measured(config, cliques, 3, rows=5000)
    codes = np.stack(synthesize_codes(normalized, config, config.synthesize))
    assert codes.shape[1] == round(normalized.consistent[0].total)
    for table in normalized.consistent:
        expected = table.counts / table.counts.sum()
        shape = table.counts.shape
        shares = np.zeros(shape)
        np.add.at(shares, tuple(codes[a] for a in table.attributes), 1 / codes.shape[1])
        independent = np.array(1.0)
        for axis in range(len(shape)):
            summed_axes = tuple(i for i in range(len(shape)) if i != axis)
            independent = np.multiply.outer(independent, expected.sum(axis=summed_axes))
        distance = np.abs(shares - expected).sum() / 2
        if len(shape) == 1:
            assert distance < 0.05
        else:
            assert distance < 0.6 * np.abs(independent - expected).sum() / 2


def test_rules_hold_in_records_of_pairs() -> None:
    """Check structural zeros, a public number of records, and at most one value of a set."""
    forbidden = {"structure": {"forbidden": [{"sex": "f", "grade": [5, 6, 7]}]}}
    config = configuration(**SEEDED, columns__region=SET, synthesize__records=777, **forbidden)
    assert isinstance(config.synthesize, SynthesisSettings)
    normalized = measured(config, ((0, 1), (4, 5)), 5, rows=3000)
    codes = synthesize_codes(normalized, config, config.synthesize)
    assert {len(code) for code in codes} == {777}
    for box in forbidden_codes(config.forbidden, normalized.domain.labels):
        is_inside = [np.isin(codes[j], values) for j, values in box]
        assert not np.logical_and.reduce(is_inside).any()
    signs = [codes[j] for j, attribute in enumerate(config.attributes) if attribute.of_set]
    assert len(signs) == 3
    assert np.sum([sign == 0 for sign in signs], axis=0).max() == 1
    assert all((sign == 0).any() for sign in signs)
