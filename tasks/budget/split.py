"""Splits the budget of a release over its draws, before any data is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from marginweave.schemas.budget import BudgetPlan, Cost, PlannedDraw, amount
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.errors import InputError
from marginweave.tasks.budget.accountants import Accountant, accountant, sds_rho, selection_mu
from marginweave.tasks.budget.composition import composed_epsilon
from marginweave.tasks.budget.noise_table import MAX_DEVIATION

# What the conversions hold for: below, the two tails of the closed form cancel; far above, squares leave the floats.
_LEAST_EPSILON = 1e-3
_MOST_EPSILON = 1e6
_LEAST_DELTA = 1e-20
# Charges are rounded up, at 1e-16 each: without this a plan would miss its own epsilon by as much.
_SLACK = 1 - 1e-9


@dataclass(frozen=True, kw_only=True)
class _Split:
    """What each kind of draw gets: noise multiplier of the count, epsilon of a selection, and the levels' currency."""

    count_multiplier: float
    selection_epsilon: float | None
    levels: float


def plan_budget(configuration: Configuration) -> BudgetPlan:
    """The noise of every draw, so that together they are (epsilon, delta)-DP: `count`, then `percentile-k`, `level-k`.

    Noise multipliers of levels are sigma_k = p_k sqrt(sum over j = 1 … R of p_j^-2 / B), B what count and percentiles
    leave of the accountant's budget at delta - delta_threshold. `split: shares` gives the count and the percentiles shares
    of that budget; `split: sds` takes SDS's formulas, epsilon_Q = sqrt(2 rho Qp / R), undivided for every k, and a count
    with the variance 2/(Np epsilon)^2 of its Laplace noise, rho from (1 - Np) epsilon. Whatever the accountant, the plan
    is checked: the tighter of GDP and zCDP (exact conversion) must not exceed epsilon. The factor sqrt(Delta_k), or
    sqrt(2 Delta_k) under replace-one, is `mechanisms.deviation`'s; the record count has sensitivity 1 under both relations
    (a replacement does not even move it) and is noised and charged all the same.
    DP: a function of the configuration alone.

    Raises:
        InputError: a budget that does not reach for the settings, or outside the range of the conversions.
    """
    privacy, settings = configuration.privacy, configuration.aggregate
    _check_range(privacy.epsilon, privacy.delta)
    lengths = range(1, configuration.reporting_length + 1)
    delta_threshold = _delta_threshold(configuration)
    pricing = accountant(privacy.accountant)
    split = (_by_shares if configuration.split == "shares" else _as_printed)(configuration, pricing, delta_threshold)
    draws = [_gaussian("count", 0, split.count_multiplier, 0.0)]
    multipliers = level_multipliers(settings.proportions(configuration.reporting_length), split.levels)
    for length, multiplier in zip(lengths, multipliers, strict=True):
        if split.selection_epsilon is not None:
            draws.append(_selection(length, split.selection_epsilon))
        draws.append(_gaussian(f"level-{length}", length, multiplier, delta_threshold if length == 1 else 0.0))
    total = sum((draw.cost for draw in draws), Cost())
    spent, _ = composed_epsilon(total, Decimal(repr(privacy.delta)))
    if not spent <= privacy.epsilon:
        raise InputError(
            f"privacy.epsilon ({privacy.epsilon:g}) must cover the draws, which cost {spent:.6g} by the tighter accounting; "
            "use privacy.accountant: gdp or other shares"
        )
    return BudgetPlan(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        neighbors=privacy.neighbors,
        accountant=privacy.accountant,
        delta_threshold=delta_threshold,
        spent_epsilon=spent,
        draws=tuple(draws),
        spares=privacy.redraws,
    )


