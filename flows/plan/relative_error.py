"""How large the noise of a release is beside its counts, for a number of rows that the user gives as public knowledge."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from marginweave.flows.plan.accuracy import MEAN_NOISE
from marginweave.schemas.budget import BudgetPlan, DrawKind, PlannedDraw
from marginweave.schemas.configuration.attributes import most_combinations
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.aggregate.marginals import cells
from marginweave.tasks.aggregate.noise import MARGINALS, planned_cliques, planned_sigmas, public_sizes


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
    """The sigma of a draw's noise and the mean count of the cells that it falls on (0: not known), marginal by marginal."""
    sigmas, means = planned_sigmas(configuration, plan, draw), [0.0]
    if draw.kind in (DrawKind.VALUES, DrawKind.SCORES, DrawKind.MEASURE):
        return ()
    if draw.kind is DrawKind.COUNT:
        means = [rows]
    elif configuration.private_columns or not sigmas:
        means = [0.0] * len(sigmas)
    elif draw.kind is DrawKind.LEVEL:
        number = most_combinations((len(attribute.labels) for attribute in configuration.attributes), draw.length)
        means = [rows * configuration.contribution_cap(draw.length) / number]
    elif draw.kind in MARGINALS:
        sizes = public_sizes(configuration)
        means = [rows / cells(clique, sizes) for clique in planned_cliques(configuration, draw.kind)]
    return zip(sigmas, means, strict=True)


def _span(percentages: Iterable[float]) -> str:
    found = sorted(percentages)
    if not found:
        return ""
    ends = list(dict.fromkeys(f"{value:.2g}" if value < 100 else f"{value:.0f}" for value in (found[0], found[-1])))
    return f"± {' to '.join(ends)} %"
