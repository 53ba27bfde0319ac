"""A plan is believed by nobody: what it states must cover its draws, and what they cost must fit how they draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.charges import Charge, ChargedPlan
from marginweave.base.budget import BasicAmount, Cost, amount
from marginweave.base.errors import AuditError, InputError
from marginweave.ledger import releases
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.ledger.plans import check_plan
from marginweave.ledger.records import stated
from marginweave.ledger.replay import Replay
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.exponential import selection_mu
from tests.support.budget_plans import configuration
from tests.support.releases import FULL, gaussian, small_plan

Change = Callable[[ChargedPlan], ChargedPlan]


def _draw(**changes: Any) -> Change:
    """The first draw, changed."""
    return lambda plan: replace(
        plan, charges=(replace(plan.charges[0], **changes), *plan.charges[1:])
    )


def _selection(mu2: float, rho: float) -> Change:
    """The first draw as an exponential mechanism with epsilon 0.1, at this price."""
    return _draw(
        mechanism="exponential", parameter=0.1, cost=Cost(mu2=amount(mu2), rho=amount(rho))
    )


def _laplace(**cost: object) -> Change:
    """The first draw as Laplace noise with epsilon 0.1, at this price."""
    return _draw(mechanism="discrete-laplace", parameter=0.1, cost=Cost(**cost))  # pyright: ignore[reportArgumentType]


PRICE = selection_mu(0.1) ** 2
BROKEN: dict[str, tuple[Change, str]] = {
    "more than stated": (lambda plan: replace(plan, epsilon=0.5), "more than the stated 0.5"),
    "more delta than stated": (_draw(cost=gaussian(0.01, 1e-6)), "the draws cost epsilon inf"),
    "cheap in mu": (
        _draw(cost=Cost(mu2=Decimal("0.009"), rho=Decimal("0.005"))),
        "draw count costs less",
    ),
    "cheap in rho": (
        _draw(cost=Cost(mu2=Decimal("0.01"), rho=Decimal("0.004"))),
        "draw count costs less",
    ),
    "free": (_draw(cost=Cost()), "draw count costs less"),
    "a delta is no plain charge": (
        _draw(cost=Cost(plain=BasicAmount(delta=Decimal("1e-9")))),
        "draw count costs less",
    ),
    "selection cheap in mu": (
        _selection(PRICE * 0.999, 0.01),
        "draw count costs less than exponential",
    ),
    "selection cheap in rho": (
        _selection(PRICE, 0.1**2 / 8 * 0.999),
        "draw count costs less than exponential",
    ),
    "laplace cheap by a digit": (
        _laplace(plain=BasicAmount(epsilon=Decimal("0.0" + 29 * "9"))),
        "draw count costs less than discrete-laplace",
    ),
    "laplace in mu": (
        _laplace(mu2=Decimal("0.02"), rho=Decimal("0.01")),
        "costs less than discrete-laplace",
    ),
    "laplace in delta": (
        _laplace(plain=BasicAmount(delta=Decimal("1e-7"))),
        "costs less than discrete-laplace",
    ),
    "no parameter": (_draw(parameter=0.0), "draw count has no parameter"),
    "negative": (
        _draw(cost=Cost(mu2=Decimal("0.01"), rho=Decimal("0.005"), delta=Decimal("-1e-7"))),
        "has no cost",
    ),
    "endless": (_draw(cost=Cost(mu2=Decimal("Infinity"), rho=Decimal(1))), "has no cost"),
    "unknown mechanism": (
        _draw(mechanism="threshold"),
        r"has a mechanism \(threshold\) without a price",
    ),
}


@pytest.mark.parametrize(("change", "fault"), BROKEN.values(), ids=BROKEN.keys())
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    ledger, reserve, change: Change, fault: str
) -> None:
    """Bad input, before anything is booked."""
    with pytest.raises(InputError, match=fault):
        reserve(plan=change(small_plan()))
    assert ledger.verify() == 2


@pytest.mark.parametrize(("change", "fault"), BROKEN.values(), ids=BROKEN.keys())
def test_what_a_writer_did_not_refuse_is_found(
    ledger, reserve, location, monkeypatch, change, fault
) -> None:
    """An auditor applies the same rules to the rows, whoever wrote them, at whatever cap."""
    ledger.accounts.change_cap("affairs", 100.0, 1e-3, "room", "steward")
    monkeypatch.setattr(releases, "check_plan", lambda _: None)
    monkeypatch.setattr(releases, "refusal", lambda *_: None)
    reserve(plan=change(small_plan()))
    with pytest.raises(
        AuditError, match=rf"row \d+ of the ledger: .*({fault}|a body that no ledger writes)"
    ):
        audit_ledger(location, load_key(location, {}, ""))


def test_noise_without_end_is_no_parameter(reserve) -> None:
    """Refused in words; no row could hold it."""
    with pytest.raises(InputError, match="draw count has no parameter"):
        reserve(plan=_draw(parameter=math.inf)(small_plan()))


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, 0.0, -1.0])
def test_no_statement_no_release(reserve, epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        reserve(plan=small_plan(epsilon=epsilon))


@pytest.mark.parametrize("delta", [math.nan, 0.0, 1.0])
def test_a_statement_has_a_delta(reserve, delta: float) -> None:
    with pytest.raises(InputError, match="delta"):
        reserve(plan=small_plan(delta=delta))


def test_all_of_the_statement_may_be_used(reserve, ledger, location) -> None:
    """A plan that costs what it states but for rounding is admitted, as the first of its account."""
    ledger.accounts.change_cap("affairs", 3.0, 1e-5, "room", "steward")
    reserve(plan=small_plan(cost=gaussian(FULL)))
    assert audit_ledger(location, load_key(location, {}, "")).releases[
        "first"
    ] == ledger.releases.find("first")


def test_a_plain_charge_may_use_all_of_its_delta() -> None:
    """Nothing is converted, so no delta must be left for it."""
    cost = Cost(plain=BasicAmount(epsilon=Decimal("0.5"), delta=Decimal("1e-7")))
    draw = Charge(name="count", mechanism="rounded-gaussian", parameter=1.0, cost=cost)
    check_plan(replace(small_plan(), charges=(draw,), epsilon=0.5, delta=1e-7))
    with pytest.raises(InputError, match="more than the stated"):
        check_plan(replace(small_plan(), charges=(draw,), epsilon=0.4999, delta=1e-7))


@pytest.mark.parametrize(
    "change", [{"epsilon": "Infinity"}, {"delta": "1"}, {"epsilon": "0"}, {"epsilon": "NaN"}]
)
@pytest.mark.parametrize("kind", ["OPENED", "CAP_CHANGED"])
def test_an_auditor_takes_no_endless_cap(ledger, change: dict[str, str], kind: str) -> None:
    """Rows that were written past the rules open no account and change none."""
    ledger.accounts.change_cap("affairs", 3.0, 1e-5, "room", "steward")
    replay = Replay()
    for seq, event in enumerate(ledger.session.events(), start=1):
        if event.kind != kind:
            replay.step(seq, event)
            continue
        with pytest.raises(AuditError, match=f"row {seq} "):
            replay.step(seq, replace(event, body={**event.body, **change}))
        return


@given(
    epsilon=st.floats(math.log(1e-3), math.log(1e3)).map(math.exp),
    delta=st.floats(math.log(1e-15), math.log(0.5)).map(math.exp),
    private=st.booleans(),
    missing=st.booleans(),
    sigma=st.one_of(
        st.sampled_from(["long", "short", "balanced", "singles"]),
        st.tuples(*[st.floats(1e-3, 1e3)] * 3),
    ),
    percentile_share=st.floats(1e-4, 0.999),
    count_share=st.floats(1e-4, 0.999),
)
@settings(max_examples=40, deadline=None)
def test_every_plan_of_the_planner_is_believed(**asked: object) -> None:
    """Whatever the configuration, what `plan_budget` makes passes, and stating a little less than is spent does not."""
    try:
        plan = plan_budget(configuration(reporting_length=3, **asked)).prices  # pyright: ignore[reportArgumentType]
    except InputError:
        return
    check_plan(plan)
    if plan.spent_epsilon > 1e-3:
        with pytest.raises(InputError, match="more than the stated"):
            check_plan(replace(plan, epsilon=float(stated(plan.spent_epsilon * (1 - 1e-5)))))
