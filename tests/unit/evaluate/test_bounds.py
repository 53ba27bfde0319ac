"""Bounds on marginals and on what bounding takes: closed forms, and where nothing is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain, UndeclaredCells
from marginweave.estimate.intervals import marginal_intervals
from marginweave.estimate.marginals import marginal_counts, normalize_marginals
from marginweave.evaluate.bounds import (
    bounding_biases,
    combination_bounds,
    distance_bound,
    marginal_bounds,
    most_cut_records,
)
from marginweave.evaluate.cells import Records
from marginweave.evaluate.verdict import verdict
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.means import expected_noise
from marginweave.observations.tables import Marginals, Observation
from marginweave.publish.wording import stated_confidence
from tests.support.configurations import configuration

MARGINALS = {"method": "marginals", "cliques": [["sex", "region"]]}
TWO = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "region": {"type": "category", "values": ["n", "s", "w"]},
}
IMPUTED = {
    f"columns__{name}__impute": {"distribution": "uniform"}
    for name in ("sex", "region", "age", "grade")
}


def test_the_bound_is_the_closed_form_of_aim() -> None:
    """lambda = 1 at confidence 1 - 1/e; 8 cells, s = 2: 10 + 2 (1.17741 x 8 + 4)."""
    found = distance_bound(10.0, 2.0, 8, level=1 - math.exp(-1))
    assert found == pytest.approx(10 + 2 * (1.1774100225 * 8 + 4))
    assert distance_bound(0.0, 2.0, 0) == 0
    for arguments, level in (((1.0, 1.0, 1), 1.0), ((1.0, -1.0, 1), 0.9)):
        with pytest.raises(InputError, match="must"):
            distance_bound(*arguments, level=level)


def two_columns(complete: bool = True, rare: int = 90) -> Marginals:
    """Marginals of two columns over 200 records, or fewer with a small `rare`, that agree exactly."""
    table = np.array([[50, 20, rare // 2, 0], [30, 10, rare // 2, 0], [0, 0, 0, 0]], np.int64)
    one = Observation(attributes=(0,), counts=table.sum(axis=1), deviation=3.0, complete=complete)
    other = Observation(attributes=(1,), counts=table.sum(axis=0), deviation=6.0, complete=complete)
    pair = Observation(attributes=(0, 1), counts=table, deviation=2.0, complete=complete)
    domain = Domain(names=("sex", "region"), labels=(("f", "m"), ("n", "s", "w")))
    return Marginals(domain=domain, one_way=(one, other), larger=(pair,))


def test_measurements_of_the_same_attributes_are_combined() -> None:
    """With nothing merged a column has its own marginal and that of the pair: 1/s^2 is the sum of both; else its own alone."""
    config = configuration(columns=TWO, aggregate={**MARGINALS, "compress": "none"})
    drawn = two_columns()
    made = tuple(
        np.repeat(
            np.indices((3, 4)).reshape(2, -1),
            drawn.larger[0].counts.ravel().astype(np.int64),
            axis=1,
        )
    )
    bounds = {
        b.attributes: b for b in marginal_bounds(drawn, Records([made], drawn.domain), config)
    }
    assert set(bounds) == {("sex",), ("region",), ("sex", "region")}
    assert [b.distance for b in bounds.values()] == pytest.approx([0, 0, 0])
    variances = [9 + 1 / 12, 36 + 1 / 12, 4 + 1 / 12]
    together = (1 / variances[0] + 1 / (4 * variances[2])) ** -0.5
    assert bounds[("sex",)].bound == pytest.approx(distance_bound(0, together, 3))
    assert bounds[("sex", "region")].bound == pytest.approx(
        distance_bound(0, math.sqrt(variances[2]), 12)
    )


def test_groups_are_as_small_as_both_releases_can_tell() -> None:
    """Where counts are pooled, the noise of a set is that of both together, and so is the least group of the verdict."""
    config = configuration(columns=TWO, aggregate={**MARGINALS, "compress": "none"})
    drawn = two_columns()
    both = [
        replace(m, counts=m.counts + 0.5, deviation=m.deviation / 2)
        for m in (*drawn.one_way, *drawn.larger)
    ]
    made = tuple(
        np.repeat(
            np.indices((3, 4)).reshape(2, -1),
            drawn.larger[0].counts.ravel().astype(np.int64),
            axis=1,
        )
    )
    least = []
    for marginals in (drawn, replace(drawn, pooled=tuple(both))):
        bounds = marginal_bounds(marginals, Records([made], drawn.domain), config)
        found = {len(b.attributes): [b.deviation] for b in bounds if b.deviation}
        assert found[2][0] == pytest.approx(math.sqrt((1 if marginals.pooled else 4) + 1 / 12))
        errors = {b.attributes: 0.01 for b in bounds}
        least.append(
            [
                row.least_group
                for row in verdict(errors, {2: found[2]}, 200.0).lengths
                if row.length == 2
            ]
        )
    assert least == [[9], [5]]


def test_records_without_a_value_that_cannot_be_missing_are_in_no_cell() -> None:
    """Their number, weighted like all records, is a part of the distance and of its bound that is known."""
    columns = {**TWO, "sex": {**TWO["sex"], "missing": [], "outside": "error"}}
    config = configuration(columns=columns, aggregate={**MARGINALS, "compress": "none"})
    drawn = two_columns()
    one, other = (replace(m, counts=m.counts[:2]) for m in (drawn.one_way[0], drawn.larger[0]))
    drawn = replace(drawn, one_way=(one, drawn.one_way[1]), larger=(other,))
    made = np.repeat(
        np.indices((2, 4)).reshape(2, -1), other.counts.ravel().astype(np.int64), axis=1
    )
    made[0, :30] = 2
    bounds = {
        b.attributes: b
        for b in marginal_bounds(drawn, Records([tuple(made)], drawn.domain), config)
    }
    assert [
        bounds[c].distance for c in (("sex",), ("region",), ("sex", "region"))
    ] == pytest.approx([60, 0, 60])
    plain = distance_bound(30, math.sqrt(4 + 1 / 12), 8)
    assert bounds[("sex", "region")].bound == pytest.approx(plain + 30)


def test_an_empty_cell_of_a_record_is_missing_or_not_as_declared() -> None:
    """Where both were counted, records are compared with the sum, whose noise is at most that of both."""
    config = configuration(
        columns=TWO,
        aggregate={**MARGINALS, "compress": "none"},
        structure={"forbidden": [{"region": "n", "sex": ""}]},
    )
    table = np.array([[50, 20, 30, 0], [30, 10, 20, 0], [0, 10, 15, 0], [5, 5, 40, 0]], np.int64)
    one = Observation(attributes=(0,), counts=table.sum(axis=1), deviation=3.0)
    other = Observation(attributes=(1,), counts=table.sum(axis=0), deviation=3.0)
    pair = Observation(attributes=(0, 1), counts=table, deviation=2.0)
    undeclared = UndeclaredCells(
        name="sex", count=50, deviation=3.0, low=40, high=60, found=True, kept=True
    )
    domain = replace(two_columns().domain, undeclared=(undeclared,))
    drawn = Marginals(domain=domain, one_way=(one, other), larger=(pair,))
    sex, region = np.indices((4, 4)).reshape(2, -1)
    made = (np.repeat(np.minimum(sex, 2), table.ravel()), np.repeat(region, table.ravel()))
    bounds = {b.attributes: b for b in marginal_bounds(drawn, Records([made], domain), config)}
    assert [b.distance for b in bounds.values()] == pytest.approx([0, 0, 0])
    noise = distance_bound(0, math.sqrt(4 + 1 / 12), 16)
    assert bounds[("sex", "region")].bound == pytest.approx(noise)


def test_incomplete_marginals_bound_nothing() -> None:
    config = configuration(columns=TWO, aggregate={**MARGINALS, "compress": "none"})
    made = (np.zeros(5, np.int64), np.zeros(5, np.int64))
    drawn = two_columns(complete=False)
    assert {b.bound for b in marginal_bounds(drawn, Records([made], drawn.domain), config)} == {
        None
    }


def test_a_value_measured_with_others_may_be_as_rare_as_nothing() -> None:
    """region w (4 records) and the missing one are measured together: its pairs have from 0 to the count of both."""
    config = configuration(columns=TWO, aggregate={**MARGINALS, "compress": 3.0})
    drawn = two_columns(rare=4)
    pair = replace(
        drawn.larger[0], counts=np.array([[50, 20, 12], [30, 10, 2], [0, 0, 0]], np.int64)
    )
    drawn = replace(drawn, larger=(pair,))
    told = marginal_counts(normalize_marginals(drawn, config), config)
    second = marginal_intervals(told, drawn, config)[1]
    rows = {
        tuple(v): (low, high)
        for v, low, high in zip(
            told.levels[1].values.tolist(), second.low, second.high, strict=True
        )
    }
    assert rows[0, 0] == (46, 54)
    assert rows[0, 2] == (0, 16)


def aggregates(bound: int, config: Configuration, length: int = 2) -> Aggregates:
    """An empty release in which all lengths below `length` have their public cap, and `length` has `bound`."""
    noise = tuple(
        LevelNoise(
            length=k,
            contribution_bound=bound if k == length else config.contribution_cap(k),
            deviation=5.0,
            threshold=1,
            private_threshold=0,
            candidates=None,
        )
        for k in range(1, length + 1)
    )
    levels = tuple(Level.empty(n.length) for n in noise)
    return Aggregates(
        domain=Domain(names=(), labels=()),
        record_count=1000,
        record_deviation=20.0,
        levels=levels,
        noise=noise,
    )


def epsilons(plan: Plan) -> dict[int, float]:
    return {bound.length: bound.epsilon for bound in plan.of(ContributionBound)}


def test_the_bias_is_known_where_the_percentile_was_bought() -> None:
    """0 at the public cap; otherwise (1 - q) (n + 1/2 + z sd) + (2 x .99 / epsilon) ln(6 / .025), rounded down."""
    config = configuration(aggregate={"percentile": 99})
    plan, told = plan_budget(config), aggregates(4, config)
    first, second = bounding_biases(config, epsilons(plan), told)
    assert (first.records, first.confidence) == (0, 1.0)
    epsilon = plan.by_name["percentile-2"].parameter
    expected = 0.01 * (1000.5 + 1.959964 * 20) + 2 * 0.99 / epsilon * math.log(6 / 0.025)
    assert (second.records, second.confidence) == (math.floor(expected), 0.95)
    assert str(second.records) in second.words
    facts = stated_confidence(config, plan, told)
    assert facts.bounding == (first, second)
    assert "truncated" in facts.intervals[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy__unit": {"column": "id", "max_records": 3}}, "max_records"),
        ({"resize": {"records": 50}, **IMPUTED}, "sample"),
        (
            {
                "columns__tags": {
                    "type": "set",
                    "separator": ";",
                    "values": ["a", "b", "c"],
                    "max_values": 2,
                }
            },
            "max_values",
        ),
    ],
    ids=["subjects", "resize", "sets"],
)
def test_the_bias_is_not_known_where_rows_or_values_were_left_out(
    changes: dict[str, Any], words: str
) -> None:
    config = configuration(aggregate={"percentile": 99}, **changes)
    for bias in bounding_biases(config, epsilons(plan_budget(config)), aggregates(2, config)):
        assert (bias.records, bias.confidence) == (None, None)
        assert bias.words.startswith("not known: ")
        assert words in bias.words


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy__unit": {"column": "id", "join": True}},
        {"columns__tags": {"type": "set", "separator": ";", "values": ["a", "b"], "max_values": 2}},
    ],
    ids=["joined", "sets that are never cut"],
)
def test_what_is_never_cut_is_known(changes: dict[str, Any]) -> None:
    config = configuration(aggregate={"percentile": 99}, **changes)
    biases = bounding_biases(config, epsilons(plan_budget(config)), aggregates(2, config))
    assert [b.confidence for b in biases] == [1.0, 0.95]


def test_marginals_cut_nothing_and_the_cap_needs_no_percentile() -> None:
    config = configuration(aggregate={"percentile": "none"})
    told = aggregates(config.contribution_cap(2), config)
    assert [b.records for b in bounding_biases(config, epsilons(plan_budget(config)), told)] == [
        0,
        0,
    ]
    with pytest.raises(InputError, match="percentile"):
        most_cut_records(config, 0.1, told, 2)
    marginals = configuration(columns=TWO, aggregate=MARGINALS)
    assert [b.records for b in bounding_biases(marginals, {}, aggregates(1, marginals))] == [0, 0]
    tags = {"type": "set", "separator": ";", "values": ["a", "b", "c"], "max_values": 2}
    cut = configuration(columns={**TWO, "tags": tags}, aggregate=MARGINALS)
    assert {b.records for b in bounding_biases(cut, {}, aggregates(1, cut))} == {None}


@pytest.mark.parametrize(
    ("bound", "threshold", "error"), [(1, 5, 5.0), (1, 40, 40.0), (0, 5, 2000.0)]
)
def test_of_k_tuples_a_missing_value_is_no_noise(bound: int, threshold: int, error: float) -> None:
    """Of 2,500 records 2,000 lack the value, and one of three was below the threshold: so many records are lost at most.

    Where bounding contributions takes any (`bound` below the most that a record holds), nobody knows how many.
    """
    config = configuration(
        columns={"cause": {**TWO["region"], "missing": [""]}}, aggregate={"reporting_length": 1}
    )
    noise = LevelNoise(
        length=1,
        contribution_bound=bound,
        deviation=0.01,
        threshold=threshold,
        private_threshold=0,
        candidates=3,
    )
    level = Level(
        length=1,
        columns=np.array([[0], [0]]),
        values=np.array([[0], [1]]),
        counts=np.array([200, 300]),
    )
    drawn = Aggregates(
        domain=Domain(names=("cause",), labels=(("n", "s", "w"),)),
        record_count=2500,
        record_deviation=1.0,
        levels=(level,),
        noise=(noise,),
    )
    made = (np.repeat([0, 1, 3], [200, 300, 2000]),)
    (found,) = combination_bounds(drawn, Records([made], drawn.domain), config)
    expected = expected_noise(math.sqrt(0.01**2 + 1 / 12), 2)
    assert found.noise == pytest.approx(expected + error)
