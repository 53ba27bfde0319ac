"""The plan of an attempt against the plan that was reserved: what differs is never drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger.releases import DrawRecord, ReleaseRecord
from marginweave.schemas.program import Program

# Another library may compute another last digit; no rule of the program changes a number by so little.
_LAST_DIGITS = 1e-9


@dataclass(frozen=True, kw_only=True)
class PlanComparison:
    """What a plan has otherwise than the rows: in words `differences`, and `last_digits` of which floats alone differ."""

    differences: tuple[str, ...]
    last_digits: tuple[str, ...]


def plan_of_rows(record: ReleaseRecord, plan: BudgetPlan) -> BudgetPlan:
    """`plan` with mechanism, length, parameter and cost of each draw as the rows of 0.1.0 have them, which keep no more."""
    draws = []
    for draw in plan.draws:
        row = record.draw(draw.name)
        if row is not None and row.parameter is not None:
            draw = replace(draw, parameter=row.parameter, cost=row.cost)  # noqa: PLW2901 - the reserved one
        draws.append(draw)
    return replace(plan, draws=tuple(draws))


def compare_plan(record: ReleaseRecord, plan: BudgetPlan) -> PlanComparison:
    """The plan of an attempt against the rows of its release, in every field that the rows hold. DP: public numbers."""
    found: list[tuple[str, object, object]] = []
    rows = [draw for draw in record.draws if not draw.is_spare]
    found += [
        ("epsilon", record.epsilon, Decimal(repr(plan.epsilon))),
        ("delta", record.delta, Decimal(repr(plan.delta))),
        ("neighbors", record.neighbors, plan.neighbors),
        ("unit", record.unit, plan.unit),
        ("accountant", record.accountant, plan.accountant),
        ("discovery", record.discovery and asdict(record.discovery), plan.discovery and asdict(plan.discovery)),
        ("the draws in their order", [row.name for row in rows], [draw.name for draw in plan.draws]),
    ]
    if record.plan is not None:
        found.append(("the delta of thresholds", record.plan.delta_threshold, plan.delta_threshold))
    for draw in plan.draws:
        row = record.draw(draw.name)
        if row is not None:
            found += _of_draw(row, draw.mechanism, draw.length, draw.parameter, draw.cost.texts, draw.terms)
    flat = [pair for item in found for pair in _flat(*item)]
    other = [(name, before, now) for name, before, now in flat if before != now]
    close = {name for name, before, now in other if _close(before, now)}
    differences = (f"{name} ({now}) was reserved as {before}" for name, before, now in other if name not in close)
    return PlanComparison(differences=tuple(differences), last_digits=tuple(sorted(close)))


def check_same_plan(record: ReleaseRecord, plan: BudgetPlan, program: Program) -> tuple[str, ...]:
    """Refuse to go on with a release under another plan than was reserved; names of floats that differ in their last digits.

    What is drawn is what the rows have, those digits included.

    Raises:
        InputError: what differs, and what to do.
    """
    compared = compare_plan(record, plan)
    if compared.differences:
        began = f"marginweave {record.program}" if record.program is not None else "marginweave 0.1.0"
        more = len(compared.differences) - 3
        told = "; ".join(compared.differences[:3]) + (f"; and {more} more" if more > 0 else "")
        raise InputError(
            f"run {record.run} was reserved by {began} with another plan than {program} would draw: {told}. This attempt drew "
            "nothing: finish the run with the program that began it, or give a new release a name of its own with --run"
        )
    return compared.last_digits


def _of_draw(
    row: DrawRecord, mechanism: str, length: int, parameter: float, cost: Mapping[str, str], terms: Mapping[str, Any]
) -> Iterator[tuple[str, object, object]]:
    yield f"mechanism of {row.name}", row.mechanism, mechanism
    yield f"length of {row.name}", row.length, length
    yield f"parameter of {row.name}", row.parameter, parameter
    for name, text in cost.items():
        yield f"{name} of {row.name}", Decimal(row.cost.texts[name]), Decimal(text)
    if row.terms:
        for name in sorted({*row.terms, *terms}):
            yield f"{name} of {row.name}", row.terms.get(name), terms.get(name)


def _flat(name: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _flat(f"{key} in {name}", before.get(key), now.get(key))
    else:
        yield name, before, now


def _close(before: object, now: object) -> bool:
    try:
        numbers = [float(value) for value in (before, now) if isinstance(value, float | Decimal | str)]
    except ValueError:
        return False
    return len(numbers) == 2 and math.isclose(*numbers, rel_tol=_LAST_DIGITS)
