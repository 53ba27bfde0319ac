"""Splits the budget of a release over its draws, before any data is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal

from marginweave.schemas.budget import BasicAmount, Cost, amount
from marginweave.schemas.configuration.privacy import PrivacySettings
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import BudgetPlan, Discovery, DrawKind, PlannedDraw
from marginweave.schemas.errors import InputError
from marginweave.tasks.accounting.accountants import SLACK, Accountant, accountant, sds_rho
from marginweave.tasks.accounting.amplification import functional_parameters
from marginweave.tasks.accounting.composition import composed_epsilon
from marginweave.tasks.accounting.plan.draws import (
    bounds_draws,
    check_delta,
    check_epsilon,
    check_uncharged,
    gaussian_draw,
    nothing_left,
    selection_draw,
)
from marginweave.tasks.accounting.plan.marginals import MarginalBudget, marginal_draws
from marginweave.tasks.accounting.selection_composition import release_epsilon, shared_budget
from marginweave.tasks.accounting.sparse_histogram import joint_epsilon, joint_loss, threshold_delta
from marginweave.tasks.mechanisms.catalogue import MECHANISMS
from marginweave.tasks.mechanisms.noise_table import MAX_SIGMA


@dataclass(frozen=True, kw_only=True)
class _Split:
    """What each kind of draw gets: noise multipliers of single numbers, epsilons of selections, and the levels' currency."""

    count_multiplier: float | None
    selection_epsilon: float | None
    levels: float
    bound_epsilon: float = 0.0
    evaluation_multiplier: float | None = None


def plan_budget(configuration: Configuration) -> BudgetPlan:
    """The noise of every draw, so that together they are (epsilon, delta)-DP.

    In this order: the two quantiles of each column with private bounds, the record count, then of each length its percentile
    and its counts (`DrawKind`). Noise multipliers of levels are sigma_k = p_k sqrt(sum over j = 1 … R of p_j^-2 / B), B what
    the other draws leave of the accountant's budget at delta - delta_threshold. `split: shares` gives bounds, count and
    percentiles shares of that budget; `split: sds` takes SDS's formulas, epsilon_Q = sqrt(2 rho Qp / R), undivided for every
    k, and a count with the variance 2/(Np epsilon)^2 of its Laplace noise, rho from (1 - Np) epsilon. Whatever the
    accountant, the plan is checked: the tighter of GDP and zCDP (exact conversion) must not exceed epsilon. How far a unit
    moves what is drawn is the business of `mechanisms`, which multiplies every noise by it.
    Last of all stands `evaluation`, where a comparison with the data is bought: its share, with every method.
    Marginals have `values` where a domain is private, `one-way`, and `selection` and `marginals` where larger ones are
    measured; their multipliers, or epsilons, are those of all marginals of a draw together (`marginal_split`).
    A resized table has a public number of records: no `count`. Where it is amplified, the draws together have the functional
    (epsilon, delta) of `resize`, and the release is charged (epsilon, delta) itself, to the allowance.
    DP: a function of the configuration alone.

    Raises:
        InputError: a budget that does not reach for the settings, or outside the range of the conversions.
    """
    privacy = configuration.privacy
    epsilon, delta = target = _target(configuration)
    delta_threshold = _delta_threshold(configuration, delta)
    pricing = accountant(privacy.accountant)
    left = delta - delta_threshold
    if configuration.marginals is None:
        draws = _tuples(configuration, pricing, epsilon, left, delta_threshold)
    else:
        draws = marginal_draws(
            configuration,
            MarginalBudget(pricing=pricing, epsilon=epsilon, delta=left, delta_threshold=delta_threshold),
        )
    if not all(MECHANISMS[draw.mechanism].is_pure for draw in draws):
        check_uncharged(privacy.epsilon, privacy.delta)
    discovery = _discovery(configuration)
    if discovery is not None:
        draws, delta_threshold, spent = _jointly(draws, discovery, *target)
    else:
        spent = _spent(draws, *target)
    if not spent <= epsilon:
        raise InputError(
            f"privacy.epsilon ({privacy.epsilon:g}) must cover the draws, which cost {spent:.6g} by the tighter accounting; "
            "use privacy.accountant: gdp or other shares"
        )
    if configuration.resize is not None and configuration.resize.amplify:
        draws, spent, discovery = _charged_as_stated(draws, privacy), privacy.epsilon, None
    return BudgetPlan(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        neighbors=privacy.neighbors,
        accountant=privacy.accountant,
        delta_threshold=delta_threshold,
        spent_epsilon=spent,
        draws=tuple(draws),
        unit=privacy.unit_key,
        discovery=discovery,
    )


