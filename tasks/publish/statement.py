"""privacy.json: what is guaranteed, by which mechanisms, under which assumptions, and what the account has spent."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from scipy.special import ndtr

from marginweave.schemas.budget import BudgetPlan, DrawKind, GaussianMeasurement, PlannedDraw, Selection
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.tasks.accounting.amplification import functional_parameters
from marginweave.tasks.accounting.plan.marginals import rounds_of
from marginweave.tasks.aggregate.domain import discovery
from marginweave.tasks.aggregate.rounds import share_deviation
from marginweave.tasks.aggregate.selection import scoring
from marginweave.tasks.mechanisms.gaussian import error_deviation, error_sensitivity
from marginweave.tasks.publish.wording import Bounds, preparation_words, unit_assumption

ASSUMPTIONS = (
    "Every statement in the configuration (columns, domains, bounds, bins, caps, seeds) was public before the data was seen.",
    "The operating system's generator is unpredictable, and the machine, the ledger and the private folders are the curator's.",
    "Everybody who may see several releases about the same people is told the account's total, not this release alone.",
)
COMPOSED = "Gaussian differential privacy: mu^2 of all draws add; delta_threshold is added to delta"
SELECTED = (
    "; mu covers each exponential mechanism alone, and adds up over releases: within this one their exact worst curves are "
    "composed with the noise, which gives the smaller epsilon_of_the_draws"
)
PURE = "The draws of Laplace noise are (epsilon, 0)-differentially private, and their epsilons add; there is no delta"
JOINT = (
    "Gaussian differential privacy: mu^2 of all draws add; delta_threshold and the delta of the noise are treated together, "
    "as whoever has new values moves other counts the less; in the account both are added"
)
UNFABRICATED = (
    "; only combinations that occur are noised, and each length spends an equal part of delta_threshold on that"
)
LAPLACE = (
    "The draws of Laplace noise are (epsilon, 0)-differentially private and their epsilons add; the others, by Gaussian "
    "differential privacy, are converted at delta; both are added"
)
IN_ROUNDS = (
    "; which marginals a round measures, and with how many of the equal shares, follows from earlier draws, and the price of "
    "every draw was fixed before the first"
)
AMPLIFIED = (
    "The draws together are differentially private towards the sampled table, by Gaussian differential privacy; the sampling "
    "makes that (epsilon, delta) towards the data"
)
APPROVED = (
    "Whether this release was published was decided by somebody who had seen it, and nothing that it was made from."
)
APPROVED_AFTER_A_LOOK = (
    "Whether this release was published was decided by somebody who had seen it; before, a release about the same people had "
    "been compared with the sensitive table (internal evaluation), which that person may have seen."
)
DATA_DEPENDENT_STOPS = (
    "A run that stops before its first draw (a broken contract or suite, an unreadable source) tells its operator so.",
    (
        "A run that stops after a draw since memory or disk do not hold what it counts, or a file it set aside is damaged, "
        "tells its operator that it stopped; the same command goes on with it, makes the same draws again, and charges nothing "
        "anew."
    ),
    "How long a run took and how much memory it used is not covered by the guarantee.",
)


def privacy_statement(
    configuration: Configuration,
    plan: BudgetPlan,
    aggregates: Aggregates,
    account: dict[str, Any],
    release: dict[str, Any],
    bounds: Bounds,
) -> dict[str, Any]:
    """The content of privacy.json: the promise, and with what noise it was kept.

    `bounds` are the released ones of columns with private bounds. The other arguments are those of `promise`.
    """
    told = promise(configuration, plan, account, release)
    return {
        **told,
        "preparation": preparation_words(configuration, bounds),
        "bounds": {name: list(pair) for name, pair in bounds.items()},
        "mechanisms": [
            row | _noise(configuration, plan, aggregates, draw)
            for row, draw in zip(told["mechanisms"], plan.draws, strict=True)
        ],
        "domain": {
            name: list(labels) for name, labels in zip(aggregates.domain.names, aggregates.domain.labels, strict=True)
        },
        "noise": [asdict(noise) for noise in aggregates.noise] if configuration.marginals is None else [],
    }


def promise(
    configuration: Configuration, plan: BudgetPlan, account: dict[str, Any], release: dict[str, Any]
) -> dict[str, Any]:
    """What privacy.json says that follows from configuration, plan and ledger; nothing that was computed from a draw.

    `guarantee` is the planned one, by which the release was admitted; `mu` and `rho` are null where it is known as (epsilon,
    delta) alone. `observer` is the largest probability that a best guess whether one person is in the data is right:
    Phi(mu / 2) for Gaussian differential privacy (Dong, Roth, Su 2022, section 2), plus delta_threshold for what the
    discovery of private values may add; (e^epsilon + delta)/(1 + e^epsilon) for (epsilon, delta) alone.
    `on_the_sampled_table` is the functional (epsilon, delta) of an amplified resize, which the noise of its draws adds up to;
    null without one. `account` is what the ledger says of the dataset, `release` who the release is; `returned` of it names
    planned draws that were not made, `evaluated_until_now` says whether somebody has looked at rows of the same people.
    """
    privacy = configuration.privacy
    amplified = configuration.resize is not None and configuration.resize.amplify
    in_plain = bool(plan.cost.plain)
    facts = dict(release)
    returned = facts.pop("returned", ())
    approved = APPROVED_AFTER_A_LOOK if facts.pop("evaluated_until_now", False) else APPROVED
    mu = None if in_plain else math.sqrt(plan.cost.mu2)
    return {
        "format": 1,
        **facts,
        "guarantee": {
            "unit": privacy.unit_words,
            "neighbors": privacy.neighbors,
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            **({} if privacy.weak_delta is None else {"weak_delta": privacy.weak_delta}),
            "epsilon_of_the_draws": plan.spent_epsilon,
            "on_the_sampled_table": _functional(configuration),
            "mu": mu,
            "rho": None if in_plain else float(plan.cost.rho),
            "delta_threshold": plan.delta_threshold,
            "accountant": privacy.accountant,
            "fabrication": "possible"
            if configuration.marginals is not None
            else configuration.tuples.fabrication or "possible",
        },
        "observer": _observer(plan, mu),
        "preparation": preparation_words(configuration, {}),
        "mechanisms": [
            {**_planned(draw), "state": "returned" if draw.name in returned else "drawn", **draw.cost.texts}
            for draw in plan.draws
        ],
        "composition": AMPLIFIED if amplified else _composition(configuration, plan),
        "assumptions": [
            unit_assumption(configuration),
            *ASSUMPTIONS,
            *old_releases(account.get("releases_before_box", 0)),
            *_private_domains(configuration),
            *_stated_facts(configuration),
            *([approved] if configuration.publish.approval else []),
        ],
        "not_covered": list(DATA_DEPENDENT_STOPS),
        "account": account,
        "configuration": configuration.canonical(),
    }


def _composition(configuration: Configuration, plan: BudgetPlan) -> str:
    if plan.cost.plain:
        return LAPLACE if plan.delta else PURE
    words = JOINT if plan.discovery is not None else COMPOSED
    if words is COMPOSED and any(isinstance(draw, Selection) for draw in plan.draws):
        words += SELECTED
    if configuration.marginals is not None and rounds_of(configuration) is not None:
        words += IN_ROUNDS
    unfabricated = configuration.marginals is None and configuration.tuples.fabrication == "none"
    return words + UNFABRICATED if unfabricated else words


def _functional(configuration: Configuration) -> dict[str, float] | None:
    privacy, resize = configuration.privacy, configuration.resize
    if resize is None or not resize.amplify:
        return None
    formula = resize.formula or "tight"
    epsilon, delta = functional_parameters(privacy.epsilon, privacy.delta, resize.copies, resize.rate, formula)
    return {"epsilon": epsilon, "delta": delta}


def _observer(plan: BudgetPlan, mu: float | None) -> float:
    if mu is not None:
        return min(1.0, float(ndtr(mu / 2)) + plan.delta_threshold)
    return min(1.0, (1 + plan.delta * math.exp(-plan.epsilon)) / (1 + math.exp(-plan.epsilon)))


def old_releases(number: int) -> list[str]:
    """What an account's guarantee rests on where so many of its releases were made before it had a box."""
    if not number:
        return []
    which = "release 1" if number == 1 else f"releases 1 to {number}"
    return [
        f"The budgets of {which} of the account, made by 0.1.0, were not chosen from noisy results of earlier ones."
    ]


