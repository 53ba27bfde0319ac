"""The draws of marginals: their shares, their price, and the deviations that follow from one joint multiplier."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.accounting.composition import composed_epsilon
from marginweave.accounting.selection_composition import release_epsilon
from marginweave.base.budget import Stability
from marginweave.base.errors import InputError
from marginweave.counts.marginals import all_cliques
from marginweave.forecast.noise import forecast, rounds_forecast
from marginweave.ledger.plans import check_plan
from marginweave.measurements.marginals import split_noise
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.mechanisms.exponential import Exponential
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.runs.limits import check_size
from tests.support.configurations import PRIVATE, configuration

SIZES = (2, 3, 5, 7)
SHARES: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "selected": ({}, {"one-way": 0.3, "selection": 0.05, "marginals": 0.65}),
    "all pairs": ({"aggregate__cliques": {"all": 2}}, {"one-way": 0.3, "marginals": 0.7}),
    "a list": ({"aggregate__cliques": [["sex", "age"]]}, {"one-way": 0.3, "marginals": 0.7}),
    "single": ({"aggregate__cliques": {"all": 1}}, {"one-way": 1.0}),
    "private": (
        {"columns__sex": PRIVATE, "aggregate__values_share": 0.2, "aggregate__one_way_share": 0.25},
        {"values": 0.2, "one-way": 0.25, "selection": 0.05, "marginals": 0.5},
    ),
    "private alone": (
        {"columns__sex": PRIVATE, "aggregate__cliques": {"all": 1}},
        {"values": 0.05, "one-way": 0.95},
    ),
    "one attribute": (
        {"columns": {"sex": {"type": "category", "values": ["f", "m"]}}},
        {"one-way": 1.0},
    ),
}


@pytest.mark.parametrize(("changes", "shares"), SHARES.values(), ids=SHARES.keys())
def test_the_draws_have_their_shares_and_spend_the_whole(
    changes: dict[str, Any], shares: dict[str, float]
) -> None:
    """1 / multiplier^2 is as the shares are, delta_threshold is on `values` alone; the ledger believes the plan."""
    config = configuration(aggregate__method="marginals", **changes)
    plan = plan_budget(config)
    assert [draw.name for draw in plan.draws] == list(shares)
    squares = [draw.parameter**-2 for draw in plan.draws]
    for square, share in zip(squares, shares.values(), strict=True):
        assert square / sum(squares) == pytest.approx(share, rel=1e-9)
    deltas = {draw.name: float(draw.cost.delta) for draw in plan.draws if draw.cost.delta}
    assert deltas == (pytest.approx({"values": 1e-7}) if "values" in shares else {})
    spent, _ = composed_epsilon(plan.cost, Decimal("1e-6"))
    assert spent == plan.spent_epsilon
    assert 1 - 1e-6 < spent <= 1.0
    check_plan(plan.prices)


@pytest.mark.parametrize("private", [False, True])
def test_rounds_have_equal_shares_and_spend_the_whole(private: bool) -> None:
    """A choice for each of a batch, and a share, round by round, at fixed prices; by the exact curves all of epsilon."""
    config = configuration(
        aggregate={"method": "marginals", "cliques": {"adaptive": 3, "rounds": 5, "batch": 2}},
        **({"columns__sex": PRIVATE} if private else {}),
    )
    plan = plan_budget(config)
    rounds = [(f"select-{n}-1", f"select-{n}-2", f"measure-{n}") for n in range(1, 6)]
    first = ["values", "one-way"] if private else ["one-way"]
    assert [draw.name for draw in plan.draws] == [
        *first,
        *(name for names in rounds for name in names),
    ]
    assert (
        len({(draw.parameter, draw.cost) for draw in plan.draws if draw.mechanism is Exponential})
        == 1
    )
    assert (
        len(
            {(draw.parameter, draw.cost) for draw in plan.draws if draw.name.startswith("measure-")}
        )
        == 1
    )
    spent = {draw.name: float(draw.cost.mu2) for draw in plan.draws}
    whole = sum(spent.values())
    assert sum(spent[name] for *names, _ in rounds for name in names) / whole == pytest.approx(
        0.05, rel=1e-6
    )
    assert sum(spent[name] for *_, name in rounds) / whole == pytest.approx(
        0.6 if private else 0.65, rel=1e-6
    )
    assert 1 - 1e-6 < plan.spent_epsilon <= 1.0
    assert composed_epsilon(plan.cost, Decimal("1e-6"))[0] > 1
    check_plan(plan.prices)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 8.0])
@pytest.mark.parametrize("bought", [1, 2])
def test_rounds_with_private_bounds_spend_the_whole(epsilon: float, bought: int) -> None:
    """Choices of bounds beside those of rounds, by the same exact curves: never more than epsilon, nearly all of it."""
    number = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}
    config = configuration(
        aggregate={
            "method": "marginals",
            "cliques": {"adaptive": 2, "rounds": 4, "batch": 3},
            "bounds_share": 0.2,
        },
        privacy={"epsilon": epsilon, "delta": 1e-6, "unit": "row"},
        **{f"columns__number{i}": number for i in range(bought)},
    )
    plan = plan_budget(config)
    assert sum(draw.mechanism is Exponential for draw in plan.draws) == 12 + 2 * bought
    spent = min(
        composed_epsilon(plan.cost, Decimal("1e-6"))[0],
        release_epsilon(plan.prices.charges, 1e-6, epsilon),
    )
    assert (1 - 1e-6) * epsilon < plan.spent_epsilon <= epsilon
    assert spent <= epsilon * (1 + 1e-9)
    check_plan(plan.prices)


def test_candidates_of_rounds_have_a_limit_of_their_own() -> None:
    """Of 210 columns there are 21,945 pairs: too many marginals to have them selected, few enough to choose from."""
    columns = {f"c{i}": {"type": "category", "values": [1, 2]} for i in range(210)}
    check_size(
        configuration(
            columns=columns, aggregate={"method": "marginals", "cliques": {"adaptive": 2}}
        )
    )
    with pytest.raises(
        InputError, match=r"aggregate\.cliques makes 21945 marginals, more than 20000"
    ):
        check_size(configuration(columns=columns, aggregate={"method": "marginals"}))


@pytest.mark.parametrize("cliques", [{"all": 19, "max_cells": 100}, {"all": 20, "max_cells": 5}])
def test_shorter_marginals_of_a_limit_count_as_well(cliques: dict[str, int]) -> None:
    """Of 20 columns there are few sets of 19, and a million of fewer, each of which would be looked at."""
    columns = {f"c{i}": {"type": "category", "values": [1, 2]} for i in range(20)}
    with pytest.raises(
        InputError, match=r"aggregate\.cliques makes 10485\d\d marginals, more than 20000"
    ):
        check_size(
            configuration(columns=columns, aggregate={"method": "marginals", "cliques": cliques})
        )


@pytest.mark.parametrize("length", [1e300, 99, 10**27])
def test_no_number_of_columns_is_too_large_to_be_refused(length: float) -> None:
    with pytest.raises(
        InputError,
        match=r"aggregate\.cliques\.all \(\d+\) must be at most the number of attributes",
    ):
        configuration(aggregate={"method": "marginals", "cliques": {"all": length}})


def test_too_many_candidates_and_cells_of_rounds_are_refused() -> None:
    columns = {f"c{i}": {"type": "category", "values": [1, 2]} for i in range(90)}
    wide = configuration(
        columns=columns, aggregate={"method": "marginals", "cliques": {"adaptive": 4}}
    )
    with pytest.raises(
        InputError,
        match=r"aggregate\.cliques\.adaptive \(4\) makes \d+ candidates, more than 200000",
    ):
        check_size(wide)
    large = {f"c{i}": {"type": "category", "values": list(range(3000))} for i in range(3)}
    cliques = {"adaptive": 2, "max_cells": 9_100_000, "batch": 8}
    with pytest.raises(InputError, match="cells together, more than"):
        check_size(
            configuration(columns=large, aggregate={"method": "marginals", "cliques": cliques})
        )


def test_a_plan_of_rounds_is_shown_in_a_few_lines() -> None:
    """Two lines for all choices and shares, whose parts add up to the whole; what a share's noise is stands beside them."""
    config = configuration(
        aggregate={"method": "marginals", "cliques": {"adaptive": 3, "rounds": 5, "batch": 2}},
        privacy__unit="row",
    )
    rows, _ = forecast(config)
    assert [row.name for row in rows] == [
        "one-way",
        "select-1-1 … select-5-2",
        "measure-1 … measure-5",
    ]
    assert [row.share for row in rows] == pytest.approx([0.3, 0.05, 0.65])
    (line,) = rounds_forecast(config)
    sd = math.sqrt(2) * plan_budget(config).by_name["measure-1"].parameter
    assert f"measured with sd {sd:.1f} a share, of four shares {sd / 2:.1f}" in str(line)
    assert (
        rounds_forecast(configuration())
        == rounds_forecast(configuration(aggregate__method="marginals"))
        == []
    )


