"""Largest epsilon that an account admits."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context

from marginweave.accounting.accounts import Account, Spent
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.ledger.boxes import admitted
from marginweave.measurements.split import plan_budget

_DOWN = Context(prec=3, rounding=ROUND_FLOOR)
_PLANS = 14  # number of plans that are tried; one of many marginals takes a tenth of a second
_LEAST = 1e-3


def largest_epsilon(
    configuration: Configuration,
    account: Account,
    spent: Spent,
) -> float:
    """Return the largest `privacy.epsilon`, with at most three digits, whose plan the account admits; 0 for none.

    Everything else, delta included, remains as configured. By bisection; the result was tried, and is at most the epsilon of
    the configuration. DP: arithmetic on public numbers.
    """

    def fits(epsilon: float) -> bool:
        privacy = configuration.privacy.model_copy(update={"epsilon": epsilon})
        try:
            plan = plan_budget(configuration.model_copy(update={"privacy": privacy}))
        except InputError:  # epsilon is too small, or too large for the rest of the configuration
            return False
        return admitted(account, spent, plan.cost, plan.statement) is not None

    low = 0.0
    high = configuration.privacy.epsilon
    for _ in range(_PLANS):
        middle = float(_DOWN.create_decimal(repr((low + high) / 2)))
        if middle <= max(low, _LEAST):
            break
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
