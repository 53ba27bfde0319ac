"""How noisy the queries of a planned draw are, by public facts: what forecasts, limits, terms and statements say of it."""

from __future__ import annotations

from fractions import Fraction

from marginweave.schemas.budget import Stability
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import (
    BudgetPlan,
    DrawKind,
    PlannedDraw,
)
from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.aggregate.domain import domain_sizes
from marginweave.tasks.aggregate.marginals import all_cliques, split_noise
from marginweave.tasks.aggregate.rounds import share_deviation
from marginweave.tasks.aggregate.selection import declared_cliques, scoring
from marginweave.tasks.mechanisms.base import CountNoise
from marginweave.tasks.mechanisms.catalogue import count_noise
from marginweave.tasks.mechanisms.gaussian import query_sigma

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
    if draw.mechanism == "exponential":
        return ()
    if draw.kind in MARGINALS:
        settings, sizes = configuration.marginals, public_sizes(configuration)
        assert settings is not None
        noise, cliques = marginal_noise(draw, configuration.stability), planned_cliques(configuration, draw.kind)
        return tuple(map(noise.sigma, split_noise(noise, draw.parameter, cliques, sizes, settings.allocation)))
    if draw.kind is DrawKind.SCORES:
        return (scoring(configuration, plan).deviation,)
    if draw.kind is DrawKind.MEASURE:
        return (share_deviation(configuration, draw),)
    return (query_sigma(draw, configuration.stability),)


def marginal_noise(draw: PlannedDraw, stability: Stability) -> CountNoise:
    """The noise of the marginals of a draw."""
    return count_noise(draw.mechanism)(stability)


def sigma_alone(draw: PlannedDraw, stability: Stability) -> float:
    """Standard deviation of the noise of a marginal that has a draw alone: the least there can be."""
    noise = marginal_noise(draw, stability)
    return float(noise.sigma(noise.parts(draw.parameter, [1.0])[0]))
