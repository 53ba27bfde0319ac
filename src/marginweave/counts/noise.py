"""What planned draws draw by, from public facts: how noisy their queries are, and the terms that are reserved with them.

Terms are compared before anything is drawn. A number that follows from an earlier draw (the noise of a length whose bound a
percentile chooses, the cells of marginals over discovered values) is no term; what it follows from is.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from marginweave.base.budget import Stability
from marginweave.base.digests import fractions_digest
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.release import Configuration
from marginweave.counts.discovery import discovery
from marginweave.counts.marginals import all_cliques, split_noise
from marginweave.counts.rounds import STEPS, share_sigma
from marginweave.counts.selection import declared_cliques, scoring
from marginweave.domain.zeros import domain_sizes, one_way_sizes
from marginweave.measurements.plan import BudgetPlan, DrawKind, PlannedDraw
from marginweave.measurements.tables import Clique
from marginweave.mechanisms.base import CountNoise, l1_sensitivity
from marginweave.mechanisms.catalogue import count_noise
from marginweave.mechanisms.gaussian import query_sigma
from marginweave.mechanisms.percentile import score_sensitivity
from marginweave.planning.marginals import rounds_of
from marginweave.planning.prices import BOUND_KINDS
from marginweave.planning.thresholds import level_threshold, private_threshold
from marginweave.prepare.clean import HIGH_PERCENTILE, LOW_PERCENTILE

MARGINALS = (DrawKind.ONE_WAY, DrawKind.MARGINALS)
"""Draws of whole marginals, which share the noise of their draw."""


def public_sizes(configuration: Configuration) -> tuple[int, ...]:
    """Number of codes of each attribute, the missing value included; of a private domain only that one is known."""
    return domain_sizes(configuration.attributes, [attribute.labels for attribute in configuration.attributes])


def counted_sizes(configuration: Configuration) -> tuple[int, ...]:
    """`public_sizes`, and behind them those of the levels that larger marginals are counted at (`BinLevels`)."""
    sizes, settings = public_sizes(configuration), configuration.marginals
    return sizes if settings is None else settings.levels(sizes, configuration.attributes).sizes


def planned_cliques(configuration: Configuration, kind: DrawKind) -> tuple[Clique, ...]:
    """The marginals that a draw of `MARGINALS` measures; none where they are chosen by noisy scores, and not known yet.

    They are over attributes and levels of `counted_sizes`.
    """
    settings, sizes = configuration.marginal_settings, public_sizes(configuration)
    if kind is DrawKind.ONE_WAY:
        return all_cliques(sizes, 1)
    if settings.selects(len(configuration.attributes)):
        return ()
    return declared_cliques(settings, configuration.attributes, sizes)


def planned_sigmas(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> tuple[Fraction | float, ...]:
    """Standard deviation of the noise of each query of a draw; nothing of choices, and of marginals that are not known yet.

    Of the draw of single attributes it has that of each attribute, not of indicators of sets. Of the scores of pairs it counts
    steps of their grid. Of a share of rounds it is that of a cell where a whole batch has it equally; of a length, at its
    public cap. DP: arithmetic on public numbers.
    """
    if draw.mechanism == "exponential":
        return ()
    if draw.kind in MARGINALS:
        parts, queries = _planned_parts(configuration, draw), len(planned_cliques(configuration, draw.kind))
        return tuple(map(marginal_noise(draw, configuration.stability).sigma, parts[:queries]))
    if draw.kind is DrawKind.SCORES:
        return (scoring(configuration, plan).sigma,)
    if draw.kind is DrawKind.MEASURE:
        return (share_sigma(configuration, draw),)
    return (query_sigma(draw, _stability(configuration, draw)),)


def marginal_noise(draw: PlannedDraw, stability: Stability) -> CountNoise:
    """The noise of the marginals of a draw."""
    return count_noise(draw.mechanism)(stability)


def sigma_alone(draw: PlannedDraw, stability: Stability) -> float:
    """Standard deviation of the noise of a marginal that has a draw alone: the least there can be."""
    noise = marginal_noise(draw, stability)
    return float(noise.sigma(noise.parts(draw.parameter, [1.0])[0]))


Terms = dict[str, Any]


def with_terms(configuration: Configuration, plan: BudgetPlan) -> BudgetPlan:
    """The plan with the terms of each draw, as it is reserved. DP: a function of the configuration alone."""
    draws = (replace(draw, terms=_terms(configuration, plan, draw)) for draw in plan.draws)
    return replace(plan, draws=tuple(draws))


def _terms(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> Terms:
    unit = _stability(configuration, draw)
    if draw.kind in BOUND_KINDS:
        own = _bounds(configuration, draw)
    else:
        own = (_of_tuples if configuration.marginals is None else _of_marginals)(configuration, plan, draw)
    return {"records": unit.records, "neighbors": unit.neighbors, **own}


def _stability(configuration: Configuration, draw: PlannedDraw) -> Stability:
    """How far a unit moves what is drawn from; bounds are bought before any resize."""
    return configuration.privacy.stability if draw.kind in BOUND_KINDS else configuration.stability


def _column(configuration: Configuration, draw: PlannedDraw) -> NumberColumn:
    column = list(configuration.columns.values())[draw.place[0] - 1]
    assert isinstance(column, NumberColumn)
    return column


def _bounds(configuration: Configuration, draw: PlannedDraw) -> Terms:
    column = _column(configuration, draw)
    percentile = LOW_PERCENTILE if draw.kind is DrawKind.BOUND_LOW else HIGH_PERCENTILE
    return {
        "percentile": str(percentile),
        "candidates": len(column.bound_candidates),
        "sensitivity": score_sensitivity(percentile, configuration.privacy.stability),
    }


def _of_tuples(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> Terms:
    unit, percentile = configuration.stability, configuration.percentile
    if draw.kind is DrawKind.COUNT:
        return {"sigma": str(query_sigma(draw, unit))}
    cap = configuration.contribution_cap(draw.length)
    if draw.kind is DrawKind.PERCENTILE:
        assert percentile is not None
        return {"percentile": str(percentile), "cap": cap, "sensitivity": score_sensitivity(percentile, unit)}
    settings = configuration.tuples.model_dump(mode="json", include={"thresholds", "max_combinations"})
    terms: Terms = {"cap": cap, **settings}
    if configuration.private_columns and draw.length == 1:
        terms |= {"threshold_delta": repr(plan.delta_threshold), "private_values": configuration.private_values}
    if percentile is None:
        sigma = query_sigma(draw, unit)
        terms |= {"contribution_bound": cap, "sigma": str(sigma)}
        if "private_values" in terms:
            values_each = min(cap, configuration.private_values)
            least = level_threshold(configuration.tuples, 1, sigma, 0, 0)
            paid = private_threshold(sigma, values_each, unit.records, plan.delta_threshold)
            terms["private_threshold"] = max(least, paid)
    return terms


def _of_marginals(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> Terms:
    settings, rounds = configuration.marginal_settings, rounds_of(configuration)
    if draw.kind is DrawKind.VALUES:
        sigma, threshold = discovery(configuration, plan)
        return {
            "columns": len(configuration.private_columns),
            "sigma": str(sigma),
            "threshold": threshold,
            "threshold_delta": repr(plan.delta_threshold),
        }
    if draw.kind is DrawKind.SCORES:
        grid = scoring(configuration, plan)
        return {"steps": grid.steps, "sigma": str(grid.sigma)}
    if draw.kind in (DrawKind.SELECT, DrawKind.MEASURE):
        assert rounds is not None
        return {
            "settings": rounds.model_dump(mode="json"),
            "unit": STEPS * l1_sensitivity(configuration.stability),
            "allocation": settings.allocation,
        }
    terms: Terms = {"allocation": settings.allocation}
    if configuration.private_columns:
        return terms  # how many cells there are follows from what is discovered
    parts = _planned_parts(configuration, draw)
    if not parts or (draw.kind is DrawKind.MARGINALS and settings.compress != "none"):
        return terms  # chosen, or over merged values
    return {**terms, "marginals": len(parts), "noise": fractions_digest(parts)}


def _planned_parts(configuration: Configuration, draw: PlannedDraw) -> tuple[Fraction, ...]:
    """The part of the noise of a draw that each of `planned_cliques` has, and then each indicator of a set."""
    cliques, sizes = planned_cliques(configuration, draw.kind), counted_sizes(configuration)
    if draw.kind is DrawKind.ONE_WAY:
        sizes = one_way_sizes(configuration, [attribute.labels for attribute in configuration.attributes])
        cliques = all_cliques(sizes, 1)
    allocation, noise = configuration.marginal_settings.allocation, marginal_noise(draw, configuration.stability)
    return split_noise(noise, draw.parameter, cliques, sizes, allocation)
