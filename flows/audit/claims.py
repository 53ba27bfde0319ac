"""What an audit holds its measurements against: what a draw is charged for, and what the stated guarantee leaves for draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

from marginweave.schemas.budget import BudgetPlan, PlannedDraw
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.accounting.accountants import selection_mu
from marginweave.tasks.accounting.selection_composition import gaussian_budget


def claimed_mu(draw: PlannedDraw) -> float:
    """The mu that a draw is charged for, or that its noise stands for where a resize charges all draws as one."""
    if draw.cost.mu2:
        return math.sqrt(draw.cost.mu2)
    return selection_mu(draw.parameter) if _selects(draw) else 1 / draw.parameter


def stated_mu(configuration: Configuration, plan: BudgetPlan, draws: Sequence[PlannedDraw]) -> float:
    """The mu that the stated (epsilon, delta) leaves for `draws`, when all others lose what they are charged for.

    Beside selections Gaussians have what the exact curves leave them, which is more than a sum of mu^2 does (`mixed`); a
    selection among `draws` counts by its own mu, which covers it beside anything. What thresholds cost is taken off delta, but
    where `joint` has proven that noise alone may have all of it.
    """
    if configuration.resize is not None and configuration.resize.amplify:
        return math.sqrt(_squares(draws))
    delta = plan.delta if plan.discovery is not None else plan.delta - plan.delta_threshold
    selections = [draw.parameter for draw in plan.draws if _selects(draw)]
    others = [draw for draw in plan.draws if draw not in draws and not _selects(draw)]
    selected = _squares([draw for draw in draws if _selects(draw)])
    return math.sqrt(max(0.0, gaussian_budget(selections, plan.epsilon, delta) - _squares(others) + selected))


def _squares(draws: Sequence[PlannedDraw]) -> float:
    return math.fsum(claimed_mu(draw) ** 2 for draw in draws)


def _selects(draw: PlannedDraw) -> bool:
    return draw.mechanism == "exponential"
