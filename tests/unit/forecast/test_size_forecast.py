"""`plan` says what noise will make of columns and pairs at a number of rows: the mean of what noise does make."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

from marginweave.configuration.defaults import automatic_aggregate, counts_words
from marginweave.forecast.overview import size_rows
from marginweave.forecast.sizes import SIZES, declared_forecast, size_forecast
from marginweave.measurements.round_draws import RoundMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import WholeMarginals, public_sizes
from marginweave.texts.sentences import Sentence
from tests.support.configurations import configuration

MARGINALS = {
    "aggregate": {"method": "marginals", "cliques": {"all": 3}},
    "synthesize": {"method": "mixture"},
}


def percent(words: str | Sentence) -> float:
    """Return the number of a forecast."""
    found = re.search(r"([\d.e+]+) %", str(words))
    assert found is not None
    return float(found[1])


def test_the_distance_is_that_of_noise_combined_by_precision() -> None:
    """300 tables of noise: the mean of each distance is off by less than 2 % (its relative sd is below .06), 5 sd an alarm."""
    config, rng = configuration(**MARGINALS, rows=5000), np.random.default_rng(7)
    plan, sizes = plan_budget(config), public_sizes(config)
    queries = [
        (clique, float(sigma))
        for draw in plan.of(WholeMarginals)
        for clique, sigma in zip(draw.cliques(config), draw.sigmas(config), strict=True)
    ]
    made: dict[int, list[float]] = {1: [], 2: []}
    for length in (1, 2):
        for part in itertools.combinations(range(len(sizes)), length):
            summed, weights = np.zeros((300, *(sizes[a] for a in part))), 0.0
            for clique, sigma in queries:
                if set(part) <= set(clique):
                    away = tuple(1 + i for i, a in enumerate(clique) if a not in part)
                    noise = rng.normal(0, sigma, (300, *(sizes[a] for a in clique)))
                    weight = 1 / (sigma**2 * noise[0].size / summed[0].size)
                    summed, weights = summed + weight * noise.sum(axis=away), weights + weight
            made[length].append(float(np.abs(summed / weights).sum() / 300 / 2 / 5000))
    (row,) = size_forecast(config)
    assert percent(row.single) == pytest.approx(100 * np.median(made[1]), rel=0.12)
    assert percent(row.pairs) == pytest.approx(100 * np.median(made[2]), rel=0.12)


def test_pairs_that_are_noise_are_named() -> None:
    """None at many rows, all at few, and between them the larger ones, by the grade that the verdict gives."""
    forecasts = [
        size_forecast(configuration(**MARGINALS, rows=int(10 * 1.3**power)))[0]
        for power in range(45)
    ]
    named = [str(forecast.noise or "") for forecast in forecasts]
    pairs = math.comb(len(configuration(**MARGINALS).attributes), 2)
    assert (named[0], named[-1]) == (named[0], "")
    assert named[0].startswith(f"{pairs} of {pairs}: ")
    some = [
        text.partition(f" of {pairs}: ")[2].split(", ")
        for text in named
        if f" of {pairs}: " in text
    ]
    assert len(some) > 1
    assert all(more[: len(fewer)] == fewer for more, fewer in itertools.pairwise(some))
    assert all(
        text.startswith(f"{len(names)} of")
        for text, names in zip([t for t in named if " of " in t], some, strict=True)
    )


@pytest.mark.parametrize("changes", [{}, MARGINALS])
def test_ten_times_the_rows_are_a_tenth_of_the_distance(changes: dict[str, Any]) -> None:
    one, ten = (
        percent(size_forecast(configuration(**changes, rows=rows))[0].single)
        for rows in (20_000, 200_000)
    )
    assert one == pytest.approx(10 * ten, rel=0.06)  # two digits are printed


@pytest.mark.parametrize("cliques", [[["sex", "region"]], {"all": 2}, {"adaptive": 2}])
def test_pairs_are_no_nearer_than_columns(cliques: Any) -> None:
    """Also where columns have next to no budget, and where the only pair is of the columns with the fewest values."""
    marginals = {"method": "marginals", "cliques": cliques, "one_way_share": 0.01}
    config = configuration(aggregate=marginals, synthesize={"method": "gum"}, rows=5000)
    (row,) = size_forecast(config)
    assert percent(row.pairs) >= percent(row.single) > 0


def test_without_rows_there_is_a_line_a_size_of_what_the_configuration_counts() -> None:
    """Not of what `auto` would count if rows were said, which is said beside them."""
    config = configuration(aggregate=None, synthesize=None)
    rows = size_forecast(config)
    assert [row.rows for row in rows] == list(SIZES)
    assert {row.counted for row in rows} == {counts_words(config.aggregate, len(config.attributes))}
    said = str(declared_forecast(config))
    others = set[str]()
    for size in SIZES:
        sized = configuration(aggregate=None, synthesize=None, rows=size)
        counted = counts_words(automatic_aggregate(sized), len(sized.attributes))
        differs = sized.aggregate != config.aggregate
        assert (f"with {size:,} it counts {counted}" in said) is differs
        others |= {counted} if differs else set()
        assert declared_forecast(sized) is None
    assert others, "of the sizes some would have others"


def test_a_line_of_a_size_is_that_of_the_plan_as_written() -> None:
    """The noise beside ten times the rows is a tenth, as nothing else is planned."""
    few, some, many = (
        percent(row.single) for row in size_forecast(configuration(aggregate=None, synthesize=None))
    )
    assert few == pytest.approx(10 * some, rel=0.06)
    assert some == pytest.approx(10 * many, rel=0.06)


def test_nothing_is_said_of_private_domains() -> None:
    assert (
        size_forecast(
            configuration(columns__sex={"type": "category", "domain": "private"}, rows=100)
        )
        == []
    )


def test_no_distance_is_above_one() -> None:
    (row,) = size_forecast(configuration(privacy__epsilon=0.01, rows=10))
    assert str(row.single) == "100 % noise"


@pytest.mark.parametrize(
    ("rounds", "batch", "adaptive"), [(16, 4, 2), (16, 4, 3), (2, 1, 2), (3, 2, 4)]
)
def test_no_more_sets_are_said_to_be_chosen_than_there_are(
    rounds: int, batch: int, adaptive: int
) -> None:
    """A set may be chosen again, and annealing makes fewer rounds: what can be said is a bound."""
    cliques = {"adaptive": adaptive, "rounds": rounds, "batch": batch}
    config = configuration(
        aggregate={"method": "marginals", "cliques": cliques},
        synthesize={"method": "gum"},
        rows=5000,
    )
    names = [attribute.name for attribute in config.attributes]
    sets = [
        some for length in range(2, adaptive + 1) for some in itertools.combinations(names, length)
    ]
    (row,) = size_forecast(config)
    assert row.most_chosen == min(rounds * batch, len(sets))
    assert f"{row.most_chosen}" in [
        cells[1] for cells in size_rows([row]) if cells[0].startswith("sets chosen, at most")
    ]


def test_distances_are_of_ordinary_columns_beside_a_set() -> None:
    """A pair of two values of a set has four cells; that the median pair is one of these says nothing of the others."""
    signs = {"type": "set", "values": list(range(30)), "max_values": 2}
    config = configuration(
        aggregate={"method": "marginals", "cliques": {"adaptive": 2}},
        columns__signs=signs,
        rows=5000,
    )
    sizes = [attribute.name for attribute in config.attributes if attribute.of_set]
    assert len(sizes) == 30
    (row,) = size_forecast(config)
    noise = plan_budget(config).of(RoundMarginals)[0]
    ordinary = public_sizes(config)[: len(config.attributes) - len(sizes)]
    products = [one * other for one, other in itertools.combinations(ordinary, 2)]
    error = noise.sigma(config) * noise.count_noise(config).mean_error
    assert percent(row.pairs) == pytest.approx(
        100 * error * float(np.median(products)) / 10_000, rel=0.06
    )
