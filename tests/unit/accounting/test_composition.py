"""Composition of several releases in one account."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_epsilon, zcdp_epsilon
from marginweave.accounting.composition import account_epsilon, composed_epsilon
from marginweave.base.budget import NOTHING, BasicAmount, Cost, amount
from marginweave.base.errors import InputError
from marginweave.measurements.split import plan_budget
from tests.support.budget_plans import configuration

DELTA = Decimal("1e-6")
THIN = BasicAmount(epsilon=Decimal("0.001"), delta=DELTA)
FAR = BasicAmount(epsilon=Decimal(50), delta=DELTA)
STATED = BasicAmount(epsilon=Decimal("0.7"), delta=Decimal("1e-7"))


def _times(amount, number: int):
    return sum([amount] * number, type(amount)())


def test_nothing_spent_is_zero() -> None:
    """An account without a release has spent epsilon 0."""
    assert account_epsilon(Cost(), NOTHING, DELTA)[0] == 0.0


@pytest.mark.parametrize(("releases", "epsilon"), [(4, 2.12), (20, 5.21)])
def test_repeated_releases_compose_below_their_sum(releases: int, epsilon: float) -> None:
    """Published: four releases at (1, 1e-6) cost 2.12 together, twenty 5.21."""
    plan = plan_budget(configuration(missing=False))
    total, name = account_epsilon(
        _times(plan.cost, releases),
        _times(BasicAmount(epsilon=Decimal(1), delta=DELTA), releases),
        DELTA,
    )
    assert (round(total, 2), name) == (epsilon, "gdp")


@pytest.mark.parametrize("text", ["0.1", "0.3", "0.7", "1", "2.675", "1.1", "10.000000000000001"])
def test_a_release_alone_fits_a_cap_of_its_own_size(text: str) -> None:
    """However dear its draws, a release never counts for more than it states, decimals and all."""
    dear = Cost(mu2=Decimal(10**4), rho=Decimal(10**4), delta=Decimal("1e-6"))
    total, name = account_epsilon(dear, BasicAmount(epsilon=Decimal(text), delta=DELTA), DELTA)
    assert name == "plain"
    assert total <= float(Decimal(text))


def test_plain_sum_needs_delta_for_all_of_it() -> None:
    """Stated deltas beyond the account's leave only GDP and zCDP; when those have no delta left, nothing is valid."""
    cost = Cost(mu2=Decimal("0.01"), rho=Decimal("0.005"))
    assert account_epsilon(cost + cost, THIN + THIN, DELTA)[1] == "gdp"
    spent = Cost(mu2=Decimal("0.01"), rho=Decimal("0.005"), delta=DELTA)
    assert math.isinf(account_epsilon(spent + spent, THIN + THIN, DELTA)[0])


def test_zcdp_wins_where_its_price_is_lower() -> None:
    """Costs that are cheap in rho only are composed in zCDP, the others in GDP, both at what is left of delta."""
    mostly = Cost(mu2=Decimal(4), rho=Decimal("0.01"), delta=Decimal("4e-7"))
    total, name = account_epsilon(mostly, FAR, DELTA)
    assert (name, total) == ("zcdp", pytest.approx(zcdp_epsilon(0.01, 6e-7), rel=1e-9))
    gaussian = Cost(mu2=Decimal("0.02"), rho=Decimal("0.01"), delta=Decimal("4e-7"))
    total, name = account_epsilon(gaussian, FAR, DELTA)
    assert (name, total) == ("gdp", pytest.approx(gdp_epsilon(math.sqrt(0.02), 6e-7), rel=1e-9))


COSTS = st.tuples(st.floats(0, 4), st.floats(0, 4), st.floats(0, 5e-7)).map(
    lambda t: Cost(mu2=amount(t[0]), rho=amount(t[1]), delta=amount(t[2]))
)


@given(st.lists(COSTS, max_size=4), COSTS)
@settings(max_examples=25, deadline=None)
def test_another_release_never_lowers_the_total(costs: list[Cost], another: Cost) -> None:
    """Totals grow with each release, and are at most any one composition."""
    whole = sum(costs, Cost())
    before, _ = account_epsilon(whole, _times(STATED, len(costs)), DELTA)
    after, _ = account_epsilon(whole + another, _times(STATED, len(costs) + 1), DELTA)
    assert before <= after * (1 + 1e-9)
    assert after <= 0.7 * (len(costs) + 1) + 1e-12


@given(st.floats(0, 10), st.floats(0, 10))
def test_sums_of_amounts_are_exact_and_rounded_up(first: float, second: float) -> None:
    """A charge is at least its float, and adding charges loses nothing."""
    total = Cost(mu2=amount(first)) + Cost(mu2=amount(second))
    assert (
        Fraction(first) + Fraction(second)
        <= Fraction(total.mu2)
        == Fraction(amount(first)) + Fraction(amount(second))
    )


def test_a_delta_lies_below_one() -> None:
    with pytest.raises(InputError, match="delta"):
        account_epsilon(Cost(), NOTHING, Decimal(1))


def test_plain_charges_are_added_to_what_the_rest_converts_to() -> None:
    """As they were charged: the Gaussian part is converted at the delta that they leave."""
    mixed = Cost(
        mu2=Decimal("0.02"),
        rho=Decimal("0.01"),
        plain=BasicAmount(epsilon=Decimal("0.5"), delta=Decimal("2e-7")),
    )
    total, name = account_epsilon(mixed, FAR, DELTA)
    assert (name, total) == (
        "gdp",
        pytest.approx(gdp_epsilon(math.sqrt(0.02), 8e-7) + 0.5, rel=1e-9),
    )


@given(st.floats(0.01, 2), st.floats(0.001, 2), st.floats(1e-9, 4e-7))
@settings(max_examples=25, deadline=None)
def test_a_release_with_plain_draws_is_composed_as_its_parts(
    mu: float, epsilon: float, delta: float
) -> None:
    """Brute force: the sum of both parts' curves, each at its share of delta, is no less than what is booked (Dwork, Roth)."""
    plain = BasicAmount(epsilon=amount(epsilon), delta=amount(delta))
    total, _ = composed_epsilon(Cost(mu2=amount(mu * mu), rho=Decimal(10), plain=plain), DELTA)
    assert total >= epsilon + gdp_epsilon(mu, float(DELTA) - delta) * (1 - 1e-9)
    assert total <= (epsilon + gdp_epsilon(mu + 1e-9, (float(DELTA) - delta) * (1 - 1e-9))) * (
        1 + 1e-6
    )
