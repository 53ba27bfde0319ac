"""The box of an account in the ledger: first releases, raised caps, and refusals that help."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from marginweave.accounting.records import EventKind
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.ledger import ReleaseRequest, releases
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.boxes import admitted
from marginweave.ledger.keys import load_key
from marginweave.ledger.replay import Replay
from marginweave.measurements.largest import largest_epsilon
from marginweave.measurements.split import plan_budget
from tests.support.budget_plans import configuration
from tests.support.releases import FULL, gaussian, small_plan

HALF = ("count", "level-1")


def _audit(location: Path) -> None:
    audit_ledger(location, load_key(location, {}, ""))


def test_a_closed_account_stays_closed_after_a_refund(ledger, reserve, location) -> None:
    """The first release uses all of (1, 1e-6), more than the box; given back but for one draw, nothing else is admitted."""
    assert reserve(plan=small_plan(cost=gaussian(FULL))).by_statement
    ledger.draws.return_unused("first", ["level-1", "level-2"])
    with pytest.raises(BudgetError, match="its first release was admitted by its own statement"):
        reserve("second", plan=small_plan(cost=gaussian(1e-4), epsilon=0.1))
    _audit(location)


def test_only_the_first_release_is_admitted_by_its_statement(ledger, reserve, location) -> None:
    """Also where the one before it was given back whole."""
    reserve(plan=small_plan(cost=gaussian(1e-4), epsilon=0.1))
    ledger.draws.return_unused("first", ["count", "level-1", "level-2"])
    with pytest.raises(
        BudgetError,
        match=r"does not hold this release: noise, in percent of its budget: (99\.\d+|100) of 100 left, and \d{3,}(\.\d+)? is",
    ):
        reserve("second", plan=small_plan(cost=gaussian(FULL)))
    _audit(location)


def test_a_raised_cap_opens_what_was_closed(ledger, reserve, location) -> None:
    """As soon as its box holds all that was reserved for the first release; a lower one does not."""
    reserve(plan=small_plan(cost=gaussian(FULL)))
    ledger.draws.return_unused("first", ["level-1", "level-2"])
    small = small_plan(cost=gaussian(1e-4), epsilon=0.1)
    ledger.accounts.change_cap("affairs", 1.001, 1e-6, "too little", "steward")
    with pytest.raises(BudgetError, match="admits nothing"):
        reserve("second", plan=small)
    ledger.accounts.change_cap("affairs", 1.1, 1e-6, "enough", "steward")
    assert not reserve("second", plan=small).by_statement
    _audit(location)


@pytest.mark.parametrize(
    "change",
    [
        {
            "box": {
                "mu2": "0.06",
                "delta_add": "0",
                "allowance_epsilon": "0",
                "allowance_delta": "0",
            }
        },
        {
            "box": {
                "mu2": "0.05",
                "delta_add": "9e-7",
                "allowance_epsilon": "0",
                "allowance_delta": "2e-7",
            }
        },
        {"box": {"mu2": "-1", "delta_add": "0", "allowance_epsilon": "0", "allowance_delta": "0"}},
        {
            "box": {
                "mu2": "0.05",
                "delta_add": "0",
                "allowance_epsilon": "1.5",
                "allowance_delta": "0",
            }
        },
    ],
)
def test_a_box_that_promises_more_than_its_cap_is_found(ledger, change) -> None:
    """However it came into the rows."""
    events = ledger.session.events()
    replay = Replay()
    replay.step(1, events[0])
    with pytest.raises(AuditError, match="the box "):
        replay.step(2, replace(events[1], body={**events[1].body, **change}))


def test_what_the_box_does_not_hold_is_found(ledger, reserve, location, monkeypatch) -> None:
    """A writer that admits too much, or calls a release the first that is not, is found at its row."""
    reserve(plan=small_plan(cost=gaussian(0.01)))
    monkeypatch.setattr(releases, "refusal", lambda *_: None)
    reserve("second", plan=small_plan(cost=gaussian(0.01), epsilon=1.0))
    with pytest.raises(AuditError, match="with release second, account affairs is over its cap"):
        _audit(location)


def test_a_refusal_is_one_row_however_often_it_is_tried(ledger, reserve, plan) -> None:
    """Until something changes that could make it another."""
    reserve(plan=small_plan(cost=gaussian(0.01)))
    over = small_plan(cost=gaussian(0.01), epsilon=1.0)

    def rows() -> int:
        return sum(event.kind == EventKind.REFUSED for event in ledger.session.events())

    for number in range(3):
        with pytest.raises(BudgetError):
            reserve(f"try-{number}", run="night", plan=over)
        with pytest.raises(BudgetError):
            ledger.releases.check_admission(
                ReleaseRequest(
                    dataset="affairs",
                    run="night",
                    plan=over,
                    plan_digest="plan-digest",
                    unit="row",
                    actor="steward",
                )
            )
    assert rows() == 1
    with pytest.raises(BudgetError):
        reserve("other", run="another night", plan=over)
    assert rows() == 2
    ledger.accounts.change_cap("affairs", 1.01, 1e-6, "a little", "steward")
    with pytest.raises(BudgetError):
        reserve("try-4", run="night", plan=over)
    assert rows() == 3


@pytest.mark.parametrize("left", [0.046, 0.026, 0.006])
@pytest.mark.parametrize("private", [False, True])
def test_the_largest_epsilon_fits_and_one_percent_more_does_not(
    ledger, reserve, account, left: float, private: bool
) -> None:
    """What a refusal offers first is a plan of the same configuration that is admitted."""
    asked = configuration(private=private)
    cap = {
        "epsilon": Decimal("1.8"),
        "delta": Decimal("4e-6"),
        "kind_of_plan": plan_budget(asked).cost,
    }
    ledger.accounts.open(replace(account, dataset="people", **cap), actor="steward")
    used = float(ledger.accounts.total("people").account.box.mu2) - left
    spent = small_plan(("count",), cost=gaussian(used), epsilon=1.8, delta=4e-6)
    reserve(dataset="people", plan=spent, source="people")
    total = ledger.accounts.total("people")
    largest = largest_epsilon(asked, total.account, total.spent)
    assert 0.05 < largest < 1

    def fits(epsilon: float) -> bool:
        plan = plan_budget(configuration(private=private, epsilon=epsilon)).prices
        return admitted(total.account, total.spent, plan.cost, plan.statement) is not None

    assert fits(largest)
    assert not fits(largest * 1.011)
    with pytest.raises(BudgetError) as refused:
        reserve(
            "second",
            dataset="people",
            plan=plan_budget(asked).prices,
            source="people",
            largest=lambda *_: largest,
        )
    said = str(refused.value)
    assert said.index(f"privacy.epsilon: {largest:g}") < said.index(
        "promise to all in the table: marginweave ledger cap"
    )


def test_where_delta_is_missing_no_epsilon_helps_and_that_is_said(ledger, reserve) -> None:
    """A threshold's delta does not depend on epsilon."""
    reserve(plan=small_plan(("count",), cost=gaussian(0.01)))
    asked = configuration(private=True, delta_threshold_share=0.2)
    words = r"delta for thresholds .* A smaller privacy\.epsilon does not help; a smaller privacy\.delta"
    with pytest.raises(BudgetError, match=words):
        reserve(
            "second",
            plan=plan_budget(asked).prices,
            largest=lambda account, spent: largest_epsilon(asked, account, spent),
        )


@pytest.mark.parametrize("delta", [0.00101, 0.1])
def test_a_weak_delta_needs_a_reason(ledger, account, delta: float) -> None:
    """To open an account, and to change its cap."""
    weak = replace(account, dataset="weak", delta=Decimal(repr(delta)))
    with pytest.raises(
        InputError, match=r"is above 0\.001: with that probability all may be disclosed"
    ):
        ledger.accounts.open(weak, actor="steward")
    with pytest.raises(InputError, match="--weak-delta REASON"):
        ledger.accounts.change_cap("affairs", 1.0, delta, "more", "steward")
    ledger.accounts.open(replace(weak, weak_delta="a public example"), actor="steward")
    ledger.accounts.change_cap(
        "affairs", 1.0, delta, "more", "steward", weak_delta="a public example"
    )
    assert ledger.accounts.total("affairs").account.weak_delta == "a public example"