def level_multipliers(proportions: tuple[float, ...], budget: float) -> tuple[float, ...]:
    """Noise multipliers sigma_k proportional to p_k whose 1/sigma_k^2 add to `budget`: p_k sqrt(sum_{j=1..R} p_j^-2 / budget).

    SDS, equation 4 of its noise section, with the sum to R as its derivation has it; the printed last line stops at k.
    DP: arithmetic on public numbers. Raises InputError where the noise would be beyond any table.
    """
    least = min(proportions)
    scale = math.sqrt(sum((least / p) ** 2 for p in proportions) / budget)
    multipliers = tuple(p / least * scale for p in proportions)
    if max(multipliers) > MAX_DEVIATION:
        raise InputError(
            f"noise multiplier ({max(multipliers):.3g}) must be at most {MAX_DEVIATION}: "
            "raise privacy.epsilon, or bring the proportions of aggregate.sigma nearer to each other"
        )
    return multipliers


def _delta_threshold(configuration: Configuration) -> float:
    delta = configuration.privacy.delta
    if configuration.privacy.accountant == "sds":
        return delta / 2
    if not configuration.private_columns:
        return 0.0
    return delta / 2 if configuration.split == "sds" else configuration.aggregate.delta_threshold_share * delta


def _by_shares(configuration: Configuration, pricing: Accountant, delta_threshold: float) -> _Split:
    settings, privacy = configuration.aggregate, configuration.privacy
    selections = settings.percentile_share if configuration.percentile is not None else 0.0
    if settings.count_share + selections >= 1:
        raise InputError(
            f"aggregate.count_share ({settings.count_share:g}) and aggregate.percentile_share ({selections:g}) "
            "must leave something for the counts: together below 1"
        )
    budget = pricing.budget(privacy.epsilon, privacy.delta - delta_threshold) * _SLACK
    each = selections * budget / configuration.reporting_length
    return _Split(
        count_multiplier=pricing.gaussian_multiplier(settings.count_share * budget),
        selection_epsilon=pricing.selection_epsilon(each) if selections else None,
        levels=(1 - settings.count_share - selections) * budget,
    )


def _as_printed(configuration: Configuration, pricing: Accountant, delta_threshold: float) -> _Split:
    settings, privacy = configuration.aggregate, configuration.privacy
    count_epsilon = settings.count_share * privacy.epsilon
    rho = sds_rho(privacy.epsilon - count_epsilon, privacy.delta)
    selections = settings.percentile_share if configuration.percentile is not None else 0.0
    selection_epsilon = math.sqrt(2 * rho * selections / configuration.reporting_length)
    count_multiplier = math.sqrt(2) / count_epsilon
    if pricing.name == "sds":
        # its count is paid in plain epsilon, already taken off
        left = 2 * rho
    else:
        budget = pricing.budget(privacy.epsilon, privacy.delta - delta_threshold) * _SLACK
        left = budget - pricing.gaussian_cost(count_multiplier)
    if selections:
        left -= configuration.reporting_length * pricing.selection_cost(selection_epsilon)
    if left <= 0:
        raise InputError(
            f"aggregate.count_share ({settings.count_share:g}) and aggregate.percentile_share ({selections:g}) "
            "must leave something for the counts"
        )
    return _Split(
        count_multiplier=count_multiplier, selection_epsilon=selection_epsilon if selections else None, levels=left
    )


def _gaussian(name: str, length: int, multiplier: float, delta: float) -> PlannedDraw:
    squared = 1 / Fraction(multiplier) ** 2
    cost = Cost(mu2=amount(float(squared)), rho=amount(float(squared / 2)), delta=amount(delta))
    return PlannedDraw(name=name, mechanism="rounded-gaussian", length=length, parameter=multiplier, cost=cost)


def _selection(length: int, epsilon: float) -> PlannedDraw:
    cost = Cost(mu2=amount(selection_mu(epsilon) ** 2), rho=amount(epsilon**2 / 8))
    return PlannedDraw(
        name=f"percentile-{length}", mechanism="exponential", length=length, parameter=epsilon, cost=cost
    )


def _check_range(epsilon: float, delta: float) -> None:
    if not _LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        raise InputError(
            f"privacy.epsilon ({epsilon:g}) must be at least {_LEAST_EPSILON:g} and at most {_MOST_EPSILON:g}"
        )
    if delta < _LEAST_DELTA:
        raise InputError(f"privacy.delta ({delta:g}) must be at least {_LEAST_DELTA:g}")
