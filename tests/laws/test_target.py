"""The table of a target: what it has, what one unit moves of it, what it costs, and that records keep what it says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.marginals import AllCliques
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts.marginals import count_marginals
from marginweave.domain.labels import Domain
from marginweave.estimate.marginals import compression_of, normalize_marginals
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.forecast.accuracy import _counted
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.marginal_rows import by_level
from marginweave.measurements.marginals import split_noise
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import counted_sizes, public_sizes
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.observations.tables import Marginals, Observation
from marginweave.records.mixture import sample_mixture
from marginweave.records.release import estimation_input
from marginweave.records.shards import RecordSampler
from tests.support.configurations import configuration
from tests.support.synthesized import every_record

NEVER: dict[str, Any] = {"missing": [], "outside": "error"}
LABEL: dict[str, Any] = {"type": "category", "values": ["odd", "even"]} | NEVER
COLUMNS: dict[str, Any] = {
    **{f"x{i}": {"type": "number", "bounds": [0, 1], "bins": 12} | NEVER for i in range(7)},
    "label": LABEL,
}
ROWS = 10_000


def made(**changes: Any) -> Configuration:
    settings = {"columns": COLUMNS, "rows": ROWS, "aggregate": {}, "target": "label"}
    return configuration(**settings | changes)


def table_of(config: Configuration) -> tuple[int, ...]:
    """Attributes and levels of the table of the target, which is the last."""
    return LargerMarginals.cliques(config)[-1]


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_no_neighbor_moves_the_table_further_than_its_sensitivity(neighbors: Any) -> None:
    """By all rows of a small domain that come, go or are replaced: 1, or 2 and sqrt(2), which is reached."""
    columns = {
        "age": {"type": "number", "bounds": [0, 5], "bins": 5, "missing": [""]},
        "town": {"type": "category", "values": ["a", "b", "c"]} | NEVER,
        "pay": {"type": "number", "bounds": [0, 3], "bins": 3} | NEVER,
        "label": LABEL,
    }
    target = {"columns": ["label"]}
    config = made(
        columns=columns,
        aggregate={"method": "marginals", "cliques": {"all": 2, "target": target}},
        target=None,
        privacy__neighbors=neighbors,
    )
    draw = plan_budget(config).draw(LargerMarginals)
    stated = draw.sensitivity(config)
    sizes = public_sizes(config)
    levels = config.marginal_settings.levels(sizes, config.attributes)
    codes = levels.codes([np.arange(size) for size in sizes])
    domain = np.array([*itertools.product(*map(range, sizes))])

    def counted(rows: Any) -> Any:
        block = [rows[:, a] for a in range(len(sizes))]
        block += [coarse[block[a]] for a, coarse in codes]
        return count_marginals([block], levels.sizes, [table_of(config)])[0]

    assert sorted(counted(domain).shape) == [2, 2, 3, 3]
    rows = domain[np.random.default_rng(1).integers(0, len(domain), 20)]
    with_row = [counted(np.vstack([rows, row])) for row in domain]
    others = [counted(rows)] if neighbors == "add-remove" else with_row
    moved = [one - other for one in with_row for other in others]
    assert max(np.abs(move).sum() for move in moved) == stated.l1
    assert max((move**2).sum() for move in moved) == stated.l2_squared


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("weight", [1.0, 10.0])
@pytest.mark.parametrize("split", ["cells", "equal"])
def test_all_marginals_cost_together_what_the_draw_does(
    split: Any, share: float, weight: float
) -> None:
    """sum (S / sigma)^2 <= 1 / M^2, less by rounding only; the table of the target has its share of that."""
    stability = Stability(records=2, neighbors="replace-one")
    sizes = (12, 3, 12, 2, 2, 2)
    cliques = [(0, 1), (0, 2), (1, 3), (1, 3, 4, 5)]
    for reserved in ({}, {cliques[-1]: share}):
        sigmas = split_noise(
            RoundedGaussian(stability),
            4.0,
            cliques,
            sizes,
            split,
            reserved=reserved,
            weights=[1.0, weight, 1.0, 1.0],
        )
        costs = [8 / float(sigma) ** 2 for sigma in sigmas]
        assert sum(costs) <= 4.0**-2 * (1 + 1e-12)
        assert sum(costs) >= 4.0**-2 * 0.99
        if reserved:
            assert costs[-1] == pytest.approx(share * 4.0**-2, rel=1e-2)
        plain = [36.0, 144.0, 6.0] if split == "cells" else [1.0] * 3
        by_weight = plain[1] ** (2 / 3) * weight / plain[0] ** (2 / 3)
        assert costs[1] / costs[0] == pytest.approx(by_weight, rel=1e-2)
    alone = split_noise(
        RoundedGaussian(stability), 4.0, cliques[-1:], sizes, split, reserved=reserved
    )
    assert 8 / float(alone[0]) ** 2 <= 4.0**-2 * (1 + 1e-12)


def test_a_target_changes_what_is_counted_and_not_what_it_costs() -> None:
    config, plain = made(), made(target=None)
    assert len(LargerMarginals.cliques(config)) == len(LargerMarginals.cliques(plain)) + 1
    prices = [[draw.price for draw in plan_budget(c).draws] for c in (config, plain)]
    assert prices[0] == prices[1]
    sizes = counted_sizes(config)
    assert [sizes[place] for place in table_of(config)] == [2] * 8
    assert len(config.written) > len(plain.written)


def test_the_table_has_all_columns_in_two_bins_if_it_is_small() -> None:
    """The target is in its own bins, and a code that is no bin has a cell of its own."""
    names = ("many", "few", "bins", "label")
    attributes = [
        Attribute(name=name, column=name, labels=(), bins=bins)
        for name, bins in zip(names, (0, 2, 9, 8), strict=True)
    ]
    sizes = (7, 3, 10, 8)
    levels = BinLevels.make(sizes, attributes, coarsens=False, targets=["label"])
    assert levels.sizes == (*sizes, 3)
    assert levels.beside_targets(7 * 3 * 3 * 8) == (0, 1, 3, 4)
    assert levels.beside_targets(7 * 3 * 3 * 8 - 1) == ()
    assert levels.within((0, 2, 3), 1) == (0, 2, 3)
    assert BinLevels.make(sizes, attributes).beside_targets(10**6) == ()
    ((place, codes),) = levels.codes([np.arange(size) for size in sizes])
    assert (place, codes.tolist()) == (2, [0, 0, 0, 0, 0, 1, 1, 1, 1, 2])
    table = {"columns": ["label"], "cells": 7 * 3 * 3 * 8}
    of_all, of_pairs = (
        AllCliques.model_validate({"all": length, "target": table}) for length in (4, 2)
    )
    assert [*of_all.places(levels)] == [(0, 1, 2, 3)]
    assert [*of_pairs.places(levels)][-1] == (0, 1, 3, 4)


def test_marginals_with_the_target_have_more_of_the_budget() -> None:
    """`weight` times the cost of another of as many cells; single columns are measured as before."""
    config, plain = made(), made(target=None)
    plan = plan_budget(config)
    sizes = counted_sizes(config)
    sigmas = plan.draw(LargerMarginals).sigmas(config)
    costs: dict[tuple[bool, int], float] = {}
    for clique, sigma in zip(LargerMarginals.cliques(config)[:-1], sigmas[:-1], strict=True):
        cells = math.prod(sizes[place] for place in clique)
        costs[7 in clique, cells] = cells ** (2 / 3) * float(sigma) ** 2
    with_target = [cost for (has_target, _), cost in costs.items() if has_target]
    others = [cost for (has_target, _), cost in costs.items() if not has_target]
    assert np.mean(others) / np.mean(with_target) == pytest.approx(10, rel=1e-2)
    single = [plan_budget(c).draw(OneWayMarginals).sigmas(c) for c in (config, plain)]
    assert single[0] == single[1]


def released(config: Configuration, rows: Any, rng: np.random.Generator) -> Marginals:
    """What a run of this configuration measures of codes, shape (rows, attributes), with its noise."""
    plan = plan_budget(config)
    sizes = public_sizes(config)
    names = tuple(attribute.name for attribute in config.attributes)
    domain = Domain(names=names, labels=tuple(attribute.labels for attribute in config.attributes))

    def noisy(kind: Any, block: Any, all_sizes: Any) -> list[Observation]:
        cliques = kind.cliques(config)
        tables = count_marginals([block], all_sizes, cliques)
        sigmas = map(float, plan.draw(kind).sigmas(config))
        return [
            Observation(
                attributes=clique,
                counts=table + np.rint(rng.normal(0, sigma, table.shape)).astype(np.int64),
                deviation=sigma,
            )
            for clique, table, sigma in zip(cliques, tables, sigmas, strict=True)
        ]

    one_way = tuple(noisy(OneWayMarginals, [*rows.T], sizes))
    first = Marginals(domain=domain, one_way=one_way, larger=())
    merged = compression_of(first, config)[1].codes
    codes = config.marginal_settings.levels(sizes, config.attributes).codes(merged)
    counted = [new[column] for new, column in zip(merged, rows.T, strict=True)]
    counted += [coarse[counted[a]] for a, coarse in codes]
    all_sizes = [int(column.max()) + 1 for column in counted]
    larger = noisy(LargerMarginals, counted, all_sizes)
    finest, coarse = by_level(larger, codes, len(sizes))
    return normalize_marginals(
        Marginals(domain=domain, one_way=one_way, larger=finest, coarse=coarse), config
    )


KEPT: Mapping[int, float] = {3: 0.93, 4: 0.9, 7: 0.85}


@pytest.mark.parametrize("columns", KEPT)
def test_a_parity_of_numbers_is_kept_by_the_records(columns: int) -> None:
    """The label says whether the number of large ones among the first is even; epsilon is 1. All draws are fixed.

    Without the target half of the records keep it.
    """
    rng = np.random.default_rng(columns)
    numbers = rng.integers(0, 12, (ROWS, 7))
    label = (numbers[:, :columns] > 5).sum(axis=1) % 2
    rows = np.column_stack([numbers, label])
    config = made()
    assert isinstance(config.synthesize, MixtureSynthesis)
    inputs, _ = estimation_input(released(config, rows, rng), config)
    measured, noise = inputs.measured()
    model = fit_mixture(
        measured, inputs.sizes, inputs.total, inputs.masks, config.synthesize, noise=noise
    )
    records = every_record(
        RecordSampler(sample=partial(sample_mixture, model), number=ROWS, seed=1)
    )
    odd = (records[:, :columns] > 5).sum(axis=1) % 2
    assert (odd == records[:, 7]).mean() >= KEPT[columns]


def test_plan_says_what_is_counted_for_the_target() -> None:
    said = str(_counted(made()))
    assert "those with label with 10 times the budget, and one of all columns in few bins" in said
    assert "(256 cells, 30.0 % of the budget of these)" in said
    assert "one of all columns" not in str(_counted(made(rows=3_350)))
    assert "whatever the target is" in str(_counted(made(rows=300)))
    assert "budget" not in str(_counted(made(target=None)))


def test_auto_gives_the_table_fewer_cells_and_less_budget_where_there_is_less() -> None:
    def settings(**changes: Any) -> Any:
        cliques = made(**changes).marginal_settings.cliques
        return cliques.target if isinstance(cliques, AllCliques) else None

    usual = settings()
    assert usual.columns == ("label",)
    assert (usual.share, usual.weight) == (0.3, 10.0)
    assert settings(rows=2 * ROWS).cells == pytest.approx(2 * usual.cells, rel=0.01)
    wide = {f"y{i}": LABEL for i in range(8)} | COLUMNS
    assert settings(columns=wide, rows=10**6).share == pytest.approx(
        11 / math.comb(16, 2), rel=1e-4
    )
    assert settings(target=["label", "x0"]).columns == ("label", "x0")
    assert settings(target=None) is settings(synthesize={"method": "gum"}) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "lable"}, "^target names 'lable', which is no attribute that is counted"),
        ({"aggregate": {"method": "marginals"}}, "^target is for aggregate: {method: auto}; where"),
        (
            {
                "target": None,
                "aggregate": {
                    "method": "marginals",
                    "cliques": {"all": 2, "target": {"columns": ["label"]}},
                },
                "synthesize": {"method": "gum"},
            },
            "^aggregate.cliques.target needs synthesize.method: mixture",
        ),
        (
            {
                "target": None,
                "aggregate": {
                    "method": "marginals",
                    "cliques": {"all": 2, "target": {"columns": ["no"]}},
                },
            },
            "^aggregate.cliques.target names 'no', which is no attribute that is counted",
        ),
    ],
)
def test_a_target_that_cannot_be_measured_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(**changes)
