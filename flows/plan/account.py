"""What the account of a release says to it before anything is charged: whether it fits, and what is left."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from marginweave.flows.run.lookup import describe_progress
from marginweave.flows.run.preparation import open_ledger
from marginweave.flows.run.request import Request
from marginweave.schemas.errors import BudgetError
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.ledger import Ledger
from marginweave.tasks.ledger.admission import delta_refusal, unit_refusal
from marginweave.tasks.ledger.rules import largest_epsilon


def ledger_forecast(request: Request) -> list[str]:
    """What the ledger will say to the release, in words; nothing is booked."""
    configuration = request.configuration
    dataset = configuration.dataset
    if (there := describe_progress(request.folder)) is not None:
        return [f"Ledger: {there}"]
    if request.is_example:
        return [f"Ledger: {dataset} is public example data; `run` keeps an account for it in the home"]
    try:
        plan = plan_budget(configuration)
        ledger = open_ledger(request)
        after, fits = ledger.accounts.forecast(dataset, plan)
        total = ledger.accounts.total(dataset)
    except BudgetError as refusal:
        return [f"Ledger: {refusal}"]
    verdict = "it fits"
    if not fits:
        largest = largest_epsilon(configuration, total.account, total.spent)
        verdict = "it will be refused" + (f"; with privacy.epsilon: {largest:g} it fits" if largest else "")
    reached = f"with this release {after:.4g}: " if math.isfinite(after) else ""
    other = unit_refusal(plan.unit, plan.neighbors, total.account) or delta_refusal(plan.cost, total.account)
    if other is not None:
        verdict = f"it will be refused: {other.message}"
    spent = f"epsilon {total.epsilon:.4g} of {float(total.account.epsilon):g} at delta {float(total.account.delta):g}"
    return [f"Ledger: {dataset} has spent {spent}; {reached}{verdict}"]


def policy_forecast(request: Request) -> list[str]:
    """What the account's policy for this period says to the release, in words; nothing where there is none."""
    dataset, plan = request.configuration.dataset, plan_budget(request.configuration)
    try:
        ledger = Ledger.open(request.ledger_location)
        found = ledger.accounts.period_forecast(dataset, plan, datetime.now(UTC))
    except BudgetError:  # `ledger_forecast` says so
        return []
    if found is None or math.isinf(found.after):  # of an account without delta
        return []
    verdict = "it fits"
    if not found.fits:
        later = f"; it fits from {found.fits_from} on"
        verdict = "it will be refused" + (
            later if found.fits_from else f", as it is too much for any {found.policy.per}"
        )
    spent = f"epsilon {found.before:.4g} of {float(found.policy.epsilon):g} at delta {float(found.policy.delta):g}"
    period = f"{dataset} has spent {spent} since {found.start} (UTC)"
    return [f"Policy, not a guarantee: {period}; with this release {found.after:.4g}: {verdict}"]
