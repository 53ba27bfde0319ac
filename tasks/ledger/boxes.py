"""The box of constants that a cap (epsilon, delta) admits: chosen when an account is opened, and again when its cap changes."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from marginweave.schemas.budget import NOTHING, Cost, Plain
from marginweave.schemas.ledger.accounts import Account, Box, Spent
from marginweave.tasks.accounting.accountants import gdp_mu
from marginweave.tasks.accounting.composition import rounded

# Exact for products of amounts.
_EXACT = Context(prec=400)
_FLOOR = Context(prec=40, rounding=ROUND_FLOOR)
# What of delta thresholds get where nothing is known of the plans to come.
_THRESHOLDS = Decimal("0.1")
# The number of releases of one plan is looked for in steps of 2^-20, up to 2^20.
_STEPS, _MOST = 20, 2**40
# The conversions of another machine may differ in their last digits.
_SLACK = Decimal("1.000000001")


def box_for(cap: Plain, kind_of_plan: Cost | None = None) -> Box:
    """The box of a cap; with `kind_of_plan`, the cost of a release, as many such releases (and parts of one) as it holds.

    The box is c times the plan's cost, c the largest number for which the rest of the cap converts to c times its mu^2: larger
    caps have larger boxes in every coordinate. Without a plan, thresholds get a tenth of delta and plain charges nothing. At
    delta 0 everything is an allowance, and basic composition is all there is.
    DP: arithmetic on public numbers.
    """
    if not cap.delta:
        return Box(allowance=cap)
    if kind_of_plan is None or not _amounts(kind_of_plan):
        return _filled(cap, _times(cap.delta, _THRESHOLDS), NOTHING)
    if not (kind_of_plan.delta or kind_of_plan.plain):
        return _filled(cap, Decimal(0), NOTHING)
    fits, over = 0, _MOST
    while over - fits > 1:
        middle = (fits + over) // 2
        fits, over = (middle, over) if _fits(cap, kind_of_plan, middle) else (fits, middle)
    most = _multiple(kind_of_plan, fits)
    return Box(mu2=most.mu2, delta_add=most.delta, allowance=most.plain)


def box_of_cap(account: Account, cap: Plain) -> Box:
    """The box of an account whose cap becomes `cap`, by the rule of its present one.

    For the plan that it was chosen for; else what is set aside keeps its part of the cap. Where the cap grows, no coordinate
    becomes smaller, so that whatever was or could have been spent before fits the guarantee of the larger cap.
    """
    before = account.box or Box()
    if account.kind_of_plan is not None or not cap.delta:
        return box_for(cap, account.kind_of_plan)
    if not account.delta:
        kept = Plain(epsilon=min(before.allowance.epsilon, cap.epsilon))
        return _filled(cap, _times(cap.delta, _THRESHOLDS), kept)
    more, wider = _part(cap.epsilon, account.epsilon), _part(cap.delta, account.delta)
    allowance = Plain(epsilon=_times(before.allowance.epsilon, more), delta=_times(before.allowance.delta, wider))
    return _filled(cap, _times(before.delta_add, wider), allowance)


def box_of_history(account: Account, spent: Spent) -> Box:
    """The box of an account of 0.1.0: room for what thresholds have spent, and the part of its cap that was set aside."""
    if not account.delta:
        return Box(allowance=account.cap)
    delta_add = min(account.delta, max(_times(account.delta, _THRESHOLDS), spent.cost.delta))
    left = _EXACT.subtract(account.delta, delta_add)
    aside = account.old_allowance
    return _filled(account.cap, delta_add, Plain(epsilon=aside.epsilon, delta=min(aside.delta, left)))


def box_fault(box: Box, cap: Plain) -> str | None:
    """Why a box promises more than its cap, or None."""
    amounts = (box.mu2, box.delta_add, box.allowance.epsilon, box.allowance.delta)
    if not all(amount.is_finite() and amount >= 0 for amount in amounts):
        return "the box has an amount that is none"
    beside = box.allowance + Plain(delta=box.delta_add)
    if not beside.within(cap) or (box.mu2 and box.mu2 > _largest(cap, box.delta_add, box.allowance) * _SLACK):
        return "the box promises more than the cap"
    return None


def box_body(box: Box) -> dict[str, str]:
    """A box as exact texts, as `box_from` reads it."""
    named = {
        "mu2": box.mu2,
        "delta_add": box.delta_add,
        "allowance_epsilon": box.allowance.epsilon,
        "allowance_delta": box.allowance.delta,
    }
    return {name: format(value, "f") for name, value in named.items()}


def box_from(body: Mapping[str, Any]) -> Box | None:
    """The box in the body of a row, or None."""
    found = body.get("box")
    if found is None:
        return None
    allowance = Plain(epsilon=Decimal(found["allowance_epsilon"]), delta=Decimal(found["allowance_delta"]))
    return Box(mu2=Decimal(found["mu2"]), delta_add=Decimal(found["delta_add"]), allowance=allowance)


def _filled(cap: Plain, delta_add: Decimal, allowance: Plain) -> Box:
    return Box(mu2=_largest(cap, delta_add, allowance), delta_add=delta_add, allowance=allowance)


def _largest(cap: Plain, delta_add: Decimal, allowance: Plain) -> Decimal:
    """The square of gdp_mu(epsilon - that of the allowance, delta - delta_add - that of the allowance), rounded down."""
    epsilon = rounded(_EXACT.subtract(cap.epsilon, allowance.epsilon), up=False)
    delta = rounded(_EXACT.subtract(cap.delta, _EXACT.add(delta_add, allowance.delta)), up=False)
    if epsilon <= 0 or delta <= 0:
        return Decimal(0)
    mu = Decimal(gdp_mu(epsilon, delta))
    return _FLOOR.multiply(mu, mu)


def _fits(cap: Plain, cost: Cost, steps: int) -> bool:
    """Whether so many parts of a plan leave enough of the cap for their mu^2."""
    parts = _multiple(cost, steps)
    beside = (parts.plain + Plain(delta=parts.delta)).within(cap)
    return beside and parts.mu2 <= _largest(cap, parts.delta, parts.plain)


def _multiple(cost: Cost, steps: int) -> Cost:
    number = Decimal(steps) / 2**_STEPS
    return Cost(
        mu2=_times(cost.mu2, number),
        delta=_times(cost.delta, number),
        plain=Plain(epsilon=_times(cost.plain.epsilon, number), delta=_times(cost.plain.delta, number)),
    )


def _amounts(cost: Cost) -> bool:
    return bool(cost.mu2 or cost.delta or cost.plain)


def _times(amount: Decimal, number: Decimal) -> Decimal:
    return _EXACT.multiply(amount, number)


def _part(new: Decimal, old: Decimal) -> Decimal:
    return _FLOOR.divide(new, old)
