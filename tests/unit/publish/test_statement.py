"""privacy.json tells of every draw what `plan` told before it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from marginweave.domain.labels import Domain
from marginweave.forecast.noise import forecast
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.private_values import PrivateValues
from marginweave.measurements.split import plan_budget
from marginweave.observations.combinations import Aggregates
from marginweave.publish.statement import APPROVED, APPROVED_AFTER_A_LOOK, promise
from tests.support.configurations import configuration
from tests.support.published import FACTS, stated


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_values_and_selection_have_the_noise_and_threshold_of_the_plan(neighbors: str) -> None:
    """Deviations to the digit that `plan` shows, from the same public numbers; a draw of many marginals has none here."""
    config = configuration(
        aggregate__method="marginals",
        privacy__neighbors=neighbors,
        columns__region={"type": "category", "domain": "private"},
        columns__sex={"type": "set", "values": ["f", "m", "x"], "max_values": 2},
    )
    plan = plan_budget(config)
    names = tuple(attribute.name for attribute in config.attributes)
    domain = Domain(names=names, labels=tuple(attribute.labels for attribute in config.attributes))
    released = Aggregates(domain=domain, record_count=9, record_deviation=1.0, levels=(), noise=())
    statement = stated(config, plan, released, replace(FACTS, returned=("marginals",)))
    told = {row.draw: row for row in statement.mechanisms}
    planned = {row.name: row for row in forecast(config)[0]}
    assert list(told) == list(planned) == ["values", "one-way", "selection", "marginals"]
    for name in ("values", "selection"):
        assert str(planned[name].noise) == f"sd {told[name].sigma:.1f}"
    assert planned["values"].threshold == str(told["values"].threshold)
    values = plan.draw(PrivateValues)
    deviation, threshold = values.sigma(config), values.threshold(config)
    assert (told["values"].sigma, told["values"].threshold) == (float(deviation), threshold)
    grid = plan.draw(PairScores).grid(config)
    assert (told["selection"].sigma or 0) * grid.steps == pytest.approx(float(grid.sigma))
    for name in ("one-way", "marginals"):
        assert (told[name].sigma, told[name].threshold) == (None, None)
    assert told["selection"].threshold is None
    assert told["selection"].step == 1 / grid.steps
    assert {name: row.state for name, row in told.items()} == {
        **dict.fromkeys(told, "drawn"),
        "marginals": "returned",
    }
    assert statement.guarantee.on_the_sampled_table is None


def test_an_amplified_resize_states_what_its_draws_are_on_the_sampled_table() -> None:
    """Half of the rows: ln(1 + 2 (e - 1)) = 1.49 at 2e-6 for one copy, beside the (1, 1e-6) towards the data."""
    imputed = {
        f"columns__{name}__impute": {"distribution": "uniform"}
        for name in ("sex", "region", "age", "grade")
    }
    config = configuration(
        aggregate__method="marginals",
        resize={"records": 100, "proportion": 0.5, "amplify": True},
        **imputed,
    )
    domain = Domain(
        names=tuple(config.columns),
        labels=tuple(attribute.labels for attribute in config.attributes),
    )
    released = Aggregates(domain=domain, record_count=9, record_deviation=1.0, levels=(), noise=())
    guarantee = stated(config, plan_budget(config), released).guarantee
    assert guarantee.epsilon == guarantee.epsilon_of_the_draws == 1.0
    assert guarantee.on_the_sampled_table is not None
    assert guarantee.on_the_sampled_table.model_dump() == pytest.approx(
        {"epsilon": math.log(1 + 2 * math.expm1(1)), "delta": 2e-6}
    )


@pytest.mark.parametrize("looked", [False, True])
def test_an_approval_is_not_said_to_be_blind_where_somebody_has_looked_at_the_rows(
    looked: bool,
) -> None:
    config = configuration(publish__approval="required")
    told = promise(config, plan_budget(config), replace(FACTS, evaluated_until_now=looked))
    assert [str(APPROVED) in told.assumptions, str(APPROVED_AFTER_A_LOOK) in told.assumptions] == [
        not looked,
        looked,
    ]
