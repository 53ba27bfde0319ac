"""What an account must have for a release of a plan, and the command that opens such a one."""

from __future__ import annotations

from pathlib import Path

from marginweave.schemas.budget import BudgetPlan, Plain
from marginweave.tasks.ledger.books import stated
from marginweave.tasks.ledger.location import opening_command, opening_command_for


def planned_statement(plan: BudgetPlan) -> Plain:
    """The plain (epsilon, delta) of a release."""
    return Plain(epsilon=stated(plan.epsilon), delta=stated(plan.delta))


def opening_for(dataset: str, plan: BudgetPlan, configuration: Path | None = None) -> str:
    """The command that opens an account that holds a release of `plan`, for the end of a refusal."""
    if configuration is not None:
        return opening_command_for(dataset, configuration)
    return opening_command(dataset, plan.epsilon, plan.delta, unit=plan.unit, neighbors=plan.neighbors)