def _tuples(
    configuration: Configuration, pricing: Accountant, epsilon: float, delta: float, delta_threshold: float
) -> list[PlannedDraw]:
    """Draws of k-tuples; `delta` is what `delta_threshold` leaves, which the draws that discover something share equally."""
    split = (_by_shares if configuration.split == "shares" else _as_printed)(configuration, pricing, epsilon, delta)
    draws = bounds_draws(configuration, split.bound_epsilon)
    if split.count_multiplier is not None:
        draws.append(gaussian_draw(DrawKind.COUNT, split.count_multiplier))
    proportions = configuration.tuples.proportions(configuration.reporting_length)
    each = delta_threshold / max(1, configuration.discoveries)
    for length, multiplier in enumerate(level_multipliers(proportions, split.levels), 1):
        if split.selection_epsilon is not None:
            draws.append(selection_draw(DrawKind.PERCENTILE, split.selection_epsilon, (length,)))
        delta = each if length <= max(1, configuration.discoveries) else 0.0
        width = configuration.contribution_cap(length)
        draws.append(gaussian_draw(DrawKind.LEVEL, multiplier, place=(length,), delta=delta, width=width))
    if split.evaluation_multiplier is not None:
        draws.append(gaussian_draw(DrawKind.EVALUATION, split.evaluation_multiplier))
    return draws


def _target(configuration: Configuration) -> tuple[float, float]:
    """What the draws must be together: (epsilon, delta) as asked for, or the functional ones of an amplified resize."""
    privacy, resize = configuration.privacy, configuration.resize
    check_epsilon("privacy.epsilon", privacy.epsilon)
    check_delta("privacy.delta", privacy.delta)
    if resize is None or not resize.amplify:
        return privacy.epsilon, privacy.delta
    epsilon, delta = functional_parameters(
        privacy.epsilon, privacy.delta, resize.copies, resize.rate, resize.formula or "tight"
    )
    check_epsilon("functional epsilon of resize", epsilon)
    check_delta("functional delta of resize", delta)
    return epsilon, delta


def _charged_as_stated(draws: list[PlannedDraw], privacy: PrivacySettings) -> list[PlannedDraw]:
    """The whole charge on the first draw, which is begun before every other, and none on the rest.

    The draws are (epsilon, delta)-DP on the data only together: what the subsample hides is told once.
    """
    whole = Cost(plain=BasicAmount.stated(privacy.epsilon, privacy.delta))
    return [replace(draw, cost=Cost() if i else whole) for i, draw in enumerate(draws)]


def level_multipliers(proportions: tuple[float, ...], budget: float) -> tuple[float, ...]:
    """Noise multipliers sigma_k proportional to p_k whose 1/sigma_k^2 add to `budget`: p_k sqrt(sum_{j=1..R} p_j^-2 / budget).

    SDS, equation 4 of its noise section, with the sum to R as its derivation has it; the printed last line stops at k.
    DP: arithmetic on public numbers. Raises InputError where the noise would be beyond any table.
    """
    least = min(proportions)
    scale = math.sqrt(sum((least / p) ** 2 for p in proportions) / budget)
    multipliers = tuple(p / least * scale for p in proportions)
    if max(multipliers) > MAX_SIGMA:
        raise InputError(
            f"noise multiplier ({max(multipliers):.3g}) must be at most {MAX_SIGMA}: "
            "raise privacy.epsilon, or bring the proportions of aggregate.sigma nearer to each other"
        )
    return multipliers


def _delta_threshold(configuration: Configuration, delta: float) -> float:
    if configuration.privacy.accountant == "sds":
        return delta / 2
    if not configuration.discoveries:
        return 0.0
    return delta / 2 if configuration.split == "sds" else configuration.aggregate.delta_threshold_share * delta


