"""Splits the budget of a release of marginals over its draws, with Gaussian or Laplace noise on their counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from fractions import Fraction

from marginweave.schemas.configuration.marginals import AdaptiveCliques, AllCliques
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import DrawKind, PlannedDraw
from marginweave.tasks.accounting.accountants import SLACK, Accountant
from marginweave.tasks.accounting.plan.draws import (
    bounds_draws,
    check_epsilon,
    gaussian_draw,
    nothing_left,
    priced_draw,
    round_draws,
)
from marginweave.tasks.accounting.selection_composition import shared_budget
from marginweave.tasks.mechanisms.base import CountNoise
from marginweave.tasks.mechanisms.catalogue import chosen_noise, pure_noise
from marginweave.tasks.mechanisms.gaussian import RoundedGaussian
from marginweave.tasks.mechanisms.laplace import DiscreteLaplace, gaussian_variance, laplace_variance

# The draws of whole marginals, on which Laplace noise is possible.
_COUNTS = (DrawKind.ONE_WAY, DrawKind.MARGINALS)
# Draws that have a share together, under the kind of the first.
_TOGETHER = {
    DrawKind.BOUND_HIGH: DrawKind.BOUND_LOW,
    DrawKind.SELECT: DrawKind.SCORES,
    DrawKind.MEASURE: DrawKind.MARGINALS,
}
_SHORT = Context(prec=9, rounding=ROUND_FLOOR)


@dataclass(frozen=True, kw_only=True)
class MarginalBudget:
    """What the draws have together: `delta` is what `delta_threshold`, for the discovery of private values, leaves."""

    pricing: Accountant
    epsilon: float
    delta: float
    delta_threshold: float


def marginal_draws(configuration: Configuration, budget: MarginalBudget) -> list[PlannedDraw]:
    """The draws of marginals in order, with the noise that `aggregate.noise` says. `evaluation`, where it is bought, is last.

    The last one of marginals has what the shares leave.

    `gaussian`: shares are of the accountant's budget, of mu^2 or of rho.

    `laplace`: epsilon is divided by `epsilon_shares`. `one-way` and `marginals` get discrete Laplace noise and are
    (epsilon_i, 0)-DP. The others (private bounds and values, scores of pairs, the evaluation) stay as they are, as Laplace
    noise is worst where one record is in many counts; with epsilon_0, the sum of their shares, they are (epsilon_0, delta)-DP
    together.
    Whatever the order of the draws, all are (epsilon_0 + sum_i epsilon_i, delta)-DP: trade-off functions compose adaptively,
    in any order (Dong, Roth and Su 2022, theorem 3.2), and both parts bound their own. Which marginals share the joint
    epsilon of a draw may therefore be known as late as the draw.

    Marginals that are chosen in rounds have draws `select-R-J` and `measure-R` in turn, of equal prices (`round_draws`), in the
    place of `selection` and `marginals`.

    `auto`: whichever has the smaller variance (`_laplace_is_better`), Laplace where delta is 0, and Gaussian where private
    values or bounds or scores are drawn, as the number of marginals or their cells are not public then.
    DP: a function of the configuration alone. Raises InputError for shares that leave nothing.
    """
    settings = configuration.marginal_settings
    shares = marginal_shares(configuration)
    noise = chosen_noise("laplace" if settings.noise == "auto" else settings.noise)
    if settings.noise != "auto" or not budget.delta:
        return (_pure if noise.is_pure else _composed)(configuration, shares, budget, noise)
    gaussian = _composed(configuration, shares, budget, RoundedGaussian)
    cells = public_cells(configuration)
    if cells is None:
        return gaussian
    laplace = _pure(configuration, shares, budget, noise)
    last = max(i for i, draw in enumerate(gaussian) if draw.kind in _COUNTS)
    return (
        laplace
        if _laplace_is_better(configuration, cells, laplace[last].parameter, gaussian[last].parameter)
        else gaussian
    )


def public_cells(configuration: Configuration) -> tuple[int, ...] | None:
    """Cells of each marginal of the last draw, where all of them are public; None where something else is drawn before them.

    DP: arithmetic on public sizes.
    """
    settings = configuration.marginal_settings
    if not marginal_shares(configuration).keys() <= {*_COUNTS, DrawKind.EVALUATION}:
        return None
    sizes = {a.name: len(a.labels) + a.optional for a in configuration.attributes}
    if isinstance(settings.cliques, tuple):
        return tuple(math.prod(sizes[name] for name in clique) for clique in settings.cliques)
    chosen = settings.cliques if isinstance(settings.cliques, AllCliques) else AllCliques(all=1)
    return tuple(chosen.cells(tuple(sizes.values())))


def _laplace_is_better(
    configuration: Configuration, cells: Sequence[int], laplace_epsilon: float, noise_multiplier: float
) -> bool:
    """DPSyn's rule: Laplace where 2 (m S_1 / epsilon)^2 < m S_2^2 / mu^2, the variances of m marginals that share equally.

    `cells` are those of the m marginals of the last draw. Where there are more than Laplace noise is drawn for, or none, it
    is not better.
    """
    if not 0 < sum(cells) <= DiscreteLaplace.most_cells:
        return False
    number, unit = len(cells), configuration.stability
    return laplace_variance(number, laplace_epsilon, unit) < gaussian_variance(number, noise_multiplier, unit)


def marginal_shares(configuration: Configuration) -> dict[DrawKind, float]:
    """The share of each kind of draw, in order. Raises InputError as `marginal_draws`.

    All private bounds together are under `BOUND_LOW`, the choices of rounds under `SCORES`, their measurements under
    `MARGINALS`.
    """
    settings = configuration.marginal_settings
    attributes = len(configuration.attributes)
    larger = settings.has_larger(attributes)
    shares = {DrawKind.VALUES: settings.values_share} if configuration.private_columns else {}
    if larger:
        shares[DrawKind.ONE_WAY] = settings.one_way_share
        if settings.selects(attributes):
            shares[DrawKind.SCORES] = settings.selection_share
    bounds = configuration.bounds_share if configuration.private_bounds else 0.0
    paid = configuration.evaluate.paid_share
    left = 1 - sum(shares.values()) - bounds - paid
    if left <= 0:
        named = {f"aggregate.{name.replace('-', '_')}_share": share for name, share in shares.items()}
        raise nothing_left({**named, "aggregate.bounds_share": bounds}, "marginals", configuration)
    first = {DrawKind.BOUND_LOW: bounds} if bounds else {}
    last = {DrawKind.EVALUATION: paid} if paid else {}
    return {**first, **shares, DrawKind.MARGINALS if larger else DrawKind.ONE_WAY: left, **last}


def rounds_of(configuration: Configuration) -> AdaptiveCliques | None:
    """How marginals are chosen in rounds; None where they are not, or where one attribute leaves nothing to choose."""
    settings = configuration.marginal_settings
    return settings.adaptive if settings.selects(len(configuration.attributes)) else None


def shares_of_draws(configuration: Configuration, draws: Sequence[PlannedDraw]) -> list[float]:
    """The share of each planned draw: of mu^2, or of epsilon where there is Laplace noise. DP: arithmetic on public numbers."""
    shares = marginal_shares(configuration)
    if pure_noise(draws) is not None:
        shares = epsilon_shares(shares)
    kinds = [_TOGETHER.get(draw.kind, draw.kind) for draw in draws]
    number = Counter(kinds)
    return [shares[kind] / number[kind] for kind in kinds]


def epsilon_shares(shares: Mapping[DrawKind, float]) -> dict[DrawKind, float]:
    """Shares of epsilon that keep the proportions of the noise that `marginal_shares`, of mu^2, have: their square roots.

    Gaussian noise grows with 1/sqrt(share), Laplace noise with 1/share. What has no Laplace noise is one part, the square
    root of its shares together, and is divided as they are. DP: arithmetic on public numbers.
    """
    others = sum(share for name, share in shares.items() if name not in _COUNTS)
    whole = math.sqrt(others) + sum(math.sqrt(share) for name, share in shares.items() if name in _COUNTS)
    return {
        name: (math.sqrt(share) if name in _COUNTS else math.sqrt(others) * share / others) / whole
        for name, share in shares.items()
    }


def _composed(
    configuration: Configuration, shares: Mapping[DrawKind, float], budget: MarginalBudget, noise: type[CountNoise]
) -> list[PlannedDraw]:
    """Draws whose costs are shares of the accountant's budget."""
    rounds, choices = rounds_of(configuration), list[tuple[int, float]]()
    if rounds is not None:  # only these compose by their exact curves
        bought = 2 * len(configuration.private_bounds), shares.get(DrawKind.BOUND_LOW, 0.0)
        choices = [(rounds.rounds * rounds.batch, shares[DrawKind.SCORES]), bought]
    whole = shared_budget(budget.pricing, choices, budget.epsilon, budget.delta) * SLACK
    return _draws(configuration, {name: share * whole for name, share in shares.items()}, {}, budget, noise)


