"""What is left of an account is what the next release may ask for, and no more."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from marginweave.accounting.accountants import gdp_mu
from marginweave.base.budget import BasicAmount, Cost, amount
from marginweave.ledger.boxes import epsilon_left, total_with
from marginweave.runs.overview import overview_page


@pytest.mark.parametrize("spent", [0, 1, 3])
def test_the_room_fits_and_a_little_more_does_not(ledger, reserve, plan, spent) -> None:
    """A release of Gaussian draws with the epsilon that is left is admitted; with one in a thousand more it is not."""
    for number in range(spent):
        reserve(str(number), plan=plan(epsilon=0.3, mu2=0.001))
    total = ledger.accounts.total("affairs")
    left = epsilon_left(total)
    assert left > float(total.account.epsilon) - total.epsilon - 2e-2
    for epsilon, fits in ((left * 0.999, True), (left * 1.001, False)):
        mu2 = gdp_mu(epsilon, float(total.account.delta)) ** 2
        cost = Cost(mu2=amount(mu2), rho=amount(mu2 / 2))
        stated = BasicAmount(epsilon=Decimal(epsilon), delta=total.account.delta)
        assert total_with(total.account, total.spent, cost, stated)[1] is fits


def test_nothing_is_left_of_a_spent_account(ledger, reserve, plan) -> None:
    """After a cap is lowered below what was spent there is no room, nor after a first release that its statement admitted."""
    reserve(plan=plan(epsilon=1.0))
    ledger.accounts.change_cap("affairs", 0.01, 1e-6, "less", "steward")
    assert epsilon_left(ledger.accounts.total("affairs")) == 0
    ledger.accounts.open(
        replace(ledger.accounts.total("affairs").account, dataset="b", epsilon=Decimal(1)),
        actor="a",
    )
    reserve("b", dataset="b", plan=plan(epsilon=1.0, cost_delta=2e-7, mu2=0.012), source="b")
    ledger.draws.return_unused("b", ["count", "level-1", "level-2"])
    assert epsilon_left(ledger.accounts.total("b")) == 0


@pytest.mark.parametrize(("part", "is_used_up"), [("0.5", False), ("0.9999999", True)])
def test_the_overview_offers_no_release_that_would_be_noise(
    ledger, location, reserve, plan, tmp_path, part, is_used_up
) -> None:
    """Of an account that is used up but for the last digits it says so, and what can be done."""
    box = ledger.accounts.total("affairs").account.box
    reserve(plan=plan(mu2=float(box.mu2 * Decimal(part)), draws=("one",)))
    assert epsilon_left(ledger.accounts.total("affairs")) > 0
    text = re.sub(
        r"<[^>]*>|\s+", " ", overview_page([tmp_path], location, datetime.now(UTC)).decode()
    )
    assert ("one more release of epsilon" in text) is not is_used_up
    assert ("nothing: it is used up" in text) is is_used_up
    assert (
        "marginweave ledger cap affairs --epsilon E --delta D --reason TEXT" in text
    ) is is_used_up
