"""What the account of a release says to it before anything is charged: whether it fits, and how long the account lasts."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from marginweave.flows.plan.schedule import Schedule, schedule_forecast
from marginweave.flows.run.lookup import describe_progress
from marginweave.flows.run.preparation import open_ledger
from marginweave.flows.run.request import Request
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import AccountTotal
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.ledger.admission import delta_refusal, unit_refusal
from marginweave.tasks.ledger.rules import PeriodForecast, largest_epsilon


def account_forecast(request: Request, schedule: Schedule | None = None) -> list[str]:
    """What the ledger will say to the release, the policy of this period too, and how long the account lasts on a schedule.

    In words; nothing is booked.
    """
    configuration, progress = request.configuration, describe_progress(request.folder)
    dataset, plan, moment = configuration.dataset, plan_budget(configuration), datetime.now(UTC)
    if request.is_example:
        found = progress or f"{dataset} is public example data; `run` keeps an account for it in the home"
        lasts = ["Schedule: public example data keeps an account in the home, which no schedule needs"]
        return [f"Ledger: {found}", *(lasts if schedule else ())]
    try:
        ledger = open_ledger(request)
    except BudgetError as refusal:
        lasts = ["Schedule: without an account no run fits"]
        return [f"Ledger: {progress or refusal}", *(lasts if schedule else ())]
    total = ledger.accounts.total(dataset)
    lines = [f"Ledger: {progress or _verdict(configuration, total, *ledger.accounts.forecast(dataset, plan))}"]
    policy = ledger.accounts.period_forecast(dataset, plan, moment)
    if policy is not None and math.isfinite(policy.after):  # else an account without delta
        lines.append(f"Policy, not a guarantee: {_policy_verdict(dataset, policy)}")
    if schedule is not None:
        lines += schedule_forecast(total, ledger.releases.of(dataset), plan, schedule, moment)
    return lines


def _verdict(configuration: Configuration, total: AccountTotal, after: float, fits: bool) -> str:
    account, plan = total.account, plan_budget(configuration)
    verdict = "it fits"
    other = unit_refusal(plan.unit, plan.neighbors, account) or delta_refusal(plan.cost, account)
    if other is not None:
        verdict = f"it will be refused: {other.message}"
    elif not fits:
        largest = largest_epsilon(configuration, account, total.spent)
        verdict = "it will be refused" + (f"; with privacy.epsilon: {largest:g} it fits" if largest else "")
    reached = f"with this release {after:.4g}: " if math.isfinite(after) else ""
    spent = f"epsilon {total.epsilon:.4g} of {float(account.epsilon):g} at delta {float(account.delta):g}"
    return f"{account.dataset} has spent {spent}; {reached}{verdict}"


def _policy_verdict(dataset: str, found: PeriodForecast) -> str:
    verdict = "it fits"
    if not found.fits:
        later = f"; it fits from {found.fits_from} on"
        verdict = "it will be refused" + (
            later if found.fits_from else f", as it is too much for any {found.policy.per}"
        )
    spent = f"epsilon {found.before:.4g} of {float(found.policy.epsilon):g} at delta {float(found.policy.delta):g}"
    return f"{dataset} has spent {spent} since {found.start} (UTC); with this release {found.after:.4g}: {verdict}"
