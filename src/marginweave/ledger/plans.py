"""Checks that a plan is consistent, at a reservation and at an audit, and that it is the plan that was reserved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from marginweave.accounting.charges import Charge, ChargedPlan
from marginweave.accounting.composition import PricedDraw, composed_epsilon
from marginweave.accounting.records import DrawRecord, ReleaseRecord
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import NEW_NAME, InputError
from marginweave.released.program import Program

# Prices are rounded to doubles on their way into a plan.
_SLACK = 1e-9
# Far above any plan's: squares and exponentials of more than this leave the floats.
_LARGEST_AMOUNT = Decimal(10) ** 12
# Another library may compute other last digits; no rule of the program changes a number by so little.
_LAST_DIGITS = 1e-9


def check_cap(cap: BasicAmount) -> None:
    """Refuse a cap that is not a valid (epsilon, delta).

    Raises:
        InputError: epsilon is not positive and finite, or delta not inside [0, 1).
    """
    epsilon = float(cap.epsilon)
    delta = float(cap.delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon ({epsilon}) must be positive and finite")
    if not 0 <= delta < 1:
        raise InputError(f"delta ({delta}) must be at least 0 and below 1")


def check_plan(plan: ChargedPlan) -> None:
    """Refuse a plan whose draws cost more than it states, or that is malformed.

    Raises:
        InputError: what is wrong, by the rules that an auditor applies to the rows.
    """
    check_cap(plan.statement)
    names = [draw.name for draw in plan.charges]
    fault = stated_fault(plan.statement, names) or draws_fault(plan.statement, plan.charges)
    if fault is not None:
        raise InputError(f"plan: {fault}")


def stated_fault(statement: BasicAmount, names: Sequence[str]) -> str | None:
    """Return the fault of a plan's statement or of the `names` of its draws, or None.

    DP: arithmetic on public numbers.
    """
    epsilon = statement.epsilon
    delta = statement.delta
    if not (epsilon.is_finite() and delta.is_finite() and epsilon > 0 and 0 <= delta < 1):
        return f"the plan states epsilon {epsilon} and delta {delta}: no positive epsilon with a delta inside [0, 1)"
    if not names or len(set(names)) != len(names):
        return "a plan must have draws, each with another name"
    return None


def draws_fault(statement: BasicAmount, draws: Sequence[PricedDraw]) -> str | None:
    """Return why the prices of `draws` do not fit what was stated, or None.

    Each draw must cost what its mechanism does, all together no more than the statement by `composed_epsilon` or by
    `release_delta`. Prices may be lower by 1e-9 of their value, for rounding; those in plain epsilon not at all. The price of
    each draw is not checked if the plain charges together are all that is stated, as on a subsample, whose rate no row has.
    DP: arithmetic on public numbers.
    """
    from marginweave.accounting.selection_composition import release_delta

    total = sum((draw.cost for draw in draws), Cost())
    all_stated = statement.within(total.plain)
    for draw in draws:
        fault = _price_fault(draw, all_stated=all_stated)
        if fault is not None:
            return f"draw {draw.name} {fault}"
    spent, _ = composed_epsilon(total, statement.delta)
    stated = float(statement.epsilon) * (1 + _SLACK)
    if spent > stated and release_delta(draws, stated) > float(statement.delta) * (1 + _SLACK):
        return f"the draws cost epsilon {spent:.6g} at delta {statement.delta}, more than the stated {statement.epsilon}"
    return None


def reserved_plan(record: ReleaseRecord, plan: ChargedPlan) -> ChargedPlan:
    """Return the plan as it was reserved and is drawn: all numbers are those in the rows.

    Raises:
        InputError: the release has a draw that is not in `plan`, the plan of its configuration.
    """
    charges = []
    for row in record.draws:
        charge = plan.by_name.get(row.name)
        if charge is None or row.mechanism != charge.mechanism:
            raise InputError(
                f"release {record.release} has the draw {row.name}, which this version does not plan for its configuration; "
                f"use marginweave {record.program}"
            )
        charges.append(_reserved_charge(charge, row))
    return replace(
        plan,
        epsilon=float(record.epsilon),
        delta=float(record.delta),
        neighbors=record.neighbors,
        delta_threshold=record.delta_threshold,
        spent_epsilon=record.spent_epsilon,
        charges=tuple(charges),
        unit=record.unit,
    )


def check_same_plan(
    record: ReleaseRecord, plan: ChargedPlan, program: Program | None
) -> tuple[str, ...]:
    """Refuse a plan that differs from the reserved one; return the names of floats that differ in their last digits.

    These are accepted: the numbers in the rows are drawn, with their last digits.

    Raises:
        InputError: what differs, and what to do.
    """
    changed = []
    for pair in _pairs(record, plan):
        changed += [
            (name, reserved, planned)
            for name, reserved, planned in _flat(*pair)
            if reserved != planned
        ]
    close = {name for name, reserved, planned in changed if _close(reserved, planned)}
    differences = []
    for name, reserved, planned in changed:
        if name not in close:
            differences.append(f"{name} ({planned}) was reserved as {reserved}")
    if differences:
        first = "; ".join(differences[:3])
        if len(differences) > 3:
            first += f"; and {len(differences) - 3} more"
        raise InputError(
            f"run {record.run} was reserved by marginweave {record.program} with another plan than {program} would draw: "
            f"{first}. This attempt drew nothing: "
            f"finish the run with the program that began it, or {NEW_NAME}"
        )
    return tuple(sorted(close))


def _pairs(record: ReleaseRecord, plan: ChargedPlan) -> Iterator[tuple[str, object, object]]:
    """Yield (name, value in the rows, value in `plan`) for every field of a plan that rows hold. DP: public numbers."""
    yield "epsilon", record.epsilon, Decimal(repr(plan.epsilon))
    yield "delta", record.delta, Decimal(repr(plan.delta))
    for name in ("neighbors", "unit"):
        yield name, getattr(record, name), getattr(plan, name)
    rows = [draw.name for draw in record.draws]
    yield "the draws in their order", rows, [draw.name for draw in plan.charges]
    yield "the delta of thresholds", record.delta_threshold, plan.delta_threshold
    for charge in plan.charges:
        row = record.draw(charge.name)
        if row is not None:
            yield from _draw_pairs(row, charge)


def _price_fault(draw: PricedDraw, *, all_stated: bool) -> str | None:
    """Return why the cost of a draw is invalid or, unless `all_stated`, less than its mechanism's, or None."""
    cost = draw.cost
    parameter = draw.parameter
    amounts = (cost.mu2, cost.rho, cost.delta, cost.plain.epsilon, cost.plain.delta)
    if not all(amount.is_finite() and 0 <= amount <= _LARGEST_AMOUNT for amount in amounts):
        return "has no cost: every amount must be finite and not negative"
    if (
        isinstance(parameter, bool)
        or not isinstance(parameter, int | float)
        or not 0 < parameter < math.inf
    ):
        return "has no parameter: it must be positive and finite"
    if all_stated:
        return None
    from marginweave.mechanisms.catalogue import MECHANISMS

    if draw.mechanism not in MECHANISMS:
        return f"has a mechanism ({draw.mechanism}) without a price"
    try:
        price = MECHANISMS[draw.mechanism].price(parameter)
    except (ArithmeticError, ValueError):  # the price is beyond the floats
        price = None
    if (
        price
        and _covers(cost.mu2, price.mu2)
        and _covers(cost.rho, price.rho)
        and price.plain.within(cost.plain)
    ):
        return None
    return f"costs less than {draw.mechanism} with parameter {parameter:.6g} does"


