"""The box of constants that a cap (epsilon, delta) admits: how it is chosen, what it still holds, and what is left of it."""

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
# What of delta thresholds get where nothing is known of the plans to come: the share that a release has of its own delta, and
# what the tables of noise add to it.
_THRESHOLDS = Decimal("0.1000001")
# The number of releases of one plan is looked for in steps of 2^-20, up to 2^20.
_STEPS, _MOST = 20, 2**40
# The conversions of another machine may differ in their last digits.
_SLACK = Decimal("1.000000001")


def box_for(cap: BasicAmount, kind_of_plan: Cost | None = None) -> Box:
    """The box of a cap; with `kind_of_plan`, the cost of a release, as many such releases (and parts of one) as it holds.

    The box is c times the plan's cost, c the largest number for which the rest of the cap converts to c times its mu^2: larger
    caps have larger boxes in every coordinate. Without a plan, thresholds get a tenth of delta and plain charges nothing. At
    delta 0 everything is an allowance, and basic composition is all there is.
    DP: arithmetic on public numbers.
    """
    if not cap.delta:
        return Box(allowance=cap)
    if kind_of_plan is None or not (kind_of_plan.mu2 or kind_of_plan.delta or kind_of_plan.plain):
        return _filled(cap, EXACT.multiply(cap.delta, _THRESHOLDS), NOTHING)
    if not (kind_of_plan.delta or kind_of_plan.plain):
        return _filled(cap, Decimal(0), NOTHING)
    parts = range(1, _MOST)
    fitting = bisect_left(parts, True, key=lambda number: not _fits(_parts(kind_of_plan, number), cap, slack=False))
    return _parts(kind_of_plan, fitting)


def box_of_cap(account: Account, cap: BasicAmount) -> Box:
    """The box of an account whose cap becomes `cap`, by the rule of its present one.

    For the plan that it was chosen for; else what is set aside keeps its part of the cap. Where the cap grows, no coordinate
    becomes smaller, so that whatever was or could have been spent before fits the guarantee of the larger cap.

    What homes that are gone may have released (`Account.unaccounted`) is set aside of the cap, as an allowance: it is known by
    its (epsilon, delta) alone. The rest is for the account's own releases; where nothing is left, the box holds nothing.
    """
    gone = account.unaccounted
    if gone and cap.delta:
        return _box_beside(gone, account, cap)
    before = account.box
    if account.kind_of_plan is not None or not cap.delta:
        return box_for(cap, account.kind_of_plan)
    if not account.delta:
        kept = BasicAmount(epsilon=min(before.allowance.epsilon, cap.epsilon))
        return _filled(cap, EXACT.multiply(cap.delta, _THRESHOLDS), kept)
    more, wider = _FLOOR.divide(cap.epsilon, account.epsilon), _FLOOR.divide(cap.delta, account.delta)
    epsilon, delta = before.allowance.epsilon, before.allowance.delta
    allowance = BasicAmount(epsilon=EXACT.multiply(epsilon, more), delta=EXACT.multiply(delta, wider))
    return _filled(cap, EXACT.multiply(before.delta_add, wider), allowance)


def _box_beside(gone: BasicAmount, account: Account, cap: BasicAmount) -> Box:
    """The box of a cap of which `gone` is set aside; whatever else the account had set aside stays as it is."""
    rest, before = cap - gone, account.box.allowance
    if rest.epsilon <= 0 or rest.delta <= 0:
        return Box()
    if account.kind_of_plan is not None:
        box = box_for(rest, account.kind_of_plan)
    else:
        own = BasicAmount(
            epsilon=min(max(before.epsilon - gone.epsilon, Decimal(0)), rest.epsilon),
            delta=min(max(before.delta - gone.delta, Decimal(0)), rest.delta),
        )
        box = _filled(rest, EXACT.multiply(rest.delta, _THRESHOLDS), own)
    return replace(box, allowance=box.allowance + gone)


def box_fault(box: Box, cap: BasicAmount) -> str | None:
    """Why a box promises more than its cap, or None."""
    if not all(amount.is_finite() and amount >= 0 for amount in box.amounts):
        return "the box has an amount that is none"
    return None if _fits(box, cap, slack=True) else "the box promises more than the cap"


def admitted(account: Account, spent: Spent, cost: Cost, statement: BasicAmount) -> Admitted | None:
    """How a release of `cost` that states `statement` is admitted, or None.

    `sums`: the box holds it and everything charged. `statement`: the first release that an account ever has may be as dear as
    its cap by its own (epsilon, delta), which can be less than its sums cost. That was fixed before any noise; nothing is
    admitted behind it (`is_closed`).
    """
    if is_closed(account, spent):
        return None
    if account.box.holds(spent.cost + cost):
        return "sums"
    return "statement" if spent.ever_reserved == 0 and statement.within(account.cap) else None


