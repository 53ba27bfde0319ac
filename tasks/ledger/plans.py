"""What a plan must say to be believed: used where a release is reserved, and again where an auditor reads its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from marginweave.schemas.budget import Cost, Discovery, Neighbors, Plain
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger.states import SPARE_PREFIX
from marginweave.tasks.accounting.accountants import selection_mu
from marginweave.tasks.accounting.composition import PricedDraw, composed_epsilon
from marginweave.tasks.accounting.selection_composition import release_delta
from marginweave.tasks.accounting.sparse_histogram import joint_delta, joint_loss

# Prices are rounded to doubles on their way into a plan.
_SLACK = 1e-9
# Far above any plan's: squares and exponentials of more than this leave the floats.
_LARGEST_AMOUNT = Decimal(10) ** 12


def stated_fault(statement: Plain, names: Sequence[str]) -> str | None:
    """What is wrong with the statement of a plan or the `names` of its draws; None for nothing.

    DP: arithmetic on public numbers.
    """
    epsilon, delta = statement.epsilon, statement.delta
    if not (epsilon.is_finite() and delta.is_finite() and epsilon > 0 and 0 <= delta < 1):
        return f"the plan states epsilon {epsilon} and delta {delta}: no positive epsilon with a delta inside [0, 1)"
    if not names or len(set(names)) != len(names):
        return "a plan must have draws, each with a name of its own"
    if any(name.startswith(SPARE_PREFIX) for name in names):
        return f"draws of a plan must not be named as spares ({SPARE_PREFIX}…)"
    return None


def draws_fault(
    statement: Plain,
    draws: Sequence[PricedDraw],
    neighbors: Neighbors,
    discovery: Discovery | None = None,
) -> str | None:
    """Why the prices of `draws` do not fit what was stated, or None.

    Each draw must cost what its mechanism does, all together no more than the statement by `composed_epsilon` or by
    `release_delta`, or by `joint_delta` where the plan has a `discovery`. Prices may be
    below by 1e-9 of themselves, for rounding; those in plain epsilon not at all. What the draws cost each is not asked where
    they are charged, in plain, all that is stated, as on a subsample, whose rate no row has. `draws` are in the order of the
    plan; a `discovery` has the relation `neighbors` of the release, or replace-one, which is never cheaper, of a resized table.
    DP: arithmetic on public numbers.
    """
    whole = sum((draw.cost for draw in draws), Cost())
    all_stated = statement.within(whole.plain)
    for draw in draws:
        fault = _price_fault(draw, all_stated=all_stated)
        if fault is not None:
            return f"draw {draw.name} {fault}"
    if discovery is not None:
        return _joint_fault(statement, draws, neighbors, discovery)
    spent, _ = composed_epsilon(whole, statement.delta)
    stated = float(statement.epsilon) * (1 + _SLACK)
    if spent > stated and release_delta(draws, stated) > float(statement.delta) * (1 + _SLACK):
        return (
            f"the draws cost epsilon {spent:.6g} at delta {statement.delta}, more than the stated {statement.epsilon}"
        )
    return None


def _joint_fault(
    statement: Plain, draws: Sequence[PricedDraw], neighbors: Neighbors, discovery: Discovery
) -> str | None:
    if discovery.neighbors not in (neighbors, "replace-one"):
        return f"the discovery is priced under {discovery.neighbors}, and the release is for {neighbors}"
    if any(draw.cost.plain for draw in draws):
        return "a draw is charged in plain epsilon, and its delta was treated jointly"
    try:
        delta = joint_delta(joint_loss(draws, discovery), float(statement.epsilon))
    except InputError as error:
        return str(error)
    if delta > float(statement.delta) * (1 + _SLACK):
        return (
            f"the draws have delta {delta:.6g} at epsilon {statement.epsilon}, more than the stated {statement.delta}"
        )
    return None


def _price_fault(draw: PricedDraw, *, all_stated: bool) -> str | None:
    cost, parameter = draw.cost, draw.parameter
    if not all(map(_is_amount, _amounts(cost))):
        return "has no cost: every amount must be finite and not negative"
    if isinstance(parameter, bool) or not isinstance(parameter, int | float) or not 0 < parameter < math.inf:
        return "has no parameter: it must be positive and finite"
    if all_stated:
        return None
    if draw.mechanism == "rounded-gaussian":
        squared = parameter * parameter  # may be 0 or infinite; then nothing below is enough, or anything is
        fits = _covers(float(cost.mu2) * squared, 1) and _covers(float(cost.rho) * squared, 0.5)
    elif draw.mechanism == "discrete-laplace":
        fits = cost.plain.epsilon >= Decimal(repr(parameter))
    elif draw.mechanism == "exponential":
        mu = selection_mu(parameter)
        fits = _covers(float(cost.mu2), mu * mu) and _covers(float(cost.rho), parameter * parameter / 8)
    else:
        return f"has a mechanism ({draw.mechanism}) without a price"
    return None if fits else f"costs less than {draw.mechanism} with parameter {parameter:.6g} does"


def _covers(charged: float, price: float) -> bool:
    return charged >= price * (1 - _SLACK)


def _amounts(cost: Cost) -> tuple[Decimal, ...]:
    return cost.mu2, cost.rho, cost.delta, cost.plain.epsilon, cost.plain.delta


def _is_amount(value: Decimal) -> bool:
    return value.is_finite() and 0 <= value <= _LARGEST_AMOUNT
