"""GUM and the mixture from k-tuples: exact counts give the exact table, suppressed is not zero, noise is not followed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.domain.zeros import structural_masks
from marginweave.estimate.mixture.targets import expected_below, surprise
from marginweave.estimate.normalize import normalize
from marginweave.estimate.tuples import tuple_marginals
from tests.support.configurations import configuration
from tests.support.noisy_counts import SIZES, aggregates_of, noisy_counts
from tests.support.released_tuples import (
    WITH_MISSING,
    four_columns,
    marginal,
    random_rows,
    released,
    with_noise,
)
from tests.support.synthesized import synthesize_codes


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([0.0, 0.2, 0.6]))
def test_exact_counts_give_the_exact_marginals(seed: int, rows: int, missing: float) -> None:
    """Counts of values fix those of missing ones (inclusion and exclusion); a set that is left out says nothing more.

    Every record stands 100 times: a suppressed count lies somewhere below 1/2, and a sum has fewer than there are cells.
    """
    table = np.repeat(random_rows(seed, rows, missing=missing), 100, axis=0)
    found = {m.attributes: m.counts for m in tuple_marginals(released(table), WITH_MISSING)}
    assert set(found) >= {(a,) for a in range(len(SIZES))}
    for clique, counts in found.items():
        assert np.abs(counts - marginal(table, clique, WITH_MISSING)).max() < counts.size / 2


def test_exact_counts_give_every_pair() -> None:
    """4000 records, noise of 1/1000: of each of the six pairs at most 30 records (0.75 %) are elsewhere than in the table."""
    table, config = random_rows(4, 4000), four_columns(seed=3, tolerance=0, rounds=100)
    made = np.stack(synthesize_codes(released(table), config, config.synthesize), axis=1)
    for pair in itertools.combinations(range(4), 2):
        moved = (
            np.abs(marginal(made, pair, WITH_MISSING) - marginal(table, pair, WITH_MISSING)).sum()
            / 2
        )
        assert moved <= 30


def test_a_mixture_has_nearly_every_pair_of_exact_counts() -> None:
    """Missing values included; of the dependent pair independent columns would have 1000 of 4000 records elsewhere."""
    table, config = random_rows(4, 4000), four_columns("mixture")
    made = np.stack(synthesize_codes(released(table, sd=5.0), config, config.synthesize), axis=1)
    for pair in itertools.combinations(range(4), 2):
        moved = (
            np.abs(marginal(made, pair, WITH_MISSING) - marginal(table, pair, WITH_MISSING)).sum()
            / 2
        )
        assert moved <= 350


def test_suppressed_counts_are_not_zero() -> None:
    """Two columns agree in half of 3500 records and are even in the others: 42 cells of 42 records, below the threshold of 60.

    Both are suppressed records: their cells together have half the table, and so they must have in the records.
    """
    sizes, rng = (7, 7, 2), np.random.default_rng(1)
    even = (
        np.stack(np.meshgrid(np.arange(7), np.arange(7)), axis=-1).reshape(-1, 2).repeat(36, axis=0)
    )
    equal = np.repeat(np.arange(7), 250)[:, None].repeat(2, axis=1)
    pairs = np.concatenate([even, equal])
    table = np.column_stack([pairs, rng.integers(0, 2, len(pairs))])
    aggregates = released(table, sizes, sd=5.0, thresholds=(1, 60))
    second = aggregates.levels[1]
    assert ((second.columns == (0, 1)).all(axis=1)).sum() == 7
    found = {m.attributes: m.counts for m in tuple_marginals(aggregates, sizes)}
    off = ~np.eye(7, dtype=np.bool_)
    assert found[0, 1][off].sum() == pytest.approx(42 * 36, rel=0.1)
    assert found[0, 1][off].min() > 20
    columns = {
        f"c{j}": {"type": "category", "values": list(range(n)), "outside": "error"}
        for j, n in enumerate(sizes)
    }
    for method in ("gum", "mixture"):
        config = configuration(columns=columns, missing=[], synthesize={"method": method})
        made = synthesize_codes(aggregates, config, config.synthesize)
        assert (made[0] != made[1]).sum() == pytest.approx(42 * 36, rel=0.15)


def test_pure_noise_is_not_followed() -> None:
    """Independent columns and noise of 30: at most a quarter of 40 tables' 400 pairs and triples are let in (fixed seeds).

    It were 2.3 % if what the parts imply had no noise of its own.
    """
    let_in = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        table = np.stack([rng.permutation(np.arange(4200) % n) for n in SIZES], axis=1)
        found = tuple_marginals(released(table, sd=30.0, seed=seed), SIZES)
        let_in += sum(len(m.attributes) > 1 for m in found)
    assert let_in <= 100


@settings(max_examples=8, deadline=None)
@given(
    noisy_counts(),
    st.integers(0, 200),
    st.sampled_from([0.5, 20.0]),
    st.integers(1, 30),
    st.integers(0, 60),
)
def test_whatever_was_released_makes_as_many_records_as_asked(
    counts: dict[Any, int], record_count: int, sd: float, threshold: int, records: int
) -> None:
    """Marginals are finite, nonnegative and have one total; records have declared codes; the same seed, the same records."""
    aggregates = normalize(
        aggregates_of({t: n for t, n in counts.items() if n >= threshold}, record_count)
    )
    aggregates = with_noise(aggregates, sd, (threshold,) * 3)
    for m in tuple_marginals(aggregates, WITH_MISSING):
        assert (m.counts >= 0).all()
        assert m.deviation == sd
        assert m.total == pytest.approx(max(record_count, 1))
    config = four_columns(records=records, rounds=3)
    made = synthesize_codes(aggregates, config, config.synthesize)
    assert [len(codes) for codes in made] == [records] * 4
    assert all((codes <= size).all() for codes, size in zip(made, SIZES, strict=True))
    again = synthesize_codes(aggregates, config, config.synthesize)
    assert all(np.array_equal(one, other) for one, other in zip(made, again, strict=True))
    counted = four_columns(rounds=1)
    assert len(synthesize_codes(aggregates, counted, counted.synthesize)[0]) == record_count


def test_what_cannot_be_stays_out() -> None:
    """A forbidden pair, and a private domain that is never missing: what was suppressed of it goes to what was released."""
    rng = np.random.default_rng(2)
    table = random_rows(2, 3000, missing=0.0)
    table = table[(table[:, 1] != 0) | (table[:, 2] > 1)]
    # suppressed: missing among the k-tuples
    table[:, 3] = np.where(rng.random(len(table)) < 0.3, 7, table[:, 3])
    private = {"type": "category", "domain": "private", "impute": {"weights": {"a": 1}}}
    columns = {
        f"c{j}": {"type": "category", "values": list(range(n)), "outside": "error"}
        for j, n in enumerate(SIZES)
    }
    structure = {"forbidden": [{"c1": 0, "c2": [0, 1]}]}
    configurations = [
        configuration(
            columns={**columns, "c3": private},
            missing=[],
            structure=structure,
            synthesize={"method": method},
        )
        for method in ("gum", "mixture")
    ]
    aggregates = released(table, sd=20.0)
    aggregates = replace(
        aggregates,
        domain=replace(aggregates.domain, labels=tuple(tuple(map(str, range(n))) for n in SIZES)),
    )
    masks = structural_masks(configurations[0], aggregates.domain.labels)
    found = {m.attributes: m.counts for m in tuple_marginals(aggregates, (*SIZES[:3], 8), masks)}
    assert found[1, 2][0, :2].tolist() == [0, 0]
    assert found[1, 2].sum(axis=1) == pytest.approx(found[1,], abs=5)
    for clique, counts in found.items():
        if 3 in clique:
            assert counts[..., 7].max() == 0
            assert counts.sum() == pytest.approx(len(table), rel=0.01)
    for config in configurations:
        made = synthesize_codes(aggregates, config, config.synthesize)
        assert not ((made[1] == 0) & (made[2] < 2)).any()
        assert (made[3] < 7).all()
        assert len(made[3]) == len(table)
        real = marginal(table, (3,), WITH_MISSING)[:7]
        shares = np.bincount(made[3], minlength=7) / len(table)
        assert np.abs(shares - real / real.sum()).sum() / 2 < 0.1


@pytest.mark.parametrize("cut", [-40.0, -1.0, 0.5, 30.0, 4000.0])
def test_a_suppressed_count_is_expected_where_it_can_be(cut: float) -> None:
    """The mean of the truncated normal as scipy has it; at most the threshold, whatever was expected."""
    means = np.array([-50.0, 0.0, 3.0, 60.0, 1e6])
    found = expected_below(means, 10.0, cut)
    assert (found <= cut).all()
    near = np.abs(means - cut) < 300  # scipy is not exact beyond
    assert found[near] == pytest.approx(
        stats.truncnorm(-np.inf, (cut - means[near]) / 10, means[near], 10).mean()
    )


@pytest.mark.parametrize("cut", [-1e6, 0.5, 10.0, 1e6])
def test_noise_alone_does_not_surprise(cut: float) -> None:
    """2000 times 300 counts with their own means: mean 0 within 5 / sqrt(2000), deviation 1 within 5 / sqrt(4000), false
    alarm 1e-6 each; shifted by one deviation it does. Where nothing is ever suppressed, or everything, it stays finite."""
    rng = np.random.default_rng(3)
    means = rng.choice([0.0, 2.0, 40.0], 300)
    found = []
    for _ in range(2000):
        noisy = means + rng.normal(0, 10, 300)
        filled = np.where(noisy >= cut, noisy, expected_below(means, 10.0, cut))
        found.append(surprise(filled - means, means, 10.0, cut))
    if cut == 1e6:
        assert np.abs(found).max() < 1e-9
        return
    assert abs(np.mean(found)) < 5 / np.sqrt(2000)
    assert abs(np.std(found) - 1) < 5 / np.sqrt(4000) + 0.02  # the sum of squares is a little skew
    shifted = means + 15
    filled = np.where(shifted >= cut, shifted, expected_below(means, 10.0, cut))
    assert surprise(filled - means, means, 10.0, cut) > 5
