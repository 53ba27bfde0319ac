"""What an account must have for a release of a plan, and the command that opens such a one."""

from __future__ import annotations

from marginweave.schemas.budget import BudgetPlan, Plain
from marginweave.tasks.budget.ledger.books import stated
from marginweave.tasks.budget.ledger.location import opening_command


def planned_statement(plan: BudgetPlan) -> Plain:
    """The plain (epsilon, delta) of a release whose spares, if it has any, were given back."""
    return Plain(epsilon=stated(plan.epsilon), delta=stated(plan.delta))


def reserved_statement(plan: BudgetPlan) -> Plain:
    """The plain (epsilon, delta) of what is reserved for a release: once for its draws and once for each spare.

    The draws together are (epsilon, delta)-DP, so each of them is, and a spare is one of them drawn again.
    """
    times = 1 + plan.spares
    return Plain(epsilon=stated(plan.epsilon) * times, delta=stated(plan.delta) * times)


def cap_around(statement: Plain, purse: Plain) -> Plain:
    """The cap of an account that holds `statement` and has `purse` as a part: with more delta where the purse needs it all."""
    return Plain(epsilon=statement.epsilon, delta=max(statement.delta, 2 * purse.delta))


def least_account(plan: BudgetPlan) -> tuple[Plain, Plain]:
    """Cap and purse of an account in which a release of `plan` fits alone; without plain charges the plan's own statement."""
    purse = plan.reserved_cost.plain
    if not purse:
        return planned_statement(plan), purse
    return cap_around(reserved_statement(plan), purse), purse


def opening_for(dataset: str, plan: BudgetPlan) -> str:
    """The command that opens `least_account`, for the end of a refusal."""
    cap, purse = least_account(plan)
    return opening_command(
        dataset, float(cap.epsilon), float(cap.delta), unit=plan.unit, neighbors=plan.neighbors, purse=purse
    )