def is_closed(account: Account, spent: Spent) -> bool:
    """Whether nothing more is admitted, however little it asks for, before the cap is set again.

    The box does not hold what is charged, as where other homes are charged for; or it does not hold what was reserved for a
    release that its own statement admitted. Of that, what is given back does not count: where it does not come back, the box
    would be exceeded.
    """
    if not account.box.holds(spent.cost):
        return True
    return spent.cost_by_statement is not None and not account.box.holds(spent.cost_by_statement)


def account_total(account: Account, spent: Spent) -> AccountTotal:
    """What the account is charged for, and the smallest epsilon of it at the cap's delta.

    A release counts with the cost of its charged draws and, as plain statement, with its (epsilon, delta).
    """
    epsilon, composition = account_epsilon(spent.cost, spent.statement, account.delta)
    return AccountTotal(account=account, epsilon=epsilon, composition=composition, spent=spent)


def total_with(account: Account, spent: Spent, cost: Cost, statement: BasicAmount) -> tuple[float, bool]:
    """Epsilon of the account at its cap's delta with one more release, and whether that is admitted."""
    fits = admitted(account, spent, cost, statement) is not None
    return account_total(account, spent.with_charge(cost, statement)).epsilon, fits


def epsilon_left(total: AccountTotal) -> float:
    """The largest epsilon, at the cap's delta, of one more release of Gaussian draws alone that still fits; 0 for none.

    There is none under a cap without any delta. It is more than the difference between cap and total, because several
    releases together cost less than the sum of their epsilons. DP: arithmetic on public numbers.
    """
    account, spent = total.account, total.spent
    if not account.delta or is_closed(account, spent):
        return 0.0
    if spent.ever_reserved == 0:
        return float(account.epsilon)
    left = rounded(account.box.mu2 - spent.cost.mu2, up=False)
    return gdp_epsilon(math.sqrt(left), float(account.delta)) if left > 0 else 0.0


def spent_share(total: AccountTotal) -> float:
    """The largest share of a coordinate of the account's box that is spent; 1 where it admits nothing more."""
    box, cost = total.account.box, total.spent.cost
    if is_closed(total.account, total.spent):
        return 1.0
    pairs = zip(coordinates(cost), box.amounts, strict=True)
    return max((float(spent / most) for spent, most in pairs if most > 0), default=0.0)


def account_sums(total: AccountTotal) -> AccountSums:
    """What the account and its sums say, for the operator: no released file may have it."""
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
    return Box(mu2=_largest(cap, delta_add, allowance), delta_add=delta_add, allowance=allowance)


def _largest(cap: BasicAmount, delta_add: Decimal, allowance: BasicAmount) -> Decimal:
    """The square of gdp_mu(epsilon - that of the allowance, delta - delta_add - that of the allowance), rounded down."""
    epsilon = rounded(EXACT.subtract(cap.epsilon, allowance.epsilon), up=False)
    delta = rounded(EXACT.subtract(cap.delta, EXACT.add(delta_add, allowance.delta)), up=False)
    if epsilon <= 0 or delta <= 0:
        return Decimal(0)
    mu = Decimal(gdp_mu(epsilon, delta))
    return _FLOOR.multiply(mu, mu)


def _fits(box: Box, cap: BasicAmount, *, slack: bool) -> bool:
    """Whether a box leaves enough of the cap for its mu^2; with `slack`, whether it may on another machine."""
    beside = (box.allowance + BasicAmount(delta=box.delta_add)).within(cap)
    if not beside or not box.mu2:
        return beside
    most = _largest(cap, box.delta_add, box.allowance)
    return box.mu2 <= (most * _SLACK if slack else most)


def coordinates(cost: Cost) -> tuple[Decimal, ...]:
    """What of a cost each coordinate of a box bounds, in the order of `Box.amounts`."""
    return cost.mu2, cost.delta, cost.plain.epsilon, cost.plain.delta


def _parts(cost: Cost, steps: int) -> Box:
    """The box of so many parts of a plan."""
    number = Decimal(steps) / 2**_STEPS
    mu2, delta_add, epsilon, delta = (EXACT.multiply(each, number) for each in coordinates(cost))
    return Box(mu2=mu2, delta_add=delta_add, allowance=BasicAmount(epsilon=epsilon, delta=delta))
