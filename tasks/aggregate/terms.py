"""The public facts that each draw of a plan draws by, beside its parameter: reserved with it, and compared before it is drawn.

A number that follows from an earlier draw (the noise of a length whose bound a percentile chooses, the cells of marginals over
discovered values) is no term; what it follows from is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from marginweave.schemas.configuration.columns import NumberColumn
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import BudgetPlan, DrawKind, PlannedDraw
from marginweave.tasks.accounting.plan.draws import BOUND_KINDS
from marginweave.tasks.accounting.plan.marginals import rounds_of
from marginweave.tasks.accounting.thresholds import level_threshold, private_threshold
from marginweave.tasks.aggregate.domain import discovery
from marginweave.tasks.aggregate.marginals import split_noise
from marginweave.tasks.aggregate.noise import marginal_noise, planned_cliques, planned_sigmas, public_sizes
from marginweave.tasks.aggregate.rounds import STEPS
from marginweave.tasks.aggregate.selection import scoring
from marginweave.tasks.digests import fractions_digest
from marginweave.tasks.mechanisms.gaussian import error_sensitivity, query_sigma
from marginweave.tasks.mechanisms.percentile import score_sensitivity
from marginweave.tasks.preprocess.clean import HIGH_PERCENTILE, LOW_PERCENTILE

Terms = dict[str, Any]


def with_terms(configuration: Configuration, plan: BudgetPlan) -> BudgetPlan:
    """The plan with the terms of each draw, as it is reserved. DP: a function of the configuration alone."""
    draws = (replace(draw, terms=_terms(configuration, plan, draw)) for draw in plan.draws)
    return replace(plan, draws=tuple(draws))


def _terms(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> Terms:
    unit = configuration.privacy.stability if draw.kind in BOUND_KINDS else configuration.stability
    return {"records": unit.records, "neighbors": unit.neighbors, **_own(configuration, plan, draw)}


def _own(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> Terms:
    if draw.kind in BOUND_KINDS:
        return _bounds(configuration, draw)
    if draw.kind is DrawKind.EVALUATION:
        unit = configuration.stability
        return {"sensitivity": error_sensitivity(unit), "sigma": _sigma(configuration, plan, draw)}
    return (
        _of_tuples(configuration, plan, draw)
        if configuration.marginals is None
        else _of_marginals(configuration, plan, draw)
    )


def _sigma(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> str:
    (sigma,) = planned_sigmas(configuration, plan, draw)
    return str(sigma)


def _bounds(configuration: Configuration, draw: PlannedDraw) -> Terms:
    column = list(configuration.columns.values())[draw.place[0] - 1]
    assert isinstance(column, NumberColumn)
    percentile = LOW_PERCENTILE if draw.kind is DrawKind.BOUND_LOW else HIGH_PERCENTILE
    return {
        "percentile": str(percentile),
        "candidates": len(column.bound_candidates),
        "sensitivity": score_sensitivity(percentile, configuration.privacy.stability),
    }


def _of_tuples(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> Terms:
    unit, percentile = configuration.stability, configuration.percentile
    if draw.kind is DrawKind.COUNT:
        return {"sigma": _sigma(configuration, plan, draw)}
    cap = configuration.contribution_cap(draw.length)
    if draw.kind is DrawKind.PERCENTILE:
        assert percentile is not None
        return {"percentile": str(percentile), "cap": cap, "sensitivity": score_sensitivity(percentile, unit)}
    settings = configuration.tuples.model_dump(
        mode="json", include={"thresholds", "fabrication", "on_overflow", "max_combinations"}
    )
    terms: Terms = {"cap": cap, **settings}
    discovers = draw.length <= configuration.discoveries
    if discovers:
        terms["threshold_delta"] = repr(plan.delta_threshold / configuration.discoveries)
        if configuration.private_columns and draw.length == 1:
            terms["private_values"] = configuration.private_values
    if percentile is None:
        sigma = query_sigma(draw, unit)
        terms |= {"contribution_bound": cap, "sigma": str(sigma)}
        if "private_values" in terms:
            held = min(cap, configuration.private_values)
            share = plan.delta_threshold / configuration.discoveries
            least = level_threshold(configuration.tuples, 1, configuration.reporting_length, sigma, 0, 0)
            terms["private_threshold"] = max(least, private_threshold(sigma, held, unit.records, share))
    return terms


def _of_marginals(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw) -> Terms:
    settings, rounds = configuration.marginals, rounds_of(configuration)
    assert settings is not None
    if draw.kind is DrawKind.VALUES:
        sigma, threshold = discovery(configuration, plan)
        columns = len(configuration.private_columns)
        return {
            "columns": columns,
            "sigma": str(sigma),
            "threshold": threshold,
            "threshold_delta": repr(plan.delta_threshold),
        }
    if draw.kind is DrawKind.SCORES:
        grid = scoring(configuration, plan)
        return {"steps": grid.steps, "sigma": str(grid.deviation)}
    if draw.kind in (DrawKind.SELECT, DrawKind.MEASURE):
        assert rounds is not None
        chosen = rounds.model_dump(mode="json")
        return {
            "settings": chosen,
            "unit": STEPS * error_sensitivity(configuration.stability),
            "allocation": settings.allocation,
        }
    terms: Terms = {"allocation": settings.allocation}
    if configuration.private_columns:
        return terms  # how many cells there are follows from what is discovered
    cliques, sizes = planned_cliques(configuration, draw.kind), public_sizes(configuration)
    if not cliques or (draw.kind is DrawKind.MARGINALS and settings.compress != "none"):
        return terms  # chosen, or over merged values
    noise = marginal_noise(draw, configuration.stability)
    parts = split_noise(noise, draw.parameter, cliques, sizes, settings.allocation)
    return {**terms, "marginals": len(cliques), "noise": fractions_digest(parts)}
