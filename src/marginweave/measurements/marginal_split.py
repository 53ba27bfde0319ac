"""Split of the budget of a release of marginals over its draws, with Gaussian or Laplace noise on their counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from typing import Any

from marginweave.accounting.accountants import SLACK, budget_mu2, gaussian_multiplier
from marginweave.accounting.selection_composition import shared_budget
from marginweave.configuration.default_records import public_codes
from marginweave.configuration.marginals import AllCliques
from marginweave.configuration.release import Configuration
from marginweave.measurements import prices as planned
from marginweave.measurements.base import Measurement
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.linked_counts import RowHistograms, UnitHistograms
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.plan import pure_noise
from marginweave.measurements.prices import Kind, SharedBudget
from marginweave.measurements.private_values import PrivateValues
from marginweave.measurements.quantile_bounds import HighBound, LowBound
from marginweave.measurements.round_draws import RoundChoice, RoundMarginals
from marginweave.measurements.rows_beyond_cap import RowsBeyondCap
from marginweave.mechanisms.base import CountNoise
from marginweave.mechanisms.catalogue import chosen_noise
from marginweave.mechanisms.exponential import selection_epsilon
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.laplace import DiscreteLaplace, gaussian_variance, laplace_variance

# The draws of whole marginals, on which Laplace noise is possible.
_COUNTS = (OneWayMarginals, LargerMarginals)
# Kinds of draws that have one share in common, which is kept under the kind of the first.
_TOGETHER = {
    HighBound: LowBound,
    RoundChoice: PairScores,
    RoundMarginals: LargerMarginals,
}
_LINKED = (UnitHistograms, RowHistograms)
UNITS_PART = 0.75
"""Part of the share of a linked table that is for units, and not for rows."""
_SHORT = Context(prec=9, rounding=ROUND_FLOOR)


def marginal_draws(configuration: Configuration, budget: SharedBudget) -> list[Measurement[Any]]:
    """Return the draws of marginals in order, with the noise that `aggregate.noise` says; the last has what the shares leave.

    `gaussian`: shares are of the budget, of mu^2.

    `laplace`: epsilon is divided by `epsilon_shares`. `one-way` and `marginals` get discrete Laplace noise and are
    (epsilon_i, 0)-DP. The others (private bounds and values, scores of pairs, the evaluation) remain as they are, as Laplace
    noise is worst where one record is in many counts; with epsilon_0, the sum of their shares, they are (epsilon_0, delta)-DP
    together.
    Whatever the order of the draws, all are (epsilon_0 + sum_i epsilon_i, delta)-DP: trade-off functions compose adaptively,
    in any order (Dong, Roth and Su 2022, theorem 3.2), and both parts bound their own. Which marginals share the joint
    epsilon of a draw may therefore be known as late as the draw.

    Marginals that are chosen in rounds have draws `select-R-J` and `measure-R` in turn, of equal prices (`round_draws`), in
    place of `selection` and `marginals`.

    `auto`: whichever has the smaller variance by DPSyn's rule: Laplace where 2 (m S_1 / epsilon)^2 < m S_2^2 / mu^2, of the m
    marginals of the last draw, which share equally. Laplace where delta is 0. Gaussian where there are more cells than Laplace
    noise is drawn for, or none. Gaussian too where private values or bounds or scores are drawn, because the number of
    marginals or of their cells is not public then.
    DP: a function of the configuration alone. Raises InputError for shares that leave nothing.
    """
    setting = configuration.marginal_settings.noise
    if setting != "auto" or not budget.delta:
        return _draws(
            configuration, budget, chosen_noise("laplace" if setting == "auto" else setting)
        )
    gaussian = _draws(configuration, budget, RoundedGaussian)
    cells = public_cells(configuration)
    if cells is None or not 0 < sum(cells) <= DiscreteLaplace.most_cells:
        return gaussian
    laplace = _draws(configuration, budget, DiscreteLaplace)
    unit = configuration.stability
    variance_of_laplace = laplace_variance(len(cells), _last_of_counts(laplace).parameter, unit)
    variance_of_gaussian = gaussian_variance(len(cells), _last_of_counts(gaussian).parameter, unit)
    return laplace if variance_of_laplace < variance_of_gaussian else gaussian


def _last_of_counts(draws: Sequence[Measurement[Any]]) -> Measurement[Any]:
    """Return the last draw of counts; before it there may be others, such as of the rows beyond the cap."""
    return [draw for draw in draws if type(draw) in _COUNTS][-1]


def public_cells(configuration: Configuration) -> tuple[int, ...] | None:
    """Return the cells of each marginal of the last draw if all are public.

    None if anything but whole marginals and the rows beyond the cap is drawn.

    DP: arithmetic on public sizes.
    """
    settings = configuration.marginal_settings
    if not marginal_shares(configuration).keys() <= {*_COUNTS, RowsBeyondCap}:
        return None
    sizes = public_codes(configuration.attributes)
    if isinstance(settings.cliques, tuple):

        def number_of_cells(clique: Sequence[str]) -> int:
            return math.prod(sizes[name] for name in clique)

        return tuple(map(number_of_cells, settings.cliques))
    chosen = settings.cliques if isinstance(settings.cliques, AllCliques) else AllCliques(all=1)
    levels = settings.levels(tuple(sizes.values()), configuration.attributes)
    cells = tuple(chosen.cells(levels))
    one_way_is_last = not settings.has_larger(len(configuration.attributes))
    return (*cells, *public_codes(configuration.indicators).values()) if one_way_is_last else cells


def marginal_shares(configuration: Configuration) -> dict[Kind, float]:
    """Return the share of each kind of draw of Gaussian noise, in order. Raises InputError as `marginal_draws`.

    `LowBound` has the share of all private bounds, `PairScores` that of the choices of rounds, `LargerMarginals` that of their
    measurements.
    """
    settings = configuration.marginal_settings
    attributes = len(configuration.attributes)
    shares: dict[Kind, float] = (
        {PrivateValues: settings.values_share} if configuration.private_columns else {}
    )
    last: Kind = OneWayMarginals
    if settings.has_larger(attributes):
        shares[OneWayMarginals] = settings.one_way_share
        last = LargerMarginals
        if settings.selects(attributes):
            shares[PairScores] = settings.selection_share
    before = planned.bounds_shares(configuration) | planned.uncounted_shares(configuration)
    share_left = 1 - sum(shares.values()) - sum(before.values())
    planned.check_share_left(share_left, {**shares, **before}, "marginals")
    of_source: dict[Kind, float] = {**before, **shares, last: share_left}
    linked = linked_shares(configuration)
    left = 1 - sum(linked.values())
    return {kind: share * left for kind, share in of_source.items()} | linked


def linked_shares(configuration: Configuration) -> dict[Kind, float]:
    """Return the share of both kinds of draws of linked tables: three quarters of the share of a table are for units.

    Empty where none is counted. DP: from public facts.
    """
    share = sum(configuration.table_shares)
    if not share:
        return {}
    return {UnitHistograms: UNITS_PART * share, RowHistograms: (1 - UNITS_PART) * share}


def shares_of_draws(configuration: Configuration, draws: Sequence[Measurement[Any]]) -> list[float]:
    """Return the share of each planned draw: of mu^2, or of epsilon where there is Laplace noise.

    DP: arithmetic on public numbers.
    """
    shares = marginal_shares(configuration)
    if pure_noise(draws) is not None:
        shares = epsilon_shares(shares)
    kinds = [_TOGETHER.get(type(draw), type(draw)) for draw in draws]
    number = Counter(kinds)
    found = []
    for kind, draw in zip(kinds, draws, strict=True):
        if kind in _LINKED:
            found.append(_of_tables(configuration, shares[kind])[draw.place[0] - 1])
        else:
            found.append(shares[kind] / number[kind])
    return found


def _of_tables(configuration: Configuration, amount: float) -> list[float]:
    """Return the part of each counted linked table of an amount that is for all, by their shares."""
    shares = configuration.table_shares
    return [amount * share / sum(shares) for share in shares]


def epsilon_shares(shares: Mapping[Kind, float]) -> dict[Kind, float]:
    """Return shares of epsilon that keep the proportions of the noise of `marginal_shares`, of mu^2: their square roots.

    Gaussian noise grows with 1/sqrt(share), Laplace noise with 1/share. Draws without Laplace noise are one part, the square
    root of the sum of their shares, which is divided in proportion to these. The draw of rows that are not counted has none.
    DP: arithmetic on public numbers.
    """
    shares = {kind: share for kind, share in shares.items() if kind is not RowsBeyondCap}
    gaussian_share = sum(share for kind, share in shares.items() if kind not in _COUNTS)
    roots: dict[Kind, float] = {}
    for kind, share in shares.items():
        if kind in _COUNTS:
            roots[kind] = math.sqrt(share)
        else:
            roots[kind] = math.sqrt(gaussian_share) * share / gaussian_share
    total = math.sqrt(gaussian_share) + sum(root for kind, root in roots.items() if kind in _COUNTS)
    return {kind: root / total for kind, root in roots.items()}


def _draws(
    configuration: Configuration,
    budget: SharedBudget,
    noise: type[CountNoise],
) -> list[Measurement[Any]]:
    """Return the draws of each kind, in order, with `noise` on marginals, at the price of their part of the budget."""
    shares = marginal_shares(configuration)
    rounds = configuration.rounds
    bounds = 2 * len(configuration.private_bounds)
    picks = rounds.rounds * rounds.batch if rounds else 0
    # `parts`: epsilon for `_COUNTS` with pure noise, mu^2 otherwise
    if noise.is_pure:
        parts = _pure_parts(shares, budget, noise)
    else:
        # exact curves are used only if there are rounds
        choices = (
            [(picks, shares[PairScores]), (bounds, shares.get(LowBound, 0.0))] if rounds else []
        )
        mu2 = shared_budget(choices, budget.epsilon, budget.delta) * SLACK
        parts = {kind: share * mu2 for kind, share in shares.items()}
    draws: list[Measurement[Any]] = []
    for kind, part in parts.items():
        if kind is LowBound:
            draws += planned.bounds_draws(
                configuration, selection_epsilon(math.sqrt(part / bounds))
            )
        elif rounds is not None and kind is PairScores:
            continue  # choices and measurements take turns
        elif rounds is not None and kind is LargerMarginals:
            epsilon = selection_epsilon(math.sqrt(parts[PairScores] / picks))
            multiplier = gaussian_multiplier(part / rounds.rounds)
            draws += planned.round_draws(rounds.rounds, rounds.batch, epsilon, multiplier)
        elif kind in _COUNTS:
            parameter = part if noise.is_pure else gaussian_multiplier(part)
            draws.append(kind.priced(noise, parameter))
        elif kind is PrivateValues:
            delta = budget.delta_threshold
            multiplier = gaussian_multiplier(part)
            draws.append(
                kind.priced(RoundedGaussian, multiplier, delta=delta, threshold_delta=delta)
            )
        elif kind in _LINKED:
            parts_of_tables = _of_tables(configuration, part)
            for number, part_of_table in enumerate(parts_of_tables, 1):
                multiplier = gaussian_multiplier(part_of_table)
                draws.append(kind.priced(RoundedGaussian, multiplier, number))
        else:
            draws.append(kind.priced(RoundedGaussian, gaussian_multiplier(part)))
    return draws


def _pure_parts(
    shares: Mapping[Kind, float],
    budget: SharedBudget,
    noise: type[CountNoise],
) -> dict[Kind, float]:
    """Return epsilon for each kind in `_COUNTS`, and mu^2 for each other kind.

    The others share a plain epsilon, which becomes mu^2 together with delta; the last kind has what is left of epsilon.
    """
    shares = epsilon_shares(shares)
    epsilon_left = Fraction(repr(budget.epsilon))
    parts = dict.fromkeys(shares, 0.0)
    gaussian_share = sum(share for kind, share in shares.items() if kind not in _COUNTS)
    if gaussian_share:
        epsilon = _nine_digits(gaussian_share * budget.epsilon)
        planned.check_epsilon(f"epsilon of the draws without {noise.title} noise", epsilon)
        mu2 = budget_mu2(epsilon, budget.delta) * SLACK
        for kind, share in shares.items():
            if kind not in _COUNTS:
                parts[kind] = share / gaussian_share * mu2
        epsilon_left -= Fraction(repr(epsilon))
    last: Kind = OneWayMarginals
    if LargerMarginals in shares:
        parts[last] = _nine_digits(shares[last] * budget.epsilon)
        epsilon_left -= Fraction(repr(parts[last]))
        last = LargerMarginals
    parts[last] = _float_below(epsilon_left)
    return parts


def _nine_digits(epsilon: float) -> float:
    """Return `epsilon` rounded down to nine digits: charges then add up to a number that can be read."""
    return float(_SHORT.create_decimal_from_float(epsilon))


def _float_below(value: Fraction) -> float:
    """Return the nearest double, or the next one below, so that the decimal it prints as is at most `value`."""
    nearest = float(value)
    return nearest if Fraction(repr(nearest)) <= value else math.nextafter(nearest, 0)
