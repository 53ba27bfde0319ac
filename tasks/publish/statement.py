"""privacy.json: what is guaranteed, by which mechanisms, under which assumptions, and what the account has spent."""

from __future__ import annotations

import math
from typing import Any

from scipy.special import ndtr

from marginweave.schemas.aggregates import Aggregates
from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.configuration import Configuration

ASSUMPTIONS = (
    "Every statement in the configuration (columns, domains, bounds, bins, caps, seeds) was public before the data was seen.",
    "One row is one person, as `unit` says; a person with several rows is protected less.",
    "The operating system's generator is unpredictable, and the machine, the ledger and the private folders are the curator's.",
    "Budgets of later releases are not chosen from the noisy results of earlier ones.",
    "Everybody who may see several releases about the same people is told the account's total, not this release alone.",
)
DATA_DEPENDENT_STOPS = (
    "A run that stops before its first draw (a broken contract or suite, an unreadable source) tells its operator so.",
    "How long a run took and how much memory it used is not covered by the guarantee.",
)


def privacy_statement(
    configuration: Configuration,
    plan: BudgetPlan,
    aggregates: Aggregates,
    account: dict[str, Any],
    release: dict[str, Any],
) -> dict[str, Any]:
    """The content of privacy.json.

    `guarantee` is the planned one, by which the release was admitted. `observer` is the largest probability that a best
    guess whether one person is in the data is right: Phi(mu / 2) for Gaussian differential privacy (Dong, Roth, Su 2022,
    section 2), plus delta_threshold for what the discovery of private values may add.
    """
    privacy = configuration.privacy
    cost = plan.cost
    return {
        "format": 1,
        **release,
        "guarantee": {
            "unit": privacy.unit,
            "neighbors": privacy.neighbors,
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "epsilon_of_the_draws": plan.spent_epsilon,
            "mu": math.sqrt(cost.mu2),
            "rho": float(cost.rho),
            "delta_threshold": plan.delta_threshold,
            "accountant": privacy.accountant,
        },
        "observer": min(1.0, float(ndtr(math.sqrt(cost.mu2) / 2)) + plan.delta_threshold),
        "mechanisms": _mechanisms(plan, aggregates),
        "composition": "Gaussian differential privacy: mu^2 of all draws add; delta_threshold is added to delta",
        "assumptions": [*ASSUMPTIONS, *_private_domains(configuration)],
        "not_covered": list(DATA_DEPENDENT_STOPS),
        "account": account,
        "domain": {
            name: list(labels) for name, labels in zip(aggregates.domain.names, aggregates.domain.labels, strict=True)
        },
        "noise": [
            {
                "length": noise.length,
                "contribution_bound": noise.contribution_bound,
                "deviation": noise.deviation,
                "threshold": noise.threshold,
                "private_threshold": noise.private_threshold,
                "candidates": noise.candidates,
            }
            for noise in aggregates.noise
        ],
        "configuration": configuration.canonical(),
    }


def warnings(configuration: Configuration, aggregates: Aggregates) -> tuple[str, ...]:
    """What a reader of the release has to know beyond the numbers; from public and released facts only."""
    found = []
    epsilon, delta, count = configuration.privacy.epsilon, configuration.privacy.delta, aggregates.record_count
    if epsilon > 5:
        found.append(f"epsilon ({epsilon:g}) is above 5: the formal protection of a person is weak.")
    if count > 1 and delta > count**-1.5:
        found.append(f"delta ({delta:g}) is large for about {count} records; 1/n^1.5 would be {count**-1.5:.1e}.")
    if configuration.privacy.neighbors == "replace-one":
        found.append("Under replace-one the number of records itself is not protected; it carries noise all the same.")
    if not any(len(level) for level in aggregates.levels):
        found.append("No combination was released: the noise is larger than the table.")
    return tuple(found)


def _private_domains(configuration: Configuration) -> list[str]:
    return [
        f"The values of column {name!r} were discovered under the budget." for name in configuration.private_columns
    ]


def _mechanisms(plan: BudgetPlan, aggregates: Aggregates) -> list[dict[str, Any]]:
    rows = []
    for draw in plan.draws:
        row: dict[str, Any] = {"draw": draw.name, "mechanism": draw.mechanism, "length": draw.length}
        if draw.mechanism == "exponential":
            row["epsilon"] = draw.parameter
        else:
            row["noise_multiplier"] = draw.parameter
            levels = aggregates.noise
            row["sigma"] = aggregates.record_deviation if not draw.length else levels[draw.length - 1].deviation
        row |= {"mu2": str(draw.cost.mu2), "rho": str(draw.cost.rho), "delta": str(draw.cost.delta)}
        rows.append(row)
    return rows
