"""Every pair of columns from marginals: measured ones as they are, others as independence has them; and records of them."""

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

SEEDED: dict[str, Any] = {"aggregate__method": "marginals", "synthesize__method": "aggregate-seeded"}
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


def measured(config: Configuration, cliques: Cliques, seed: int, sd: float = 3.0, rows: int = 600) -> Marginals:
    """Normalized marginals of random rows in which the columns lean on each other."""
    rng = np.random.default_rng(seed)
    labels = tuple(attribute.labels for attribute in config.attributes)
    sizes = domain_sizes(config.attributes, labels)
    base = rng.geometric(0.4, rows) - 1
    codes = [np.minimum(base + rng.integers(0, 2, rows), size - 1) for size in sizes]

    def drawn(clique: tuple[int, ...]) -> Observation:
        counts = np.zeros([sizes[a] for a in clique], np.int64)
        np.add.at(counts, tuple(codes[a] for a in clique), 1)
        return Observation(
            attributes=clique, counts=counts + np.rint(rng.normal(0, sd, counts.shape)).astype(np.int64), deviation=sd
        )

    one_way = tuple(drawn((a,)) for a in range(len(sizes)))
    larger = tuple(drawn(clique) for clique in cliques)
    domain = Domain(names=tuple(a.name for a in config.attributes), labels=labels)
    return normalize_marginals(Marginals(domain=domain, one_way=one_way, larger=larger), config)


@settings(max_examples=20, deadline=None)
@given(CLIQUES, st.integers(0, 10**6), st.sampled_from([0, 40, 600]))
def test_every_pair_is_there(cliques: Cliques, seed: int, rows: int) -> None:
    """Of two values with records: as measured, or n_a n_b / n to the nearest whole number, but at least 1; in order, closed."""
    config = configuration(**SEEDED, aggregate__compress="none")
    normalized = measured(config, cliques, seed, rows=rows)
    found, told = all_pairs(normalized, config), marginal_counts(normalized, config)
    counts, released = counts_of(found), counts_of(told)
    assert told.measured is not None
    for first, second in itertools.combinations(PLACES, 2):
        values = itertools.product(range(found.domain.sizes[first]), range(found.domain.sizes[second]))
        for pair in (((first, a), (second, b)) for a, b in values):
            if (first, second) in told.measured:
                assert counts.get(pair) == released.get(pair)
                continue
            one, other = (counts.get((part,), 0) for part in pair)
            expected = max(1, one * other / found.record_count) if one and other else 0
            assert abs(counts.get(pair, 0) - expected) <= 0.5
    assert found.reporting_length == {((0, 1, 2, 3),): 4, tuple(itertools.combinations(PLACES, 3)): 3}.get(cliques, 2)
    whole = next((m for m in normalized.consistent if len(m.attributes) == 4), None)
    for combination, count in counts.items():
        places = dict(combination)
        assert (
            whole is None
            or abs(count - whole.counts[tuple(places.get(a, slice(None)) for a in PLACES)].sum()) <= 0.5 + 1e-6
        )
    for combination, count in counts.items():
        assert 0 < count <= min((counts[part] for part in parts(combination)), default=count)
    for level in found.levels:
        ordered = np.concatenate([level.columns, level.values], axis=1)
        assert np.array_equal(np.lexsort(ordered.T[::-1]), np.arange(len(level)))


def test_one_column_has_no_pair() -> None:
    only = {"sex": {"type": "category", "values": ["f", "m"]}}
    config = configuration(columns=only, **SEEDED)
    assert [level.length for level in all_pairs(measured(config, (), 1), config).levels] == [1]


@pytest.mark.parametrize("cliques", [(), ((0, 1),), ((0, 1), (1, 2, 3)), tuple(itertools.combinations(PLACES, 3))])
def test_records_follow_the_pairs(cliques: Cliques) -> None:
    """So many complete records as were counted; pairs that were measured are nearer than independent columns are."""
    config = configuration(**SEEDED)
    normalized = measured(config, cliques, 3, rows=5000)
    codes = np.stack(synthesize_codes(normalized, config, config.synthesize))
    assert codes.shape[1] == round(normalized.consistent[0].total)
    for held in normalized.consistent:
        exact = held.counts / held.counts.sum()
        shape = held.counts.shape
        made = np.zeros(shape)
        np.add.at(made, tuple(codes[a] for a in held.attributes), 1 / codes.shape[1])
        alone = np.array(1.0)
        for axis in range(len(shape)):
            alone = np.multiply.outer(alone, exact.sum(axis=tuple(i for i in range(len(shape)) if i != axis)))
        near = np.abs(made - exact).sum() / 2
        assert near < 0.05 if len(shape) == 1 else near < 0.6 * np.abs(alone - exact).sum() / 2


def test_rules_hold_in_records_of_pairs() -> None:
    """Structural zeros, a public number of records, at most one value of a set."""
    forbidden = {"structure": {"forbidden": [{"sex": "f", "grade": [5, 6, 7]}]}}
    config = configuration(**SEEDED, columns__region=SET, synthesize__records=777, **forbidden)
    assert isinstance(config.synthesize, SynthesisSettings)
    normalized = measured(config, ((0, 1), (4, 5)), 5, rows=3000)
    codes = synthesize_codes(normalized, config, config.synthesize)
    assert {len(code) for code in codes} == {777}
    for box in forbidden_codes(config.forbidden, normalized.domain.labels):
        assert not np.logical_and.reduce([np.isin(codes[j], values) for j, values in box]).any()
    signs = [codes[j] for j, attribute in enumerate(config.attributes) if attribute.of_set]
    assert len(signs) == 3
    assert np.sum([sign == 0 for sign in signs], axis=0).max() == 1
    assert all((sign == 0).any() for sign in signs)
