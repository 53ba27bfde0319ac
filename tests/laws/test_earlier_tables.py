"""What an earlier release measured is pooled with what is drawn: by precision, over the codes of the new release."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique
from marginweave.estimate.earlier import contradicted_attributes, pool
from marginweave.estimate.marginals import Spread, compression_of
from marginweave.observations.compression import Compression
from marginweave.observations.tables import Marginals, Observation
from marginweave.records.release import expand_records
from tests.support import noisy_marginals

SIZES = (3, 5, 4)
COUNTS = (np.array([50.0, 30, 20]), np.array([40.0, 40, 10, 6, 4]), np.array([70.0, 20, 5, 5]))
APART = Compression(codes=tuple(np.arange(size) for size in SIZES), counts=COUNTS)
MERGED = Compression(
    codes=(np.arange(3), np.array([0, 1, 2, 2, 2]), np.array([0, 1, 2, 2])), counts=COUNTS
)


def measured(attributes: Clique, truth: NDArray[Any], sd: float, seed: int) -> Observation:
    noise = np.random.default_rng(seed).normal(0, sd, truth.shape)
    return Observation(attributes=attributes, counts=truth + noise, deviation=sd)


def earlier(m: Observation, codes: Compression = APART) -> Observation:
    return m.unmerged(codes.codes)


@pytest.mark.parametrize(("now", "then"), [(10.0, 10.0), (10.0, 2.5), (4.0, 30.0)])
def test_two_measurements_have_the_noise_of_both_precisions(now: float, then: float) -> None:
    """The deviation is (1/s^2 + 1/t^2)^(-1/2), and the counts have it: chi^2 of 2,000 cells, false alarms 1e-6."""
    truth = np.outer(np.arange(1, 41), np.arange(3, 53)).astype(np.float64)
    compression = Compression(
        codes=(np.arange(40), np.arange(50)), counts=(truth.sum(axis=1), truth.sum(axis=0))
    )
    table = earlier(measured((0, 1), truth, then, 1), compression)
    (found,) = pool([measured((0, 1), truth, now, 2)], [table], compression)
    assert found.deviation == pytest.approx(1 / math.hypot(1 / now, 1 / then))
    apart = float((((found.counts - truth) / found.deviation) ** 2).sum())
    assert chi2.ppf(5e-7, truth.size) < apart < chi2.isf(5e-7, truth.size)


def test_three_releases_and_sets_that_only_one_has_measured() -> None:
    singles = [
        Observation(attributes=(1,), counts=np.full(5, count), deviation=6.0)
        for count in (10.0, 20.0, 60.0)
    ]
    alone = Observation(attributes=(0, 2), counts=np.ones((3, 4)), deviation=7.0)
    found = pool(singles[:1], [*map(earlier, singles[1:]), earlier(alone)], APART)
    assert [(m.attributes, m.deviation) for m in found] == [
        ((1,), pytest.approx(6 / math.sqrt(3))),
        ((0, 2), pytest.approx(7.0)),
    ]
    assert np.allclose(found[0].counts, 30)
    assert (found[1].counts == 1).all()


@pytest.mark.parametrize(("then", "now"), list(itertools.product((APART, MERGED), repeat=2)))
def test_merged_values_are_added_or_shared_as_in_the_records(
    then: Compression, now: Compression
) -> None:
    """By brute force over the codes; no cell counts for more exact than a measured one, and a sum of n is n times as noisy."""
    counts = np.random.default_rng(3).normal(20, 9, [then.sizes[1], then.sizes[2]])
    (found,) = pool(
        [], [earlier(Observation(attributes=(1, 2), counts=counts, deviation=2.0), then)], now
    )
    wanted, parts = np.zeros([now.sizes[1], now.sizes[2]]), np.zeros([now.sizes[1], now.sizes[2]])
    for cell in itertools.product(range(SIZES[1]), range(SIZES[2])):
        old = tuple(int(then.codes[a][v]) for a, v in zip((1, 2), cell, strict=True))
        new = tuple(int(now.codes[a][v]) for a, v in zip((1, 2), cell, strict=True))
        share = math.prod(
            COUNTS[a][v] / COUNTS[a][then.codes[a] == o].sum()
            for a, v, o in zip((1, 2), cell, old, strict=True)
        )
        wanted[new] += share * counts[old]
        parts[new] += 1
    assert np.allclose(found.counts, wanted)
    if now is then:
        assert found.counts == pytest.approx(counts)
        assert found.deviation == pytest.approx(2.0)
    if then is APART:
        assert found.deviation == pytest.approx(2.0 * math.sqrt(parts.mean()))
    else:
        assert found.deviation >= 2.0 - 1e-9


def test_merged_values_of_records_have_the_shares_of_both_releases() -> None:
    """The counts of a much more exact release tell merged values apart; what is merged follows from the drawn counts."""
    settings = noisy_marginals.config()
    drawn = noisy_marginals.marginals(settings, sd=60.0)
    alone = compression_of(drawn, settings)[1]
    merged = max(range(len(alone.codes)), key=lambda a: len(alone.codes[a]) - alone.sizes[a])
    rare = np.bincount(alone.codes[merged])[alone.codes[merged]] > 1
    assert rare.sum() > 2
    counts = np.where(rare, np.cumsum(rare) ** 3.0, drawn.one_way[merged].counts)
    exact = Observation(attributes=(merged,), counts=counts, deviation=1e-4)
    pooled = replace(drawn, pooled=(*pool(drawn.one_way, [exact]), *drawn.larger))
    compression = compression_of(pooled, settings)[1]
    assert all(
        np.array_equal(one, other)
        for one, other in zip(compression.codes, alone.codes, strict=True)
    )
    shares = counts[rare] / counts[rare].sum()
    assert np.allclose(Spread.of(compression).shares[merged][rare], shares, atol=1e-6)
    records = np.tile([codes.max() for codes in alone.codes], (20_000, 1))
    made = np.bincount(
        expand_records(records, compression, np.random.default_rng(5))[:, merged],
        minlength=len(rare),
    )
    apart = float(((made[rare] - 20_000 * shares) ** 2 / (20_000 * shares)).sum())
    assert apart < chi2.isf(1e-6, rare.sum() - 1)  # false alarms: 1e-6, of a fixed seed


@pytest.mark.parametrize(("now", "then"), [(10.0, 10.0), (10.0, 2.5), (4.0, 30.0)])
def test_an_earlier_release_of_other_rows_is_noticed(now: float, then: float) -> None:
    """Of 500 pairs of releases of the same rows none is called another's (false alarm 5e-7), of moved rows all are.

    Rows that moved between two values move each of their counts by 40 of the larger standard deviations.
    """
    truth = np.array([400.0, 300.0, 200.0])
    moved = truth + 40 * max(now, then) * np.array([1.0, -1.0, 0.0])
    domain = Domain(names=("a",), labels=(("x", "y", "z"),))
    for seed in range(500):
        drawn = measured((0,), truth, now, seed)
        for rows_then, contradicted in ((truth, ()), (moved, (0,))):
            pooled = pool([drawn], [measured((0,), rows_then, then, 10_000 + seed)])
            marginals = Marginals(domain=domain, one_way=(drawn,), larger=(), pooled=pooled)
            assert contradicted_attributes(marginals) == contradicted


@pytest.mark.parametrize(("noise", "named"), [("rounded-gaussian", (0,)), ("discrete-laplace", ())])
def test_what_noise_explains_depends_on_its_kind(noise: Any, named: tuple[int, ...]) -> None:
    """A cell 8 deviations away: normal noise has that in one of 1e13 releases, Laplace noise in one of 27,000."""
    truth = np.array([400.0, 300.0, 200.0])
    drawn = Observation(attributes=(0,), counts=truth, deviation=10.0)
    apart = np.array([8 * math.hypot(10, 10), 0.0, 0.0])
    then = Observation(attributes=(0,), counts=truth + apart, deviation=10.0, noise=noise)
    domain = Domain(names=("a",), labels=(("x", "y", "z"),))
    marginals = Marginals(domain=domain, one_way=(drawn,), larger=(), pooled=pool([drawn], [then]))
    assert contradicted_attributes(marginals) == named


def test_a_difference_of_all_cells_is_noticed_where_none_is_far() -> None:
    """Of 40 values each 2.5 deviations of the difference away, no cell says it: all together do, with chance 3e-32."""
    rng = np.random.default_rng(3)
    truth = rng.integers(100, 900, 40).astype(float)
    moved = truth + 2.5 * math.hypot(10, 10) * np.where(np.arange(40) % 2, 1.0, -1.0)
    drawn = Observation(attributes=(0,), counts=truth, deviation=10.0)
    then = Observation(attributes=(0,), counts=moved, deviation=10.0)
    domain = Domain(names=("a",), labels=(tuple(map(str, range(40))),))
    marginals = Marginals(domain=domain, one_way=(drawn,), larger=(), pooled=pool([drawn], [then]))
    assert contradicted_attributes(marginals) == (0,)
