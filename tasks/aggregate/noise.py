"""How noisy the queries of a planned draw are, by public facts: what forecasts, limits, terms and statements say of it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from marginweave.schemas.budget import Stability
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import (
    BudgetPlan,
    DrawKind,
    GaussianMeasurement,
    LaplaceMeasurement,
    PlannedDraw,
    Selection,
)
from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.accounting.noise import query_sigma
from marginweave.tasks.aggregate.domain import domain_sizes
from marginweave.tasks.aggregate.marginals import Split, all_cliques, split_deviations, split_epsilons
from marginweave.tasks.aggregate.rounds import share_deviation
from marginweave.tasks.aggregate.selection import declared_cliques, scoring
from marginweave.tasks.mechanisms.laplace import laplace_deviation, laplace_scale

MARGINALS = (DrawKind.ONE_WAY, DrawKind.MARGINALS)
"""Draws of whole marginals, which share the noise of their draw."""


def public_sizes(configuration: Configuration) -> tuple[int, ...]:
    """Number of codes of each attribute, the missing value included; of a private domain only that one is known."""
    return domain_sizes(configuration.attributes, [attribute.labels for attribute in configuration.attributes])


def planned_cliques(configuration: Configuration, kind: DrawKind) -> tuple[Clique, ...]:
    """The marginals that a draw of `MARGINALS` measures; none where they are chosen by noisy scores, and not known yet."""
    settings, sizes = configuration.marginals, public_sizes(configuration)
    assert settings is not None
    if kind is DrawKind.ONE_WAY:
        return all_cliques(sizes, 1)
    if settings.selects(len(sizes)):
        return ()
    return declared_cliques(settings, [attribute.name for attribute in configuration.attributes], sizes)


def planned_sigmas(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> tuple[Fraction | float, ...]:
    """Standard deviation of the noise of each query of a draw; nothing of choices, and of marginals that are not known yet.

    Of the scores of pairs it counts steps of their grid. Of a share of rounds it is that of a cell where a whole batch has it
    equally; of a length, at its public cap. DP: arithmetic on public numbers.
    """
    if isinstance(draw, Selection):
        return ()
    if draw.kind in MARGINALS:
        settings, sizes = configuration.marginals, public_sizes(configuration)
        assert settings is not None
        cliques = planned_cliques(configuration, draw.kind)
        return (
            () if not cliques else marginal_sigmas(draw, cliques, sizes, settings.allocation, configuration.stability)
        )
    assert isinstance(draw, GaussianMeasurement)
    if draw.kind is DrawKind.SCORES:
        return (scoring(configuration, plan).deviation,)
    if draw.kind is DrawKind.MEASURE:
        return (share_deviation(configuration, draw),)
    return (query_sigma(draw, configuration.stability),)


def marginal_sigmas(
    draw: PlannedDraw, cliques: Sequence[Clique], sizes: Sequence[int], split: Split, stability: Stability
) -> tuple[Fraction | float, ...]:
    """Standard deviation of the noise of each of the marginals that share a draw. DP: arithmetic on public numbers."""
    if isinstance(draw, LaplaceMeasurement):
        epsilons = split_epsilons(draw.epsilon, cliques, sizes, split)
        return tuple(laplace_deviation(laplace_scale(epsilon, stability)) for epsilon in epsilons)
    return split_deviations(draw.parameter, cliques, sizes, split, stability)


def sigma_alone(draw: PlannedDraw, stability: Stability) -> float:
    """Standard deviation of the noise of a marginal that has a draw alone: the least there can be."""
    if isinstance(draw, LaplaceMeasurement):
        return laplace_deviation(laplace_scale(Fraction(repr(draw.epsilon)), stability))
    assert isinstance(draw, GaussianMeasurement)
    return float(query_sigma(draw, stability))
