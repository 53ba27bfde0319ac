"""A bought comparison is a draw like the others: reserved, begun, committed, and charged for what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marginweave.accounting.records import State
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger import Ledger
from marginweave.planning.split import plan_budget
from tests.support.configurations import configuration
from tests.support.databases import on_both
from tests.support.releases import reserve_release

PLAN = plan_budget(configuration(evaluate={"paid": {"share": 0.05}}))
pytestmark = on_both


def test_its_charge_is_its_price_to_the_last_digit(ledger: Ledger) -> None:
    """The release with it fits an account of its own epsilon; what is given back is not charged, the evaluation stays."""
    reserve_release(ledger, PLAN)
    assert PLAN.spent_epsilon <= ledger.accounts.total("affairs").epsilon == PLAN.epsilon
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "evaluation", "lease")
    ledger.draws.commit("first", "evaluation", "lease", "digest", tainted=False)
    ledger.draws.return_unused("first", [draw.name for draw in PLAN.draws if draw.name != "evaluation"])
    record = ledger.releases.find("first")
    assert record is not None
    assert record.charged == PLAN.by_name["evaluation"].cost
    standing = record.draw("evaluation")
    assert standing is not None
    assert (standing.state, standing.mechanism) == (State.COMMITTED, "rounded-gaussian")
    with pytest.raises(BudgetError):
        ledger.draws.begin("first", "evaluation", "lease")


def test_a_plan_that_sells_it_too_cheaply_is_refused(ledger: Ledger) -> None:
    *others, last = PLAN.draws
    cheap = replace(last, cost=replace(last.cost, mu2=last.cost.mu2 / 2))
    with pytest.raises(InputError, match="evaluation costs less than rounded-gaussian"):
        reserve_release(ledger, replace(PLAN, draws=(*others, cheap)))
