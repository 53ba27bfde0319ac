"""What an account must have for a release of a plan, and the command that opens such a one."""

from __future__ import annotations

from marginweave.schemas.budget import BudgetPlan, Plain
from marginweave.tasks.budget.ledger.books import stated
from marginweave.tasks.budget.ledger.location import opening_command


def planned_statement(plan: BudgetPlan) -> Plain:
    """The plain (epsilon, delta) of a release."""
    return Plain(epsilon=stated(plan.epsilon), delta=stated(plan.delta))


def cap_around(statement: Plain, purse: Plain) -> Plain:
    """The cap of an account that holds `statement` and has `purse` as a part: with more delta where the purse needs it all."""
    return Plain(epsilon=statement.epsilon, delta=max(statement.delta, 2 * purse.delta))


def least_account(plan: BudgetPlan) -> tuple[Plain, Plain]:
    """Cap and purse of an account in which a release of `plan` fits alone; without plain charges the plan's own statement."""
    purse = plan.cost.plain
    if not purse:
        return planned_statement(plan), purse
    return cap_around(planned_statement(plan), purse), purse


def opening_for(dataset: str, plan: BudgetPlan) -> str:
    """The command that opens `least_account`, for the end of a refusal."""
    cap, purse = least_account(plan)
    return opening_command(
        dataset, float(cap.epsilon), float(cap.delta), unit=plan.unit, neighbors=plan.neighbors, purse=purse
    )
