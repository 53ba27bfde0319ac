"""Laplace noise in the ledger: charged to the purse in exact decimals, refused without one, with a command that helps."""

from __future__ import annotations

import shlex
from dataclasses import replace
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from marginweave.flows.cli.app import app
from marginweave.schemas.budget import BudgetPlan, Cost, Plain
from marginweave.schemas.errors import AuditError, BudgetError
from marginweave.schemas.ledger import Account
from marginweave.tasks.budget.ledger import Ledger, LedgerLocation, opening_command, opening_for, releases
from marginweave.tasks.budget.ledger.audit import audit_ledger
from marginweave.tasks.budget.ledger.key import load_key
from marginweave.tasks.budget.split import plan_budget
from tests.support.configurations import configuration
from tests.support.databases import on_both


def laplace_plan(epsilon: float = 0.3, **changes: object) -> BudgetPlan:
    """Two draws of Laplace noise with epsilon together, or with scores of pairs beside them."""
    settings = {"aggregate__cliques": {"all": 2}, **changes}
    return plan_budget(
        configuration(aggregate__method="marginals", aggregate__noise="laplace", privacy__epsilon=epsilon, **settings)
    )


@pytest.fixture
def people(ledger: Ledger, account: Account) -> Ledger:
    """A ledger with an account of (2, 1e-6) whose purse has epsilon 1 and no delta."""
    purse = Plain(epsilon=Decimal(1))
    ledger.open_account(replace(account, dataset="people", epsilon=Decimal(2), purse=purse), actor="steward")
    return ledger


@on_both
def test_the_purse_is_charged_to_the_digit_until_it_is_spent(people: Ledger, reserve, location: LedgerLocation) -> None:
    """Three releases of .3 leave a tenth, which one of .1 fills; nothing is charged in mu^2, rho or delta."""
    for number in range(3):
        reserve(str(number), dataset="people", plan=laplace_plan(), source="people")
    before = people.account_total("people")
    assert before.purse == Plain(epsilon=Decimal("0.9"))
    with pytest.raises(BudgetError, match=r"of its purse of epsilon 1\.0 and delta 0\.0; this release asks it for"):
        reserve("over", dataset="people", plan=laplace_plan(0.11), source="people")
    assert people.account_total("people") == before
    reserve("last", dataset="people", plan=laplace_plan(0.1), source="people")
    charged = [people.release(name).charged for name in ("0", "1", "2", "last")]
    assert all((cost.mu2, cost.rho, cost.delta, cost.plain.delta) == (0, 0, 0, 0) for cost in charged)
    assert people.account_total("people").purse.epsilon == 1
    assert people.account_total("people").epsilon == 1.0
    audit_ledger(location, load_key(location, {}, ""))


@on_both
def test_what_is_given_back_is_back_in_the_purse(people: Ledger, reserve, location: LedgerLocation) -> None:
    """Scores are charged in mu^2 beside it; where no pair is worth its noise its epsilon goes back."""
    plan = laplace_plan(1.0, aggregate__cliques="selected")
    record = reserve("mixed", dataset="people", plan=plan, source="people")
    assert record.charged.mu2 == plan.draw("selection").cost.mu2 > 0
    people.give_back("mixed", ["marginals"])
    assert people.account_total("people").purse == plan.draw("one-way").cost.plain
    audit_ledger(location, load_key(location, {}, ""))


@on_both
def test_a_price_below_the_epsilon_is_found(
    people: Ledger, reserve, location: LedgerLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one unit of the last digit, written past the rules."""
    plan = laplace_plan()
    epsilon = plan.draws[1].cost.plain.epsilon.next_minus()
    cheap = replace(plan.draws[1], cost=Cost(plain=Plain(epsilon=epsilon)))
    monkeypatch.setattr(releases, "check_plan", lambda _: None)
    reserve("cheap", dataset="people", plan=replace(plan, draws=(plan.draws[0], cheap)), source="people")
    with pytest.raises(AuditError, match="draw marginals costs less than discrete-laplace with parameter"):
        audit_ledger(location, load_key(location, {}, ""))


AMPLIFIED = {
    "resize": {"records": 400, "proportion": 0.4, "amplify": True},
    **{f"columns__{name}__impute": {"distribution": "uniform"} for name in ("sex", "region", "age", "grade")},
}


@pytest.mark.parametrize("changes", [{}, {"privacy__redraws": 2}, {"aggregate__cliques": "selected"}, AMPLIFIED])
def test_without_a_purse_it_is_refused_with_a_command_that_works(
    ledger: Ledger, reserve, location: LedgerLocation, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    """The account that the command opens holds the release; so does the one that is opened for the plan from the start."""
    plan = laplace_plan(1.0, **changes)
    with pytest.raises(BudgetError, match="opened without a purse") as refused:
        reserve("first", plan=plan)
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    for name, command in (("affairs-2", str(refused.value).rpartition(": ")[2]), ("new", opening_for("new", plan))):
        words = shlex.split(command)
        assert words[:4] == ["marginweave", "ledger", "open", name]
        opened = CliRunner().invoke(app, words[1:])
        assert opened.exit_code == 0, opened.output
        reserve(name, dataset=name, plan=plan, source=name)


def test_an_account_that_has_spent_is_not_told_to_begin_anew(ledger: Ledger, reserve) -> None:
    """A second account would hide what the first one has spent on the same people."""
    reserve("first")
    with pytest.raises(
        BudgetError, match=r"use a plan that needs none \(aggregate\.noise: gaussian, no resize\.amplify\)$"
    ):
        reserve("second", plan=laplace_plan())


def test_the_purse_that_a_command_opens_is_never_smaller_than_asked() -> None:
    """Amounts of an account are doubles as they print: one more digit than a double has is rounded up, not away."""
    asked = Plain(epsilon=Decimal("0.79289321881345242"), delta=Decimal("0.00000012345678901234567"))
    words = shlex.split(opening_command("people", 1.0, 1e-6, purse=asked))
    opened = Plain(epsilon=Decimal(words[-3]), delta=Decimal(words[-1]))
    assert asked.within(opened)
    assert float(opened.epsilon - asked.epsilon) < 1e-15
