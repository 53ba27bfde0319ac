"""Chooses the box of constants that a cap (epsilon, delta) admits, and computes what it admits and what is left of it."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Literal

from marginweave.accounting.accountants import gdp_epsilon, gdp_mu
from marginweave.accounting.accounts import Account, AccountTotal, Box, Spent
from marginweave.accounting.composition import EXACT, account_epsilon, rounded
from marginweave.base.budget import NOTHING, BasicAmount, Cost
from marginweave.ledger.records import box_body
from marginweave.released.account import AccountBox, AccountSums, Amounts

Admitted = Literal["sums", "statement"]
_FLOOR = Context(prec=40, rounding=ROUND_FLOOR)
# Share of delta for thresholds if the plans to come are unknown: the share in a release's own delta, and a little more for
# the tables of noise.
_THRESHOLDS = Decimal("0.1000001")
# The number of releases of one plan is searched in steps of 2^-20, up to 2^20.
_STEPS = 20
_MOST = 2**40
# The conversions of another machine may differ in their last digits.
_SLACK = Decimal("1.000000001")


def box_for(cap: BasicAmount, kind_of_plan: Cost | None = None) -> Box:
    """Return the box of a cap; with `kind_of_plan`, the cost of a release, room for as many such releases as fit.

    That number may have a fraction. The box is c times the plan's cost, c the largest number for which the rest of the cap
    converts to c times its mu^2: larger caps have larger boxes in every coordinate. Without a plan, thresholds get a tenth of
    delta and plain charges nothing. At delta 0 everything is an allowance, and only basic composition applies.
    DP: arithmetic on public numbers.
    """
    if not cap.delta:
        return Box(allowance=cap)
    if kind_of_plan is None or not (kind_of_plan.mu2 or kind_of_plan.delta or kind_of_plan.plain):
        thresholds = EXACT.multiply(cap.delta, _THRESHOLDS)
        return _filled(cap, thresholds, NOTHING)
    if not (kind_of_plan.delta or kind_of_plan.plain):
        return _filled(cap, Decimal(0), NOTHING)

    def is_too_large(steps: int) -> bool:
        return not _fits(_box_of_steps(kind_of_plan, steps), cap, slack=False)

    # The first element of range(1, _MOST) that is too large has the largest number that fits as its index.
    largest = bisect_left(range(1, _MOST), True, key=is_too_large)
    return _box_of_steps(kind_of_plan, largest)


def box_of_cap(account: Account, cap: BasicAmount) -> Box:
    """Return the box of an account whose cap becomes `cap`, by the rule of its present one.

    It is the box for the plan that the present one was chosen for. Without such a plan the delta of thresholds and the
    allowance keep their shares of the cap. If the cap grows, no coordinate becomes smaller: whatever was or could have been
    spent before fits the guarantee of the larger cap.

    What lost homes may have released (`Account.unaccounted`) is set aside from the cap, as an allowance: only its
    (epsilon, delta) is known. The rest is for the account's own releases; if nothing is left, the box holds nothing.
    """
    unaccounted = account.unaccounted
    if unaccounted and cap.delta:
        return _box_with_unaccounted(unaccounted, account, cap)
    before = account.box
    if account.kind_of_plan is not None or not cap.delta:
        return box_for(cap, account.kind_of_plan)
    if not account.delta:
        allowance = BasicAmount(epsilon=min(before.allowance.epsilon, cap.epsilon))
        thresholds = EXACT.multiply(cap.delta, _THRESHOLDS)
        return _filled(cap, thresholds, allowance)
    epsilon_growth = _FLOOR.divide(cap.epsilon, account.epsilon)
    delta_growth = _FLOOR.divide(cap.delta, account.delta)
    allowance = BasicAmount(
        epsilon=EXACT.multiply(before.allowance.epsilon, epsilon_growth),
        delta=EXACT.multiply(before.allowance.delta, delta_growth),
    )
    thresholds = EXACT.multiply(before.delta_add, delta_growth)
    return _filled(cap, thresholds, allowance)


def _box_with_unaccounted(unaccounted: BasicAmount, account: Account, cap: BasicAmount) -> Box:
    """Return the box of a cap of which `unaccounted` is set aside; what else the allowance had stays as it is."""
    available = cap - unaccounted
    if available.epsilon <= 0 or available.delta <= 0:
        return Box()
    if account.kind_of_plan is not None:
        box = box_for(available, account.kind_of_plan)
    else:
        before = account.box.allowance
        epsilon = max(before.epsilon - unaccounted.epsilon, Decimal(0))
        delta = max(before.delta - unaccounted.delta, Decimal(0))
        allowance = BasicAmount(
            epsilon=min(epsilon, available.epsilon), delta=min(delta, available.delta)
        )
        thresholds = EXACT.multiply(available.delta, _THRESHOLDS)
        box = _filled(available, thresholds, allowance)
    return replace(box, allowance=box.allowance + unaccounted)


def box_fault(box: Box, cap: BasicAmount) -> str | None:
    """Return why a box is invalid or promises more than its cap, or None."""
    if not all(amount.is_finite() and amount >= 0 for amount in box.amounts):
        return "the box has an amount that is none"
    return None if _fits(box, cap, slack=True) else "the box promises more than the cap"


def admitted(account: Account, spent: Spent, cost: Cost, statement: BasicAmount) -> Admitted | None:
    """Return how a release of `cost` that states `statement` is admitted, or None.

    `sums`: the box holds it together with everything charged. `statement`: the box does not, but it is the first release that
    the account ever has, and its own (epsilon, delta) is within the cap. That was fixed before any noise; nothing is admitted
    after it (`is_closed`).
    """
    if is_closed(account, spent):
        return None
    if account.box.holds(spent.cost + cost):
        return "sums"
    if spent.ever_reserved == 0 and statement.within(account.cap):
        return "statement"
    return None


def is_closed(account: Account, spent: Spent) -> bool:
    """Return whether no release is admitted, however small, before the cap is set again.

    The box does not hold what is charged, for example for lost homes; or it does not hold what was reserved for a release that
    was admitted by its own statement. Draws that this release returned still count: had they not been returned, the box would
    be exceeded.
    """
    if not account.box.holds(spent.cost):
        return True
    return spent.cost_by_statement is not None and not account.box.holds(spent.cost_by_statement)


def account_total(account: Account, spent: Spent) -> AccountTotal:
    """Return the sums of the account, and their smallest epsilon at the cap's delta.

    A release counts with the cost of its charged draws and, as plain statement, with its (epsilon, delta).
    """
    epsilon, composition = account_epsilon(spent.cost, spent.statement, account.delta)
    return AccountTotal(account=account, epsilon=epsilon, composition=composition, spent=spent)


def total_with(
    account: Account, spent: Spent, cost: Cost, statement: BasicAmount
) -> tuple[float, bool]:
    """Return epsilon of the account at its cap's delta with one more release, and whether that is admitted."""
    fits = admitted(account, spent, cost, statement) is not None
    spent_after = spent.with_charge(cost, statement)
    return account_total(account, spent_after).epsilon, fits


