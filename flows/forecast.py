"""What a configuration will cost and how exact it will be, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from marginweave.flows.preparation import Request
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.errors import BudgetError
from marginweave.tasks.budget.ledger import Ledger, opening_command
from marginweave.tasks.budget.mechanisms import deviation
from marginweave.tasks.budget.split import plan_budget
from marginweave.tasks.budget.thresholds import level_threshold, private_threshold


@dataclass(frozen=True, kw_only=True)
class DrawForecast:
    """One draw, in words."""

    name: str
    noise: str
    share: float
    error: str
    threshold: str


def forecast(configuration: Configuration) -> tuple[list[DrawForecast], float]:
    """The draws of a release, and their epsilon together at the release's delta.

    The contribution bound is the public cap C(columns, k) here: a bought percentile can only make it, and the noise, less.
    """
    budget = plan_budget(configuration)
    total = float(budget.cost.mu2)
    rows = []
    for draw in budget.draws:
        share = float(draw.cost.mu2) / total
        if draw.mechanism == "exponential":
            rows.append(
                DrawForecast(name=draw.name, noise=f"epsilon {draw.parameter:.4g}", share=share, error="", threshold="")
            )
            continue
        bound = math.comb(len(configuration.columns), draw.length) if draw.length else 1
        neighbors = configuration.privacy.neighbors if draw.length else "add-remove"
        sd = deviation(draw.parameter, bound, neighbors)
        most = "at most " if draw.length and configuration.percentile is not None else ""
        rows.append(
            DrawForecast(
                name=draw.name,
                noise=f"sd {most}{float(sd):.1f}",
                share=share,
                # the mean of |N(0, sd)|
                error=f"± {float(sd) * math.sqrt(2 / math.pi):.1f}",
                threshold=_threshold(configuration, draw.length, bound, budget.delta_threshold) if draw.length else "",
            )
        )
    return rows, budget.spent_epsilon


def ledger_forecast(request: Request) -> list[str]:
    """What the ledger will say to the release, in words; nothing is booked."""
    configuration = request.configuration
    dataset = configuration.dataset
    if request.is_example:
        return [f"Ledger: {dataset} is public example data; `run` keeps an account for it in the home"]
    try:
        privacy = configuration.privacy
        command = opening_command(dataset, privacy.epsilon, privacy.delta)
        ledger = Ledger.open(request.ledger_location, command=command)
        after, fits = ledger.forecast(dataset, plan_budget(configuration))
        total = ledger.account_total(dataset)
    except BudgetError as refusal:
        return [f"Ledger: {refusal}"]
    verdict = "it fits" if fits else "it will be refused"
    spent = f"epsilon {total.epsilon:.4g} of {float(total.account.epsilon):g} at delta {float(total.account.delta):g}"
    spares = configuration.privacy.redraws
    room = f" (with room for {spares} lost draw(s), given back if not needed)" if spares else ""
    return [f"Ledger: {dataset} has spent {spent}; with this release {after:.4g}{room}: {verdict}"]


def _threshold(configuration: Configuration, length: int, bound: int, delta_threshold: float) -> str:
    draw = plan_budget(configuration).draw(f"level-{length}")
    sd = deviation(draw.parameter, bound, configuration.privacy.neighbors)
    # |S| and |V| are not known yet; with as many survivors as candidates the paper's rule is at its lowest.
    threshold = level_threshold(configuration.aggregate, length, configuration.reporting_length, sd, 1, 1)
    if length == 1 and configuration.private_columns:
        private = private_threshold(sd, min(bound, len(configuration.private_columns)), delta_threshold)
        return f"{threshold} (private domains {max(threshold, private)})"
    return str(threshold)
