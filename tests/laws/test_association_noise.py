"""Associations are shown only where neither chance nor noise explains them: the limit holds, and is not much too large."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from marginweave.estimate.marginals import marginal_counts, normalize_marginals
from marginweave.evaluate.association_noise import CHANCE, dependence
from marginweave.evaluate.bounds import dependent_pairs
from marginweave.evaluate.cells import Records
from marginweave.evaluate.metrics import evaluate_release
from marginweave.observations.combinations import LevelNoise
from marginweave.observations.tables import Marginals
from marginweave.released.evaluation import Association
from tests.support.configurations import configuration
from tests.support.known import known
from tests.support.noisy_counts import SIZES, aggregates_of, domain_of, tally
from tests.support.noisy_marginals import noisy_counts

EVEN = [np.full(5, 0.2), np.full(9, 1 / 9)]
STEEP = [weights / weights.sum() for weights in (1 / np.arange(1, 17) ** 2, 1 / np.arange(1, 8))]
TABLES = 2000
WIDE = (5, 9, 6, 12, 3, 2, 8)
"""Values of seven columns: each of 21 pairs lies in five triples."""


def released(shares: list[np.ndarray], records: int, sigma: float, seed: int) -> list[float]:
    """p of independent columns: sampled, with noise, negative counts at 0."""
    rng, found = np.random.default_rng(seed), []
    for drawn in rng.multinomial(records, np.outer(*shares).ravel(), TABLES):
        noisy = np.maximum(drawn + np.rint(rng.normal(0, sigma, drawn.shape)), 0).reshape(
            *map(len, shares)
        )
        rows, columns = np.nonzero(noisy)
        occupied = rows, columns, noisy[rows, columns]
        found.append(dependence(*occupied, sigma).p)
    return found


def of_many_pairs(seed: int, *, follows: int = 0) -> tuple[int, set[tuple[int, ...]]]:
    """The number of pairs of 90 columns of two values, all measured with sd 110 of noise among 2,000 records, and those named
    dependent. All columns are independent, but so many odd ones repeat the even one before."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (2000, 90))
    rows[:, 1 : 2 * follows : 2] = rows[:, 0 : 2 * follows : 2]
    sizes = (2,) * 90
    one_way, pairs = (noisy_counts(rows, sizes, width, 110, rng) for width in (1, 2))
    found = dependent_pairs(Marginals(domain=domain_of(sizes), one_way=one_way, larger=pairs))
    return len(found), {pair for pair, is_dependent in found.items() if is_dependent}


def test_of_thousands_of_independent_pairs_none_is_named() -> None:
    """4,005 pairs a release: in 1 of 1,000 releases one is named. Of 8, 3 have one less than once in a million times."""
    named = [of_many_pairs(seed) for seed in range(8)]
    assert {pairs for pairs, _ in named} == {4005}
    assert sum(bool(dependent) for _, dependent in named) <= int(stats.binom.isf(1e-6, 8, CHANCE))


def test_a_strong_pair_among_thousands_is_named() -> None:
    """Two columns are the same: 500 of 2,000 records too many in each cell, more than 9 times the noise of such a table."""
    assert of_many_pairs(5, follows=1)[1] == {(0, 1)}


@pytest.mark.parametrize("shares", [EVEN, STEEP], ids=["even", "steep"])
@pytest.mark.parametrize(
    ("records", "sigma"), [(1000, 0.0), (1000, 4.0), (30_000, 60.0), (300, 20.0)]
)
def test_independent_columns_pass_the_limit_once_in_a_thousand_times(
    shares: list[np.ndarray], records: int, sigma: float
) -> None:
    """2,000 tables: more than 14 over it are there once in a million times where the chance is right."""
    most = int(stats.binom.isf(1e-6, TABLES, CHANCE))
    assert sum(p < CHANCE for p in released(shares, records, sigma, seed=11)) <= most


def test_the_limit_is_no_larger_than_it_need_be() -> None:
    """Of even columns p is below .16 so often: less than .1 of 2,000 tables is six standard deviations away."""
    assert np.mean([p < 0.16 for p in released(EVEN, 30_000, 60.0, seed=12)]) > 0.1