def test_private_bounds_have_their_share() -> None:
    age = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}
    plan = plan_budget(configuration(aggregate__method="marginals", columns__age=age))
    assert [draw.name for draw in plan.draws] == [
        "bounds-3-low",
        "bounds-3-high",
        "one-way",
        "selection",
        "marginals",
    ]
    mu2 = {draw.name: float(draw.cost.mu2) for draw in plan.draws}
    assert (mu2["bounds-3-low"] + mu2["bounds-3-high"]) / sum(mu2.values()) == pytest.approx(
        0.05, rel=1e-3
    )
    assert mu2["marginals"] / sum(mu2.values()) == pytest.approx(0.6, rel=1e-3)


def test_shares_that_leave_nothing_are_refused() -> None:
    both = r"^aggregate\.one_way_share \(0\.5\) and aggregate\.selection_share \(0\.5\) must leave something for the marg"
    with pytest.raises(InputError, match=both):
        plan_budget(
            configuration(
                aggregate__method="marginals",
                aggregate__one_way_share=0.5,
                aggregate__selection_share=0.5,
            )
        )


@given(
    st.floats(0.05, 200),
    st.integers(1, 4),
    st.sampled_from(["equal", "cells"]),
    st.integers(1, 9),
    st.sampled_from(["add-remove", "replace-one"]),
)
def test_the_deviations_of_a_draw_cost_what_its_multiplier_does(
    multiplier: float, length: int, split: Any, records: int, neighbors: Any
) -> None:
    """sum (S / sd_i)^2 <= 1 / M^2, S^2 = theta^2 or 2 theta^2: never more, and less by rounding up to 1/1024 only."""
    stability = Stability(records=records, neighbors=neighbors)
    deviations = split_noise(
        RoundedGaussian(stability), multiplier, all_cliques(SIZES, length), SIZES, split
    )
    square = records**2 * (2 if neighbors == "replace-one" else 1)
    spent = sum(square / Fraction(sd) ** 2 for sd in deviations)
    assert float(spent) <= multiplier**-2 * (1 + 1e-12)
    assert float(spent) >= multiplier**-2 * (1 - 1 / (512 * float(min(deviations))))


