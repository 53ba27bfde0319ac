"""Split of the budget of a release over its draws, before any data is read."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

from marginweave.accounting.accountants import SLACK, gaussian_multiplier
from marginweave.accounting.amplification import functional_parameters
from marginweave.accounting.composition import composed_epsilon
from marginweave.accounting.selection_composition import release_epsilon, shared_budget
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.measurements import prices as planned
from marginweave.measurements.base import Measurement
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.marginal_split import marginal_draws
from marginweave.measurements.plan import Plan
from marginweave.measurements.prices import Kind, SharedBudget
from marginweave.measurements.quantile_bounds import LowBound
from marginweave.measurements.record_count import RecordCount
from marginweave.measurements.rows_beyond_cap import RowsBeyondCap
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.mechanisms.exponential import Exponential, selection_epsilon
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.noise_table import MAX_SIGMA


def plan_budget(configuration: Configuration) -> Plan:
    """Return the plan with the noise of every draw, so that all draws are (epsilon, delta)-DP.

    In this order: the two quantiles of each column with private bounds, rows that are not counted, the record count, then for
    each length its percentile and its counts. Noise multipliers of levels are
    sigma_k = p_k sqrt(sum over j = 1 … R of p_j^-2 / B), B what the other draws leave of the budget, mu^2 at
    delta - delta_threshold; the other draws have shares of that budget. The plan is checked: the tighter of GDP and zCDP (exact
    conversion) must not exceed epsilon. `mechanisms` multiplies every noise by how far a unit moves the exact result.
    Marginals have `values` where a domain is private, `one-way`, and `selection` and `marginals` where larger ones are
    measured; their multipliers, or epsilons, are the joint ones of all marginals of a draw (`marginal_split`).
    A resized table has a public number of records: no `count`. If it is amplified, all draws have the functional
    (epsilon, delta) of `resize`, and the release is charged (epsilon, delta) itself, to the allowance.
    DP: a function of the configuration alone.

    Raises:
        InputError: a budget that is too small for the settings, or outside the range of the conversions.
    """
    privacy = configuration.privacy
    epsilon, delta = _target(configuration)
    delta_threshold = _delta_threshold(configuration, delta)
    budget = SharedBudget(
        epsilon=epsilon, delta=delta - delta_threshold, delta_threshold=delta_threshold
    )
    split = _tuple_draws if configuration.marginals is None else marginal_draws
    draws = split(configuration, budget)
    if not all(draw.mechanism.is_pure for draw in draws):
        planned.check_uncharged(privacy.epsilon, privacy.delta)
    spent = _spent(draws, epsilon, delta)
    if not spent <= epsilon:
        raise InputError(
            f"privacy.epsilon ({privacy.epsilon:g}) must cover the draws, which cost {spent:.6g} by the tighter accounting; "
            "use other shares"
        )
    if configuration.resize is not None and configuration.resize.amplify:
        # only all of them are (epsilon, delta)-DP on the data: all is charged on the first, which is begun before the others
        stated = Cost(plain=BasicAmount.as_stated(privacy.epsilon, privacy.delta))
        draws = [replace(draw, cost=Cost() if i else stated) for i, draw in enumerate(draws)]
        spent = privacy.epsilon
    return Plan(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        neighbors=privacy.neighbors,
        delta_threshold=delta_threshold,
        spent_epsilon=spent,
        draws=tuple(draws),
        unit=privacy.unit_key,
    )


def _tuple_draws(configuration: Configuration, budget: SharedBudget) -> list[Measurement[Any]]:
    """Return the draws of k-tuples; the first length discovers private values, and has `delta_threshold`."""
    parameters = _by_shares(configuration, budget)
    draws: list[Measurement[Any]] = [
        *planned.bounds_draws(configuration, parameters.get(LowBound, 0.0))
    ]
    counts = [kind for kind in (RowsBeyondCap, RecordCount) if kind in parameters]
    draws += [kind.priced(RoundedGaussian, parameters[kind]) for kind in counts]
    proportions = configuration.tuples.proportions(configuration.reporting_length)
    for length, multiplier in enumerate(level_multipliers(proportions, parameters[TupleLevel]), 1):
        if ContributionBound in parameters:
            draws.append(
                ContributionBound.priced(Exponential, parameters[ContributionBound], length)
            )
        delta = budget.delta_threshold if length == 1 else 0.0
        draws.append(
            TupleLevel.priced(
                RoundedGaussian, multiplier, length, delta=delta, threshold_delta=delta
            )
        )
    return draws


def _target(configuration: Configuration) -> tuple[float, float]:
    """Return the (epsilon, delta) of all draws: the configured one, or the functional one of an amplified resize."""
    privacy = configuration.privacy
    resize = configuration.resize
    planned.check_epsilon("privacy.epsilon", privacy.epsilon)
    planned.check_delta("privacy.delta", privacy.delta)
    if resize is None or not resize.amplify:
        return privacy.epsilon, privacy.delta
    epsilon, delta = functional_parameters(
        privacy.epsilon, privacy.delta, resize.copies, resize.rate, resize.formula or "tight"
    )
    planned.check_epsilon("functional epsilon of resize", epsilon)
    planned.check_delta("functional delta of resize", delta)
    return epsilon, delta


def level_multipliers(proportions: tuple[float, ...], budget: float) -> tuple[float, ...]:
    """Return sigma_k proportional to p_k whose 1/sigma_k^2 add to `budget`: p_k sqrt(sum_{j=1..R} p_j^-2 / budget).

    SDS, equation 4 of its noise section, with the sum to R as its derivation has it; the printed last line stops at k.
    DP: arithmetic on public numbers. Raises InputError where the noise would be beyond any table.
    """
    least = min(proportions)
    scale = math.sqrt(sum((least / p) ** 2 for p in proportions) / budget)
    multipliers = tuple(p / least * scale for p in proportions)
    if max(multipliers) > MAX_SIGMA:
        raise InputError(
            f"noise multiplier ({max(multipliers):.3g}) must be at most {MAX_SIGMA}: "
            "raise privacy.epsilon, or bring the proportions of aggregate.sigma closer to each other"
        )
    return multipliers


def _delta_threshold(configuration: Configuration, delta: float) -> float:
    return (
        configuration.aggregate.delta_threshold_share * delta
        if configuration.private_columns
        else 0.0
    )


def _by_shares(configuration: Configuration, budget: SharedBudget) -> dict[Kind, float]:
    """Return the noise multiplier of single numbers, epsilon of each selection, and the levels' part of the budget."""
    settings = configuration.tuples
    shares: dict[Kind, float] = {
        RecordCount: 0.0 if configuration.resize else settings.count_share,
        ContributionBound: settings.percentile_share
        if configuration.percentile is not None
        else 0.0,
        **planned.bounds_shares(configuration),
        **planned.uncounted_shares(configuration),
    }
    share_left = 1.0
    for share in shares.values():
        share_left -= share
    planned.check_share_left(share_left, shares, "counts")
    shares = {kind: share for kind, share in shares.items() if share}
    selections = {
        ContributionBound: configuration.reporting_length,
        LowBound: 2 * len(configuration.private_bounds),
    }
    choices = [(number, shares[kind]) for kind, number in selections.items() if kind in shares]
    mu2 = shared_budget(choices, budget.epsilon, budget.delta) * SLACK
    parameters: dict[Kind, float] = {TupleLevel: share_left * mu2}
    for kind, share in shares.items():
        part = share * mu2 / selections.get(kind, 1)
        parameters[kind] = (
            selection_epsilon(math.sqrt(part)) if kind in selections else gaussian_multiplier(part)
        )
    return parameters


def _spent(
    draws: list[Measurement[Any]],
    epsilon: float,
    delta: float,
) -> float:
    """Return epsilon of all draws at `delta`, by the tightest of the compositions that hold within a release."""
    cost = sum((draw.cost for draw in draws), Cost())
    spent, _ = composed_epsilon(cost, Decimal(repr(delta)))
    if any(draw.mechanism is Exponential for draw in draws):
        prices = [draw.price for draw in draws]
        return min(spent, release_epsilon(prices, delta, min(spent, epsilon)))
    return spent