def _pure(
    configuration: Configuration, shares: Mapping[DrawKind, float], budget: MarginalBudget, noise: type[CountNoise]
) -> list[PlannedDraw]:
    """Draws of marginals that have epsilons of their own, in plain; the accountant's budget of what is left for the others."""
    shares, left, epsilons = epsilon_shares(shares), Fraction(repr(budget.epsilon)), {}
    others = {name: share for name, share in shares.items() if name not in _COUNTS}
    converted: dict[DrawKind, float] = {}
    if others:
        epsilon = _nine_digits(sum(others.values()) * budget.epsilon)
        check_epsilon(f"epsilon of the draws without {noise.title} noise", epsilon)
        whole = budget.pricing.budget(epsilon, budget.delta) * SLACK
        converted = {name: share / sum(others.values()) * whole for name, share in others.items()}
        left -= Fraction(repr(epsilon))
    last = DrawKind.ONE_WAY
    if DrawKind.MARGINALS in shares:
        epsilons[last] = _nine_digits(shares[last] * budget.epsilon)
        left -= Fraction(repr(epsilons[last]))
        last = DrawKind.MARGINALS
    epsilons[last] = _float_below(left)
    return _draws(configuration, {**dict.fromkeys(shares, 0.0), **converted}, epsilons, budget, noise)


