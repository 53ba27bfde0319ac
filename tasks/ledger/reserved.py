"""The plan of an attempt against the plan that was reserved: what differs is never drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from marginweave.schemas.budget import BudgetPlan, GaussianMeasurement, PlannedDraw
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


def reserved_plan(record: ReleaseRecord, plan: BudgetPlan) -> BudgetPlan:
    """The plan as it was reserved, which is what is drawn: all numbers are the rows'; `plan` says what each draw is for.

    Rows of 0.1.0 have the prices and parameters of draws alone.

    Raises:
        InputError: the release has a draw that is not in `plan`, the plan of its configuration.
    """
    if record.delta_threshold is None or record.spent_epsilon is None:
        rows = {row.name: row for row in record.draws if row.parameter is not None}
        return replace(
            plan, draws=tuple(_reserved(draw, rows[draw.name]) if draw.name in rows else draw for draw in plan.draws)
        )
    for row in record.draws:
        if row.name not in plan.by_name or row.mechanism != plan.by_name[row.name].mechanism:
            raise InputError(
                f"release {record.release} has the draw {row.name}, which this version does not plan for its configuration; "
                f"use marginweave {record.program}"
            )
    return replace(
        plan,
        epsilon=float(record.epsilon),
        delta=float(record.delta),
        neighbors=record.neighbors,
        accountant=record.accountant,
        delta_threshold=record.delta_threshold,
        spent_epsilon=record.spent_epsilon,
        draws=tuple(_reserved(plan.by_name[row.name], row) for row in record.draws),
        unit=record.unit,
        discovery=record.discovery,
    )


def _reserved(draw: PlannedDraw, row: DrawRecord) -> PlannedDraw:
    assert row.parameter is not None
    if isinstance(draw, GaussianMeasurement):
        return replace(draw, noise_multiplier=row.parameter, cost=row.cost, terms=row.terms)
    return replace(draw, epsilon=row.parameter, cost=row.cost, terms=row.terms)


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
    if record.delta_threshold is not None:
        found.append(("the delta of thresholds", record.delta_threshold, plan.delta_threshold))
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
