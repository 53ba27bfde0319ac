"""How large the noise of a release is beside its counts, for a number of rows that the user gives as public knowledge."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from marginweave.flows.plan.accuracy import MEAN_NOISE, TABLES
from marginweave.flows.run.limits import marginal_noise, public_sizes
from marginweave.schemas.budget import BudgetPlan, DrawKind, PlannedDraw
from marginweave.schemas.configuration.attributes import most_combinations
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.aggregate.marginals import all_cliques, cells
from marginweave.tasks.aggregate.selection import declared_cliques
from marginweave.tasks.mechanisms.gaussian import count_deviation, deviation, error_deviation


def relative_errors(configuration: Configuration, rows: int) -> dict[str, tuple[str, str]]:
    """For each draw of counts its typical error beside all rows, and beside the mean count of its cells, in words.

    The typical error is E|noise|. A cell of length k has on average at most n e_k(w) / e_k(s) records: e_k is the elementary
    symmetric polynomial, s_j the number of declared values of attribute j and w_j how many of them a record can hold; a
    marginal n over its number of cells. Where values are private the number of cells is not known, and nothing is said.
    A resized table has its own, public number of rows.
    DP: arithmetic on public numbers.
    """
    plan = plan_budget(configuration)
    rows = rows if configuration.resize is None else configuration.resize.records
    found = {}
    for draw in plan.draws:
        pairs = list(_cells(configuration, plan, draw, rows))
        typical = [float(sd) * MEAN_NOISE[draw.mechanism] for sd, _ in pairs]
        beside = [100 * error / mean for error, (_, mean) in zip(typical, pairs, strict=True) if mean]
        if typical:
            found[draw.name] = _span(100 * error / rows for error in typical), _span(beside)
    return found


def _cells(
    configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw, rows: int
) -> Iterable[tuple[Fraction | float, float]]:
    """The deviation of a draw's noise and the mean count of the cells that it falls on (0: not known), marginal by marginal."""
    if draw.mechanism not in MEAN_NOISE:
        return
    if draw.kind is DrawKind.EVALUATION:
        yield error_deviation(draw.parameter, configuration.stability), 0.0
    elif configuration.marginals is not None:
        yield from _marginal_cells(configuration, plan, draw, rows)
    elif draw.length == 0:
        yield count_deviation(draw.parameter, configuration.stability), rows
    else:
        cap = configuration.contribution_cap(draw.length)
        number = most_combinations((len(attribute.labels) for attribute in configuration.attributes), draw.length)
        mean = 0.0 if configuration.private_columns else rows * cap / number
        yield deviation(draw.parameter, cap, configuration.stability), mean


def _marginal_cells(
    configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw, rows: int
) -> Iterable[tuple[Fraction | float, float]]:
    settings, sizes = configuration.marginals, public_sizes(configuration)
    assert settings is not None
    deviations = marginal_noise(configuration, plan).get(draw.name, ()) if draw.kind in TABLES else ()
    if not deviations:  # which marginals there will be is not known yet
        return
    names = [attribute.name for attribute in configuration.attributes]
    cliques = all_cliques(sizes, 1) if draw.kind is DrawKind.ONE_WAY else declared_cliques(settings, names, sizes)
    for sd, clique in zip(deviations, cliques, strict=True):
        yield sd, 0.0 if configuration.private_columns else rows / cells(clique, sizes)


def _span(percentages: Iterable[float]) -> str:
    found = sorted(percentages)
    if not found:
        return ""
    ends = list(dict.fromkeys(f"{value:.2g}" if value < 100 else f"{value:.0f}" for value in (found[0], found[-1])))
    return f"± {' to '.join(ends)} %"