def _discovery(configuration: Configuration) -> Discovery | None:
    """What `accountant: joint` rests on; None with another one, and where no domain is private."""
    if configuration.privacy.accountant != "joint" or not configuration.private_columns:
        return None
    tuples = configuration.marginals is None
    cap = configuration.contribution_cap(1) if tuples else len(configuration.private_columns)
    return Discovery(
        draw=DrawKind.LEVEL.value.format(1) if tuples else DrawKind.VALUES.value,
        least_share=min(1.0, configuration.private_values / cap),
        adaptive=tuples and configuration.percentile is not None,
        neighbors=configuration.stability.neighbors,
    )


def _jointly(
    draws: list[PlannedDraw], discovery: Discovery, epsilon: float, delta: float
) -> tuple[list[PlannedDraw], float, float]:
    """The draws with the most delta for thresholds that `joint` proves room for, that delta, and their epsilon together.

    Raises InputError where the noise alone has no room for any.
    """
    threshold = threshold_delta(joint_loss(draws, discovery), epsilon, delta)
    if not threshold:
        raise InputError(
            "aggregate.delta_threshold_share must leave more of delta to the thresholds, with accountant joint"
        )
    priced = [
        replace(draw, cost=replace(draw.cost, delta=amount(threshold))) if draw.name == discovery.draw else draw
        for draw in draws
    ]
    return priced, threshold, joint_epsilon(joint_loss(priced, discovery), delta, epsilon)


def _by_shares(configuration: Configuration, pricing: Accountant, epsilon: float, delta: float) -> _Split:
    settings = configuration.tuples
    counts = 0.0 if configuration.resize else settings.count_share
    selections = settings.percentile_share if configuration.percentile is not None else 0.0
    bounds = configuration.bounds_share if configuration.private_bounds else 0.0
    paid = configuration.evaluate.paid_share
    left = 1 - counts - selections - bounds - paid
    if left <= 0:
        shares = {"count_share": counts, "percentile_share": selections, "bounds_share": bounds}
        raise nothing_left({f"aggregate.{key}": share for key, share in shares.items()}, "counts", configuration)
    bought = 2 * len(configuration.private_bounds)
    chosen = configuration.reporting_length if configuration.percentile is not None else 0
    budget = shared_budget(pricing, [(chosen, settings.percentile_share), (bought, bounds)], epsilon, delta) * SLACK
    bound = bounds * budget / bought if bounds else 0.0
    return _Split(
        count_multiplier=pricing.gaussian_multiplier(counts * budget) if counts else None,
        selection_epsilon=(
            pricing.selection_epsilon(selections * budget / configuration.reporting_length) if selections else None
        ),
        bound_epsilon=pricing.selection_epsilon(bound) if bounds else 0.0,
        levels=left * budget,
        evaluation_multiplier=pricing.gaussian_multiplier(paid * budget) if paid else None,
    )


def _spent(draws: list[PlannedDraw], epsilon: float, delta: float) -> float:
    """Epsilon of the draws together at `delta`, by the tightest of the compositions that hold within a release."""
    spent, _ = composed_epsilon(sum((draw.cost for draw in draws), Cost()), Decimal(repr(delta)))
    if any(draw.mechanism == "exponential" for draw in draws):
        return min(spent, release_epsilon(draws, delta, min(spent, epsilon)))
    return spent


def _as_printed(configuration: Configuration, pricing: Accountant, epsilon: float, delta: float) -> _Split:
    settings, privacy = configuration.tuples, configuration.privacy
    count_epsilon = settings.count_share * privacy.epsilon
    rho = sds_rho(privacy.epsilon - count_epsilon, privacy.delta)
    selections = settings.percentile_share if configuration.percentile is not None else 0.0
    selection_epsilon = math.sqrt(2 * rho * selections / configuration.reporting_length)
    count_multiplier = math.sqrt(2) / count_epsilon
    if pricing.name == "sds":
        # its count is paid in plain epsilon, already taken off
        left = 2 * rho
    else:
        left = pricing.budget(epsilon, delta) * SLACK - pricing.gaussian_cost(count_multiplier)
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