def _covers(charged: Decimal, price: Decimal) -> bool:
    """Return whether what was charged is at least the price, but for rounding."""
    return float(charged) >= float(price) * (1 - _SLACK)


def _draw_pairs(row: DrawRecord, charge: Charge) -> Iterator[tuple[str, object, object]]:
    """Yield the pairs of one draw, as `_pairs` does."""
    for name in ("mechanism", "length", "parameter"):
        yield f"{name} of {row.name}", getattr(row, name), getattr(charge, name)
    for name, text in charge.cost.texts.items():
        yield f"{name} of {row.name}", Decimal(row.cost.texts[name]), Decimal(text)
    for name in sorted({*row.terms, *charge.terms}):
        yield f"{name} of {row.name}", row.terms.get(name), charge.terms.get(name)


def _flat(name: str, reserved: object, planned: object) -> Iterator[tuple[str, object, object]]:
    """Yield a pair, or, of a pair of objects, the pairs of their entries."""
    if isinstance(reserved, dict) and isinstance(planned, dict):
        for key in sorted({*reserved, *planned}):
            yield from _flat(f"{key} in {name}", reserved.get(key), planned.get(key))
    else:
        yield name, reserved, planned


def _close(reserved: object, planned: object) -> bool:
    """Return whether both are numbers that differ at most in their last digits."""
    try:
        numbers = [
            float(value)
            for value in (reserved, planned)
            if isinstance(value, float | Decimal | str)
        ]
    except ValueError:
        return False
    return len(numbers) == 2 and math.isclose(*numbers, rel_tol=_LAST_DIGITS)


def _reserved_charge(charge: Charge, row: DrawRecord) -> Charge:
    """Return the charge with the parameter, cost and terms that were reserved."""
    assert row.parameter is not None
    return replace(charge, parameter=row.parameter, cost=row.cost, terms=row.terms)