def epsilon_left(total: AccountTotal) -> float:
    """Return the largest epsilon, at the cap's delta, of one more release of Gaussian draws alone that fits; 0 for none.

    There is none under a cap with delta 0. It is more than the difference between cap and total, because several
    releases together cost less than the sum of their epsilons. DP: arithmetic on public numbers.
    """
    account = total.account
    spent = total.spent
    if not account.delta or is_closed(account, spent):
        return 0.0
    if spent.ever_reserved == 0:
        return float(account.epsilon)
    mu2_left = rounded(account.box.mu2 - spent.cost.mu2, up=False)
    if mu2_left <= 0:
        return 0.0
    return gdp_epsilon(math.sqrt(mu2_left), float(account.delta))


def spent_share(total: AccountTotal) -> float:
    """Return the largest spent share of a coordinate of the account's box; 1 if it admits nothing more."""
    if is_closed(total.account, total.spent):
        return 1.0
    shares = []
    for spent, most in zip(coordinates(total.spent.cost), total.account.box.amounts, strict=True):
        if most > 0:
            shares.append(float(spent / most))
    return max(shares, default=0.0)


def account_sums(total: AccountTotal) -> AccountSums:
    """Return the account and its sums for the operator; no released file may contain them."""
    account = total.account
    return AccountSums(
        dataset=account.dataset,
        epsilon=total.epsilon,
        delta=float(account.delta),
        cap_epsilon=float(account.epsilon),
        composition=total.composition,
        box=AccountBox(**box_body(account.box)),
        spent=Amounts(**total.spent.cost.texts),
        releases=total.spent.releases,
        weak_delta=account.weak_delta,
        reconciled=account.reconciled or None,
    )


def _filled(cap: BasicAmount, delta_add: Decimal, allowance: BasicAmount) -> Box:
    """Return the box with these amounts and the largest mu^2 that the rest of the cap converts to."""
    return Box(
        mu2=_largest_mu2(cap, delta_add, allowance), delta_add=delta_add, allowance=allowance
    )


def _largest_mu2(cap: BasicAmount, delta_add: Decimal, allowance: BasicAmount) -> Decimal:
    """Return gdp_mu(epsilon - allowance epsilon, delta - delta_add - allowance delta)^2, rounded down."""
    epsilon = rounded(EXACT.subtract(cap.epsilon, allowance.epsilon), up=False)
    delta_set_aside = EXACT.add(delta_add, allowance.delta)
    delta = rounded(EXACT.subtract(cap.delta, delta_set_aside), up=False)
    if epsilon <= 0 or delta <= 0:
        return Decimal(0)
    mu = Decimal(gdp_mu(epsilon, delta))
    return _FLOOR.multiply(mu, mu)


def _fits(box: Box, cap: BasicAmount, *, slack: bool) -> bool:
    """Return whether the cap holds all coordinates of a box; with `slack`, whether it may on another machine."""
    added = box.allowance + BasicAmount(delta=box.delta_add)
    if not added.within(cap):
        return False
    if not box.mu2:
        return True
    most = _largest_mu2(cap, box.delta_add, box.allowance)
    if slack:
        most = most * _SLACK
    return box.mu2 <= most


def coordinates(cost: Cost) -> tuple[Decimal, ...]:
    """Return the amounts of a cost that the coordinates of a box bound, in the order of `Box.amounts`."""
    return cost.mu2, cost.delta, cost.plain.epsilon, cost.plain.delta


def _box_of_steps(cost: Cost, steps: int) -> Box:
    """Return the box of steps / 2^20 releases of this cost."""
    number = Decimal(steps) / 2**_STEPS
    amounts = [EXACT.multiply(amount, number) for amount in coordinates(cost)]
    mu2, delta_add, epsilon, delta = amounts
    allowance = BasicAmount(epsilon=epsilon, delta=delta)
    return Box(mu2=mu2, delta_add=delta_add, allowance=allowance)
