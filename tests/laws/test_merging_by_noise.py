"""Values are merged where noise took their counts below a bound, and what is estimated from all tables is right all the same.

Two columns, one of many values near the bound, and 400 releases of one table: no estimate is biased, and intervals cover as
often as they say. False alarms: 1e-6 for each question, by the mean error and by the binomial distribution.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.tables import part_tables
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.estimate.marginals import drawn_compression_of
from marginweave.observations.tables import Marginals, Observation
from tests.support.noisy_marginals import measure_merged

FALSE_ALARM, RELEASES = 1e-6, 400
SIGMAS = 10.0, 3.0
TABLES = {
    "even": np.full(40, 30),
    "skewed": (450 / np.arange(1, 41)).astype(np.int64),
    "half of them above": np.repeat([10, 50, 300], [4, 18, 18]),
}
Array = np.ndarray[Any, Any]


def configured(sizes: tuple[int, ...], compress: float | str = 3.0) -> Configuration:
    return parse_configuration(
        {
            "dataset": "merged",
            "source": "merged.csv",
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row"},
            "columns": {
                f"c{j}": {
                    "type": "category",
                    "values": [f"v{i}" for i in range(size)],
                    "missing": [],
                    "outside": "error",
                }
                for j, size in enumerate(sizes)
            },
            "aggregate": {"method": "marginals", "cliques": {"all": 2}, "compress": compress},
        }
    )


def measured(table: Array, config: Configuration, rng: np.random.Generator) -> LeastSquares:
    """One release of a table of two columns: single columns, then the pair over the values that their noise did not merge."""

    def noisy(counts: Array, clique: tuple[int, ...]) -> Observation:
        sigma = SIGMAS[len(clique) - 1]
        noise = np.rint(rng.normal(0, sigma, counts.shape)).astype(np.int64)
        return Observation(attributes=clique, counts=counts + noise, deviation=sigma)

    domain = Domain(names=("c0", "c1"), labels=tuple(a.labels for a in config.attributes))
    alone = Marginals(
        domain=domain, one_way=(noisy(table.sum(1), (0,)), noisy(table.sum(0), (1,))), larger=()
    )
    exact = Observation(attributes=(0, 1), counts=table, deviation=1.0)
    pair = noisy(
        np.asarray(measure_merged(exact, drawn_compression_of(alone, config)).counts), (0, 1)
    )
    return LeastSquares(
        part_tables(Marginals(domain=domain, one_way=alone.one_way, larger=(pair,)), config)
    )


def made(case: str) -> Array:
    rng = np.random.default_rng(16)
    return np.stack(
        [rng.multinomial(count, np.array([4, 3, 2, 1, 1]) / 11) for count in TABLES[case]]
    )


@cache
def errors(case: str) -> dict[str, tuple[Array, Array]]:
    """By question the errors and the standard deviations that are stated, of each release."""
    counts, table, rng = TABLES[case], made(case), np.random.default_rng(17)
    bound = 3 * SIGMAS[0]
    asked = {
        "all": np.ones(40),
        "below": (counts < bound) * 1.0,
        "near": (abs(counts - bound) < 0.5 * bound) * 1.0,
        "above": ((counts >= bound) & (counts < 2 * bound)) * 1.0,
        "far above": (counts >= 2 * bound) * 1.0,
        "half": np.arange(40) % 2.0,
    }
    asked = {name: weights for name, weights in asked.items() if weights.any()}
    weights, config = np.stack(list(asked.values())), configured((40, 5))
    solved = [measured(table, config, rng).solve({0: weights}) for _ in range(RELEASES)]
    apart = np.stack([one.values for one in solved]) - weights @ counts
    sds = np.sqrt(np.stack([np.diagonal(one.covariance) for one in solved]))
    return {name: (apart[:, i], sds[:, i]) for i, name in enumerate(asked)}


@pytest.mark.parametrize("case", TABLES)
def test_no_sum_of_counts_is_biased_by_what_noise_merged(case: str) -> None:
    for name, (apart, _) in errors(case).items():
        mean, error = apart.mean(), apart.std() / RELEASES**0.5
        assert abs(mean) < norm.isf(FALSE_ALARM / 2) * error, name


@pytest.mark.parametrize("case", TABLES)
def test_intervals_cover_whatever_noise_merged(case: str) -> None:
    for name, (apart, sds) in errors(case).items():
        hits = int((np.abs(apart) <= norm.isf(0.025) * sds).sum())
        assert hits >= binom.ppf(FALSE_ALARM, RELEASES, 0.95), name


@cache
def errors_beside(case: str) -> tuple[Array, Array]:
    """The same of the sum of values near the bound that noise left unmerged, beside one value of the other column, or all."""
    table, config, rng = made(case), configured((40, 5)), np.random.default_rng(18)
    near, beside = table.sum(axis=1) < 6 * SIGMAS[0], np.stack([np.eye(5)[0], np.ones(5)])
    found = []
    for _ in range(RELEASES):
        squares = measured(table, config, rng)
        (part,) = (one for one in squares.measured.parts if one.axis == 0 and one.size < 40)
        asked = near & (np.bincount(part.blocks)[part.blocks] == 1)
        solved = squares.solve({0: np.stack([asked, asked]) * 1.0, 1: beside})
        truth = beside @ table[asked].sum(axis=0)
        found.append((solved.values - truth, np.sqrt(np.diagonal(solved.covariance))))
    apart, sds = np.array(found).transpose(1, 2, 0)
    return apart, sds


@pytest.mark.parametrize("case", TABLES)
def test_what_noise_left_unmerged_is_not_too_large_beside_other_columns(case: str) -> None:
    for apart, sds in zip(*errors_beside(case), strict=True):
        assert abs(apart.mean()) < norm.isf(FALSE_ALARM / 2) * apart.std() / RELEASES**0.5
        assert (np.abs(apart) <= norm.isf(0.025) * sds).sum() >= binom.ppf(
            FALSE_ALARM, RELEASES, 0.95
        )


def test_larger_tables_tell_of_values_that_no_noise_could_merge() -> None:
    """Of counts far above the bound, or where nothing is merged, estimates are those of least squares: less noisy."""
    rng = np.random.default_rng(3)
    table, far = rng.poisson(30, (6, 5)), rng.poisson(300, (6, 5))
    alone = SIGMAS[0] ** 2 + 1 / 12
    for counts, compress, helps in (
        (far, 3.0, True),
        (table, "none", True),
        (table // 20, 3.0, False),
    ):
        squares = measured(counts, configured((6, 5), compress), rng)
        contrast = np.array([[1.0, -1.0, 0, 0, 0, 0]])
        variance = float(squares.solve({0: contrast}).covariance[0, 0])
        best = 2 / (1 / alone + 1 / (5 * (SIGMAS[1] ** 2 + 1 / 12)))
        assert variance == pytest.approx(best if helps else 2 * alone)
