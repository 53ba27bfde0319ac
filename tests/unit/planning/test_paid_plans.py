"""The draw of a bought comparison: its share, its place, its price, what `plan` and privacy.json say, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from marginweave.accounting.composition import composed_epsilon
from marginweave.accounting.selection_composition import release_epsilon
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.forecast.noise import forecast
from marginweave.ledger.plans import check_plan
from marginweave.measurements.combinations import Aggregates, Domain
from marginweave.mechanisms.gaussian import error_sigma
from marginweave.planning.split import plan_budget
from marginweave.runs.limits import check_size
from tests.support.configurations import configuration
from tests.support.published import stated

IMPUTED = {f"columns__{name}__impute": {"distribution": "uniform"} for name in ("sex", "region", "age", "grade")}
METHODS: dict[str, dict[str, Any]] = {
    "k-tuples": {"aggregate__percentile": "none"},
    "k-tuples with a percentile": {"aggregate__percentile": 90},
    "k-tuples of a private domain": {"columns__sex": {"type": "category", "domain": "private"}},
    "k-tuples with private bounds": {
        "columns__age": {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}
    },
    "marginals": {"aggregate__method": "marginals"},
    "single marginals": {"aggregate__method": "marginals", "aggregate__cliques": {"all": 1}},
    "resized": {"aggregate__method": "k-tuples", "resize": {"records": 100, "proportion": 1.5}, **IMPUTED},
}


def buying(share: float = 0.05, **changes: Any) -> Configuration:
    return configuration(evaluate__paid={"share": share}, **changes)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS.keys())
def test_it_has_its_share_is_planned_last_and_the_whole_is_spent(changes: dict[str, Any], neighbors: str) -> None:
    """1 / multiplier^2 is its share of what all draws together cost; the ledger believes the plan."""
    config = buying(privacy__neighbors=neighbors, **changes)
    plan = plan_budget(config)
    draw = plan.draws[-1]
    assert (draw.name, draw.mechanism, draw.length, draw.cost.delta) == ("evaluation", "rounded-gaussian", 0, 0)
    assert draw.parameter**-2 / float(plan.cost.mu2) == pytest.approx(0.05, rel=1e-3)
    spent = min(composed_epsilon(plan.cost, Decimal("1e-6"))[0], release_epsilon(plan.draws, 1e-6, 1.0))
    assert spent == pytest.approx(plan.spent_epsilon, rel=1e-9)
    assert 1 - 1e-6 < spent <= 1.0
    check_plan(plan)
    check_size(config)


@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS.keys())
def test_plan_and_privacy_json_have_its_noise(changes: dict[str, Any]) -> None:
    config = buying(**changes)
    plan = plan_budget(config)
    sd = float(error_sigma(plan.by_name["evaluation"].parameter, config.stability))
    row = forecast(config)[0][-1]
    assert (row.name, row.noise, row.threshold) == ("evaluation", f"sd {sd:.1f}", "")
    assert row.error == f"± {sd * 0.7978845608:.1f}"
    assert row.share == pytest.approx(0.05, rel=1e-3)
    if config.marginals is not None:
        names = tuple(attribute.name for attribute in config.attributes)
        domain = Domain(names=names, labels=tuple(attribute.labels for attribute in config.attributes))
        released = Aggregates(domain=domain, record_count=9, record_deviation=1.0, levels=(), noise=())
        told = stated(config, plan, released).mechanisms[-1]
        assert (told.draw, told.sigma, told.sensitivity) == ("evaluation", sd, 1)


def test_an_amplified_resize_pays_for_it_with_the_rest() -> None:
    """The draws have the functional budget together; the charge, plain and on the first, is what is stated, as without it."""
    changes = {"resize": {"records": 100, "amplify": True, "proportion": 0.5}, **IMPUTED}
    plan, without = plan_budget(buying(**changes)), plan_budget(configuration(**changes))
    assert plan.cost == without.cost
    assert [draw.name for draw in plan.draws] == [*(draw.name for draw in without.draws), "evaluation"]
    squares = [sum(draw.parameter**-2 for draw in p.draws if draw.mechanism != "exponential") for p in (plan, without)]
    assert squares[0] == pytest.approx(squares[1], rel=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "auto"])
def test_laplace_noise_leaves_it_its_own(noise: str) -> None:
    """It stays Gaussian, and `auto` compares the noise of the marginals as it does without it: Laplace for four at 1e-9."""
    config = buying(
        aggregate__method="marginals",
        aggregate__noise=noise,
        aggregate__cliques=[["sex", "age"], ["sex", "grade"]],
        privacy__delta=1e-9,
    )
    plan = plan_budget(config)
    assert [draw.mechanism for draw in plan.draws] == ["discrete-laplace"] * 2 + ["rounded-gaussian"]
    assert 1 - 1e-6 < plan.spent_epsilon <= 1
    check_plan(plan)
    assert forecast(config)[0][-1].name == "evaluation"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluate__paid__length": 4}, r"evaluate\.paid\.length.*must be at most 3"),
        ({"evaluate__paid__length": 0}, r"evaluate\.paid\.length.*must be at least 1"),
        ({"evaluate__paid__share": 0}, r"evaluate\.paid\.share.*must be positive"),
        ({"evaluate__paid__metric": "tvd"}, r"evaluate\.paid\.metric"),
        (
            {"columns": {"sex": {"type": "category", "values": ["f", "m"]}}},
            r"evaluate\.paid\.length \(2\) must be at most .* one value a cell \(1\)",
        ),
    ],
)
def test_what_cannot_be_bought_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configuration(**{"evaluate__paid__share": 0.05, **changes})


@pytest.mark.parametrize("method", ["k-tuples", "marginals"])
def test_a_share_that_leaves_nothing_is_refused(method: str) -> None:
    with pytest.raises(InputError, match=r"and evaluate\.paid\.share \(0\.99\) must leave something for the"):
        plan_budget(buying(0.99, aggregate__method=method))


def test_too_many_marginals_and_too_much_noise_are_refused() -> None:
    many = {f"c{i}": {"type": "category", "values": ["f", "m"]} for i in range(60)}
    with pytest.raises(InputError, match=r"evaluate\.paid\.length \(3\) makes 34220 marginals, more than 20000"):
        check_size(
            configuration(columns=many, evaluate__paid={"share": 0.05, "length": 3}, aggregate={"reporting_length": 1})
        )
    with pytest.raises(InputError, match=r"the noise of evaluation .* a larger evaluate\.paid\.share"):
        check_size(buying(1e-10))


def test_without_it_the_canonical_form_and_the_plan_are_as_before() -> None:
    assert '"evaluate":{"internal":false}' in configuration().canonical()
    assert "evaluation" not in {draw.name for draw in plan_budget(configuration()).draws}
    config = buying(evaluate__paid__length=3)
    assert Configuration.from_canonical(config.canonical()) == config