def test_plan_knows_the_noise_of_what_is_public() -> None:
    """One deviation a marginal; of selected ones only the scores' is known before, of a private domain its threshold's."""
    pairs = configuration(aggregate__method="marginals", aggregate__cliques={"all": 2})
    assert public_sizes(pairs) == (3, 4, 6, 8)
    plan = plan_budget(pairs)
    assert {draw.name: len(draw.forecast(pairs).sigmas) for draw in plan.draws} == {
        "one-way": 4,
        "marginals": 6,
    }
    chosen = configuration(aggregate__method="marginals", columns__sex=PRIVATE)
    plan = plan_budget(chosen)
    known = {draw.name for draw in plan.draws if not draw.forecast(chosen).is_shared}
    assert known == {"values", "one-way", "selection"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"aggregate__cliques": {"all": 2, "max_cells": 5}},
            "max_cells leaves no marginal to measure",
        ),
        (
            {"privacy__epsilon": 0.001, "privacy__delta": 1e-18},
            "may have a standard deviation above 131072",
        ),
        (
            {
                f"columns__{n}": {"type": "number", "bounds": [0, 1e5], "bins": 9000}
                for n in ("age", "grade")
            },
            "81018001 cells together, more than 67108864",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_refused_before_any_draw(
    changes: dict[str, Any], message: str
) -> None:
    unit = {"column": "id", "max_records": 100} if "privacy__epsilon" in changes else "row"
    with pytest.raises(InputError, match=message):
        check_size(configuration(aggregate__method="marginals", privacy__unit=unit, **changes))
    assert math.isfinite(
        plan_budget(configuration(aggregate__method="marginals", **changes)).spent_epsilon
    )