def test_one_strong_pair_is_shown_and_all_others_are_counted() -> None:
    """Three of four columns are drawn by themselves, the last follows the second: two in three times (V .6), sd 20 of noise.

    Each of five pairs is shown once in 5,000 times or less often: the seed is one of those with none.
    """
    rng = np.random.default_rng(4)
    table = rng.integers(0, np.array(SIZES), (3000, 4))
    table[:, 3] = np.where(rng.random(3000) < 0.67, table[:, 2], table[:, 3])
    counts = tally(table, 2)
    noisy = {
        t: max(0, n + round(rng.normal(0, 20))) if len(t) == 2 else n for t, n in counts.items()
    }
    noise = LevelNoise(
        length=2,
        contribution_bound=1,
        deviation=20.0,
        threshold=1,
        private_threshold=0,
        candidates=None,
    )
    made = Records([table.T], domain_of())
    with_noise = replace(aggregates_of(noisy, record_count=3000, length=2), noise=(noise,))
    found = evaluate_release(made, with_noise, ordered=(2, 3)).association
    pairs = [
        (a, b) for a in range(4) for b in range(a) if found.cramers_v.reference[a][b] is not None
    ]
    assert (pairs, found.within_noise) == ([(3, 2)], 5)
    assert found.cramers_v.reference[1][0] is found.mutual_information.reference[1][0] is None
    assert known(found.cramers_v.synthetic[1][0]) < 0.1  # of records it is a fact
    assert known(found.cramers_v.reference[3][2]) > 0.5
    assert known(found.spearman.reference[0][1]) > 0.3
    exact = evaluate_release(made, aggregates_of(counts, record_count=3000, length=2)).association
    assert exact.within_noise is None
    assert exact.cramers_v.reference[1][0] is not None


def of_all_triples(seed: int, *, noise: float, follows: float = 0.0, rare: int = 0) -> Association:
    """Associations in a release of seven columns, 6,000 records, so much noise in each triple; all independent, but of the
    fifth column every value says that of the sixth in so many records."""
    rng = np.random.default_rng(seed)
    shares = [1 / np.arange(1, size + 1) for size in WIDE]
    rows = np.stack(
        [rng.choice(len(share), 6000, p=share / share.sum()) for share in shares], axis=1
    )
    rows[:, 5] = np.where(rng.random(6000) < follows, rows[:, 4] > 0, rows[:, 5])
    if rare:  # so many records have the last value of both, and no others either
        rows[:, 4], rows[:, 5] = np.minimum(rows[:, 4], 1), 0
        rows[:rare, 4], rows[:rare, 5] = 2, 1
    named = {
        f"c{i}": {"type": "category", "values": [f"v{v}" for v in range(n)], "missing": []}
        for i, n in enumerate(WIDE)
    }
    config = configuration(
        columns=named, aggregate={"method": "marginals", "cliques": {"all": 3}, "compress": "none"}
    )
    domain = domain_of(WIDE)
    one_way, triples = (noisy_counts(rows, WIDE, width, noise, rng) for width in (1, 3))
    marginals = Marginals(domain=domain, one_way=one_way, larger=triples)
    counts, records = (
        marginal_counts(normalize_marginals(marginals, config), config),
        Records([rows.T], domain),
    )
    return evaluate_release(records, counts, dependent=dependent_pairs(marginals)).association


def test_no_pair_of_independent_columns_is_shown_where_all_triples_were_measured() -> None:
    """Clipped and consistent counts of 20 releases: of 420 pairs more than 5 are shown once in a million times."""
    shown = sum(21 - known(of_all_triples(seed, noise=20).within_noise) for seed in range(20))
    assert shown <= int(stats.binom.isf(1e-6, 420, CHANCE))


def test_a_weak_pair_is_shown_where_five_triples_tell_of_it() -> None:
    """V of about .25, with which the noise of the best triple alone explains four of these five."""
    found = [
        of_all_triples(seed, noise=60, follows=0.25).cramers_v.reference[4][5] for seed in range(5)
    ]
    assert all(v is not None and 0.15 < v < 0.35 for v in found)


def test_a_pair_of_rare_values_that_go_together_is_shown() -> None:
    """600 of 6,000 records: eight times the noise; consistent counts keep a part of it. Of the records V is 1."""
    for seed in range(5):
        found = of_all_triples(seed, noise=60, rare=600).cramers_v
        assert found.reference[4][5] is not None
        assert known(found.synthetic[4][5]) > 0.99
