"""What is left of an account is what the next release may ask for, and no more."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from marginweave.schemas.budget import Cost, Plain, amount
from marginweave.schemas.ledger import Account
from marginweave.tasks.budget.accountants import gdp_mu
from marginweave.tasks.budget.ledger.admission import total_with
from marginweave.tasks.budget.ledger.room import room


@pytest.mark.parametrize("spent", [0, 1, 3])
def test_the_room_fits_and_a_little_more_does_not(ledger, reserve, plan, spent) -> None:
    """A release of Gaussian draws with the epsilon that is left is admitted; with one in a thousand more it is not."""
    for number in range(spent):
        reserve(str(number), plan=plan(epsilon=0.3, mu2=0.001))
    account, releases = ledger.account_total("affairs").account, ledger.releases("affairs")
    together = ledger._now().spent_of("affairs")
    left = room(account, releases)
    assert left > float(account.epsilon) - ledger.account_total("affairs").epsilon - 1e-6
    for epsilon, fits in ((left * 0.999, True), (left * 1.001, False)):
        mu2 = gdp_mu(epsilon, float(account.delta)) ** 2
        cost = Cost(mu2=amount(mu2), rho=amount(mu2 / 2))
        assert total_with(account, together, cost, Plain(epsilon=Decimal(epsilon), delta=account.delta))[1] is fits


def test_nothing_is_left_of_a_spent_account(ledger, reserve, plan) -> None:
    """After a cap is lowered below what was spent there is no room."""
    reserve(plan=plan(epsilon=1.0))
    account: Account = replace(ledger.account_total("affairs").account, epsilon=Decimal("0.01"))
    assert room(account, ledger.releases("affairs")) == 0