def _draws(
    configuration: Configuration,
    costs: Mapping[DrawKind, float],
    epsilons: Mapping[DrawKind, float],
    budget: MarginalBudget,
    noise: type[CountNoise],
) -> list[PlannedDraw]:
    """The draws of each kind, in order: `noise` with its epsilon where there is one, else what the cost buys."""
    draws: list[PlannedDraw] = []
    pricing, rounds = budget.pricing, rounds_of(configuration)
    for kind, cost in costs.items():
        if kind is DrawKind.BOUND_LOW:
            each = pricing.selection_epsilon(cost / (2 * len(configuration.private_bounds)))
            draws += bounds_draws(configuration, each)
        elif rounds is not None and kind is DrawKind.SCORES:
            continue  # choices and measurements take turns
        elif rounds is not None and kind is DrawKind.MARGINALS:
            each = pricing.selection_epsilon(costs[DrawKind.SCORES] / (rounds.rounds * rounds.batch))
            multiplier = pricing.gaussian_multiplier(cost / rounds.rounds)
            draws += round_draws(rounds.rounds, rounds.batch, each, multiplier)
        elif kind in _COUNTS:
            draws.append(priced_draw(noise, kind, epsilons.get(kind) or pricing.gaussian_multiplier(cost)))
        elif kind is DrawKind.VALUES:
            delta, width = budget.delta_threshold, len(configuration.private_columns)
            draws.append(gaussian_draw(kind, pricing.gaussian_multiplier(cost), delta=delta, width=width))
        else:
            draws.append(gaussian_draw(kind, pricing.gaussian_multiplier(cost)))
    return draws


def _nine_digits(epsilon: float) -> float:
    """`epsilon` rounded down to nine digits: what is charged adds up to a number that can be read."""
    return float(_SHORT.create_decimal_from_float(epsilon))


def _float_below(value: Fraction) -> float:
    """The nearest double, or the one below, so that the decimal it prints as is at most `value`."""
    nearest = float(value)
    return nearest if Fraction(repr(nearest)) <= value else math.nextafter(nearest, 0)
