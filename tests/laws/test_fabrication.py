"""Laws of `aggregate.fabrication: none`: nothing that nobody has is released, and every length pays for that."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.counts.candidates import CandidateSet
from marginweave.counts.level import draw_level, level_noise, plan_level, visits_all
from marginweave.forecast.noise import combinations_forecast, forecast
from marginweave.ledger.plans import check_plan
from marginweave.measurements.combinations import Aggregates, Domain, Level
from marginweave.mechanisms.gaussian import noise_sigma
from marginweave.mechanisms.noise_table import noise_table
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.planning.split import plan_budget
from marginweave.planning.thresholds import private_threshold
from tests.support.budget_plans import configuration as planned
from tests.support.configurations import PRIVATE, configuration
from tests.support.level_draws import bounded, category, clopper_pearson, table_of
from tests.support.printed_thresholds import ONE_ROW, printed_threshold
from tests.support.published import stated
from tests.support.tables import level_from, tuple_counts


def unfabricated(**changes: Any):
    return configuration(aggregate__fabrication="none", **changes)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_length_has_an_equal_part_of_delta(private: bool, length: int) -> None:
    """R parts add to delta_threshold, with private domains or without; the ledger believes the plan."""
    plan = plan_budget(planned(private=private, reporting_length=length, fabrication="none", delta=1e-6))
    levels = [draw.cost.delta for draw in plan.draws if draw.length and draw.mechanism == "rounded-gaussian"]
    assert len(set(levels)) == 1
    assert len(levels) == length
    assert plan.delta_threshold == pytest.approx(1e-7)
    assert float(sum(levels)) == pytest.approx(plan.delta_threshold, rel=1e-12)
    assert plan.cost.delta == sum(levels)
    assert plan.spent_epsilon <= plan.epsilon
    check_plan(plan)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_thresholds_are_those_of_remark_1_1_on_integers(neighbors: Any, length: int) -> None:
    """T_k pays for Delta_k new combinations with delta/(2 R), as printed with accountant sds; within 1.5 of the real one."""
    config = unfabricated(privacy={"epsilon": 1.0, "delta": 1e-6, "unit": "row", "neighbors": neighbors})
    plan, unit = plan_budget(config), config.stability
    bound = config.contribution_cap(length)
    sd = noise_sigma(plan.by_name[f"level-{length}"].parameter, bound, unit)
    below = Level.empty(length - 1) if length > 1 else None
    sizes = tuple(len(a.labels) for a in config.attributes)
    candidates = CandidateSet(length=1, sizes=sizes) if below is None else CandidateSet.above(below, sizes)
    mechanism = plan_level(
        config,
        candidates=candidates,
        survivors_before=0,
        contribution_bound=bound,
        sigma=sd,
        delta_threshold=plan.delta_threshold,
    )
    part = plan.delta_threshold / 3
    assert mechanism.threshold == private_threshold(sd, bound, 1, part)
    assert 1 - (1 - noise_table(sd).upper_tail(mechanism.threshold - 1)) ** bound <= Fraction(part)
    real = printed_threshold(float(sd) / math.sqrt(bound), bound, 2 * part)
    assert real < mechanism.threshold <= real + 1.5 + 0.02
    assert mechanism.occurring_only
    assert visits_all(candidates, mechanism)
    assert level_noise(mechanism, candidates).candidates is None
    assert ONE_ROW.records == unit.records


ALONE = 20_000


def test_combinations_of_one_record_are_published_with_probability_delta_over_r_at_most() -> None:
    """20,000 records with three pairs of their own each, lone values having survived: P(any pair is out) <= .3 / 3.

    False alarm 1e-6. Zero cells would release hundreds of thousands; without the root of Delta it is .27, with all of delta .3.
    """
    config = configuration(
        columns={name: category(ALONE) for name in "abc"}, aggregate={"fabrication": "none", "reporting_length": 3}
    )
    alone = list(range(ALONE))
    table = table_of([alone] * 3, [ALONE] * 3)
    survivors = level_from({((j, v),): 1 for j in range(3) for v in range(ALONE)}, 1)
    candidates = CandidateSet.above(survivors, table.sizes)
    sd = Fraction(30)
    mechanism = plan_level(
        config,
        candidates=candidates,
        survivors_before=len(survivors),
        contribution_bound=3,
        sigma=sd,
        delta_threshold=0.3,
    )
    counts = bounded(table, candidates, 3)
    level = draw_level(counts, candidates, mechanism, fresh_bits())
    assert (level.values[:, 0] == level.values[:, 1]).all()
    out = len(np.unique(level.values[:, 0]))
    low, high = clopper_pearson(out, ALONE)
    exact = float(1 - (1 - noise_table(sd).upper_tail(mechanism.threshold - 1)) ** 3)
    assert low <= exact <= high
    assert 0.09 < exact <= 0.1


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=30),
    st.sampled_from(["uncontrolled", {"fixed": {1: 0, 2: 0, 3: 0}}]),
)
@settings(max_examples=20, deadline=None)
def test_what_is_released_occurs(rows: list[tuple[int, int, int]], thresholds: Any) -> None:
    """At lengths 1 to 3, whatever survived below: a subset of what the records hold, where the threshold is within reach."""
    sizes = (2, 3, 5)  # the largest code of each column is the missing value
    config = configuration(
        columns={"a": category(2), "b": category(3), "c": PRIVATE},
        aggregate={"fabrication": "none", "thresholds": thresholds},
    )
    table = table_of([[row[j] for row in rows] for j in range(3)], sizes)
    candidates = CandidateSet(length=1, sizes=sizes)
    for length in (1, 2, 3):
        if length > 1:
            every = level_from(dict.fromkeys(tuple_counts(table, length - 1), 1), length - 1)
            candidates = CandidateSet.above(every, sizes)
        mechanism = plan_level(
            config,
            candidates=candidates,
            survivors_before=1,
            contribution_bound=3,
            sigma=Fraction(5),
            delta_threshold=0.9,
        )
        level = draw_level(bounded(table, candidates, 3), candidates, mechanism, fresh_bits())
        held = tuple_counts(table, length)
        released = [
            tuple(zip(c, v, strict=True)) for c, v in zip(level.columns.tolist(), level.values.tolist(), strict=True)
        ]
        assert set(released) <= set(held)
        assert (level.counts >= mechanism.threshold).all()
        assert mechanism.threshold > 1


def test_plan_and_statement_say_it() -> None:
    """The threshold of each length, its part of delta, and privacy.json's words."""
    config = unfabricated()
    plan = plan_budget(config)
    drawn = {row.name: row for row in forecast(config)[0]}
    bound = config.contribution_cap(2)
    sd = noise_sigma(plan.by_name["level-2"].parameter, bound, config.stability)
    assert drawn["level-2"].threshold == str(private_threshold(sd, bound, 1, plan.delta_threshold / 3))
    assert combinations_forecast(config) == [
        "Fabrication: none; each of 3 length(s) spends 3.33e-08 of delta on its threshold"
    ]
    names = tuple(attribute.name for attribute in config.attributes)
    domain = Domain(names=names, labels=tuple(attribute.labels for attribute in config.attributes))
    levels = tuple(
        level_noise(
            plan_level(
                config,
                candidates=CandidateSet(length=1, sizes=domain.sizes),
                survivors_before=0,
                contribution_bound=4,
                sigma=Fraction(3),
                delta_threshold=plan.delta_threshold,
            ),
            CandidateSet(length=1, sizes=domain.sizes),
        )
        for _ in range(3)
    )
    released = Aggregates(domain=domain, record_count=9, record_deviation=1.0, levels=(), noise=levels)
    statement = stated(config, plan, released)
    assert statement.guarantee.fabrication == "none"
    assert "only combinations that occur get noise" in statement.composition
    rows = {row.draw: float(row.delta) for row in statement.mechanisms}
    assert rows["level-3"] == pytest.approx(plan.delta_threshold / 3)
    assert statement.guarantee.delta_threshold == plan.delta_threshold
    plain = stated(configuration(), plan_budget(configuration()), released)
    assert plain.guarantee.fabrication == "possible"
    assert "only combinations" not in plain.composition