def _private_domains(configuration: Configuration) -> list[str]:
    return [
        f"The values of column {name!r} were discovered under the budget." for name in configuration.private_columns
    ]


def _stated_facts(configuration: Configuration) -> list[str]:
    """Where each column's facts are published, by the steward's word; a draft's private line keeps its kind and form."""
    stated = []
    for name, column in configuration.columns.items():
        if column.public is not None:
            stated.append(f"What the configuration says of column {name!r} is public knowledge: {column.public}.")
        elif column.confirm:
            stated.append(
                f"Kind and form of column {name!r} were drafted from the data and are taken for public knowledge."
            )
    return stated


def _planned(draw: PlannedDraw) -> dict[str, Any]:
    """A draw as it was planned: the parameter of its mechanism."""
    row: dict[str, Any] = {"draw": draw.name, "mechanism": draw.mechanism, "length": draw.length}
    parameter = "noise_multiplier" if isinstance(draw, GaussianMeasurement) else "epsilon"
    return {**row, parameter: draw.parameter}


def _noise(
    configuration: Configuration, plan: BudgetPlan, aggregates: Aggregates, draw: PlannedDraw
) -> dict[str, float | int]:
    """The noise that a draw had, by its sensitivity; nothing where it has no single deviation.

    The deviation of every marginal stands in `marginals`, as one draw has many. `sigma` of `selection` is that of a score, in
    records, on a grid of `step` records; `threshold` of `values` the least noisy count of a released value. `sigma` of a share
    of rounds is that of a cell where a batch has it equally, `sensitivity` of a choice how far a unit moves the distance
    of a marginal, `sensitivity` of `evaluation` how far it moves the mean count error, in records.
    """
    if draw.kind is DrawKind.EVALUATION:
        deviation = float(error_deviation(draw.parameter, configuration.stability))
        return {"sensitivity": error_sensitivity(configuration.stability), "sigma": deviation}
    if isinstance(draw, GaussianMeasurement) and configuration.marginals is None:
        levels = aggregates.noise
        return {"sigma": aggregates.record_deviation if not draw.length else levels[draw.length - 1].deviation}
    if draw.kind is DrawKind.VALUES:
        scale, threshold = discovery(configuration, plan)
        return {"threshold": threshold, "sigma": float(scale)}
    if draw.kind in (DrawKind.SELECT, DrawKind.MEASURE):
        chooses = draw.kind is DrawKind.SELECT
        return (
            {"sensitivity": error_sensitivity(configuration.stability)}
            if chooses
            else {"sigma": float(share_deviation(configuration, draw))}
        )
    if draw.kind is not DrawKind.SCORES:
        return {}
    grid = scoring(configuration, plan)
    return {"sigma": grid.score_deviation, "step": 1 / grid.steps}
