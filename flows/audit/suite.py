"""The audit of one configuration: every mechanism of its plan, and the pipeline from rows to the last draw."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marginweave.flows.audit.made_up import CANARIES, CanaryTable, MadeUpRelease
from marginweave.flows.audit.marginals import (
    choice_scores,
    evaluation_scores,
    exposed_values,
    laplace_scores,
    marginal_pipeline_scores,
    marginal_scores,
    selection_scores,
    values_scores,
)
from marginweave.flows.audit.tuples import (
    TEST_DELTA,
    canary_columns,
    count_scores,
    exposed_units,
    level_scores,
    percentile_scores,
    tuple_pipeline_scores,
)
from marginweave.schemas.budget import BudgetPlan, DrawKind, LaplaceMeasurement, PlannedDraw, Selection
from marginweave.schemas.configuration.marginals import MarginalSettings
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.accounting.accountants import selection_mu
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.accounting.plan.marginals import rounds_of
from marginweave.tasks.accounting.selection_composition import gaussian_budget
from marginweave.tasks.empirical.findings import (
    Finding,
    Hits,
    Scores,
    delta_finding,
    epsilon_finding,
    joint_scores,
    mu_finding,
)


def claimed_mu(draw: PlannedDraw) -> float:
    """The mu that a draw is charged for, or that its noise stands for where a resize charges all draws as one."""
    if draw.cost.mu2:
        return math.sqrt(draw.cost.mu2)
    return selection_mu(draw.epsilon) if isinstance(draw, Selection) else 1 / draw.parameter


def stated_mu(configuration: Configuration, plan: BudgetPlan, draws: Sequence[PlannedDraw]) -> float:
    """The mu that the stated (epsilon, delta) leaves for `draws`, when all others lose what they are charged for.

    Beside selections Gaussians have what the exact curves leave them, which is more than a sum of mu^2 does (`mixed`); a
    selection among `draws` counts by its own mu, which covers it beside anything. What thresholds cost is taken off delta, but
    where `joint` has proven that noise alone may have all of it.
    """
    if configuration.resize is not None and configuration.resize.amplify:
        return math.sqrt(_squares(draws))
    delta = plan.delta if plan.discovery is not None else plan.delta - plan.delta_threshold
    selections = [draw.epsilon for draw in plan.draws if isinstance(draw, Selection)]
    others = [draw for draw in plan.draws if draw not in draws and not isinstance(draw, Selection)]
    selected = _squares([draw for draw in draws if isinstance(draw, Selection)])
    return math.sqrt(max(0.0, gaussian_budget(selections, plan.epsilon, delta) - _squares(others) + selected))


def _squares(draws: Sequence[PlannedDraw]) -> float:
    return math.fsum(claimed_mu(draw) ** 2 for draw in draws)


# An interval of mu is as wide beside mu as 1 / (mu sqrt(trials)): what is claimed below the first number gets so many more
# trials that it is measured as exactly as that, up to the second number of times as many.
_CLEAR = 1.25
_LONGEST = 8
# Canaries' cells that all draws of the counts of one length may have together.
_DRAWN = 60_000_000


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How many trials: of vectors of noise, of OpenDP's selections and Laplace noise, of runs of a pipeline, of discoveries."""

    trials: int = 500_000
    selections: int = 2500
    laplace: int = 8000
    runs: int = 1200
    units: int = 30_000

    def trials_of(self, draw: PlannedDraw) -> int:
        """How many vectors of noise of a draw: the more the less it is charged for."""
        return int(self.trials * min(_LONGEST, max(1.0, (_CLEAR / claimed_mu(draw)) ** 2)))


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The scores of a planned draw; `tight` where tables and test are the worst there are."""

    draw: PlannedDraw
    scores: Scores
    tight: bool

    @property
    def finding(self) -> Finding:
        """What the scores say of the draw's own price."""
        return mu_finding(self.draw.name, self.scores, claimed_mu(self.draw), tight=self.tight)


def audit(configuration: Configuration, effort: Effort | None = None) -> Iterator[Finding]:
    """Measure what a release by `configuration` loses, mechanism by mechanism and then all of them together.

    Reads no data: tables are made up, and noise comes from the functions that a release calls. What is claimed is what the
    plan charges, and of the pipelines what the configuration states.
    """
    effort = effort or Effort()
    if configuration.marginals is None:
        yield from _tuples(configuration, plan_budget(configuration), effort)
    else:
        yield from _marginals(configuration, configuration.marginals, plan_budget(configuration), effort)


def _tuples(configuration: Configuration, plan: BudgetPlan, effort: Effort) -> Iterator[Finding]:
    stability, replaces = configuration.stability, configuration.stability.neighbors == "replace-one"
    table = CanaryTable(columns=canary_columns(configuration), stability=stability)
    parts = []
    for length in range(1, configuration.reporting_length + 1):
        draw, held = plan.draw(DrawKind.LEVEL, length), math.comb(table.columns, length)
        repeats = max(1, min(effort.trials_of(draw) // CANARIES, _DRAWN // (held * table.places)))
        parts.append(_Part(draw=draw, scores=level_scores(table, draw, repeats), tight=True))
        yield parts[-1].finding
        if held > 1:
            scores = level_scores(table, draw, max(1, repeats // 4), held // 2)
            yield mu_finding(f"{draw.name}, {held // 2} of {held} kept", scores, claimed_mu(draw), tight=False)
    if configuration.resize is None and not (replaces and stability.records == 1):
        draw = plan.draw(DrawKind.COUNT)
        part = _Part(draw=draw, scores=count_scores(draw, stability, effort.trials_of(draw)), tight=not replaces)
        parts += [] if replaces else [part]
        yield part.finding
    if configuration.percentile is not None:
        draw = plan.draw(DrawKind.PERCENTILE, 1)
        yield mu_finding(
            "percentile-k",
            percentile_scores(configuration, draw, effort.selections),
            claimed_mu(draw),
            tight=False,
        )
    for length in range(1, configuration.discoveries + 1):
        yield from _exposure(f"threshold {length}", exposed_units(configuration, plan, length, effort.units))
    yield from _together(configuration, plan, parts, effort)


def _marginals(
    configuration: Configuration, settings: MarginalSettings, plan: BudgetPlan, effort: Effort
) -> Iterator[Finding]:
    stability, replaces = configuration.stability, configuration.stability.neighbors == "replace-one"
    parts, events = [], []
    if plan.has(DrawKind.VALUES):
        yield mu_finding(
            "values",
            values_scores(configuration, plan, effort.trials // 10),
            claimed_mu(plan.draw(DrawKind.VALUES)),
            tight=False,
        )
        yield from _exposure("threshold", exposed_values(configuration, plan, effort.units))
    for kind, length in ((DrawKind.ONE_WAY, 1), (DrawKind.MARGINALS, 2)):
        if not plan.has(kind):
            continue
        draw = plan.draw(kind)
        if isinstance(draw, LaplaceMeasurement):
            events.append((draw, laplace_scores(draw, length, settings.allocation, stability, effort.laplace)))
            yield epsilon_finding(str(draw), events[-1][1].hits, draw.epsilon)
        else:
            scores = marginal_scores(draw, length, settings.allocation, stability, effort.trials_of(draw))
            parts.append(_Part(draw=draw, scores=scores, tight=True))
            yield parts[-1].finding
    if plan.has(DrawKind.SCORES):
        draw = plan.draw(DrawKind.SCORES)
        parts.append(
            _Part(draw=draw, scores=selection_scores(draw, stability, effort.trials_of(draw)), tight=not replaces)
        )
        yield parts[-1].finding
    if rounds_of(configuration) is not None:
        yield from _rounds(configuration, plan, parts, effort)
    if len(events) > 1:
        joint = joint_scores([scores for _, scores in events])
        yield epsilon_finding("all Laplace noise", joint.hits, sum(draw.parameter for draw, _ in events))
    yield from _together(configuration, plan, parts, effort)


def _rounds(configuration: Configuration, plan: BudgetPlan, parts: list[_Part], effort: Effort) -> Iterator[Finding]:
    """A share and a choice of rounds: all of them are alike."""
    share, pick = plan.draw(DrawKind.MEASURE, 1), plan.draw(DrawKind.SELECT, 1, 1)
    scores = marginal_scores(share, 2, "equal", configuration.stability, effort.trials_of(share))
    parts.append(_Part(draw=share, scores=scores, tight=True))
    yield parts[-1].finding
    chosen = choice_scores(pick, configuration.stability, effort.selections)
    yield mu_finding(pick.name, chosen, claimed_mu(pick), tight=False)


def _exposure(threshold: str, hits: Hits) -> Iterator[Finding]:
    """A unit whose rows have values of their own, and one whose rows have the same ones."""
    name = f"{threshold} at delta {TEST_DELTA:g}"
    yield delta_finding(f"{name}, rows apart", hits.present, hits.trials, TEST_DELTA)
    yield delta_finding(f"{name}, rows alike", hits.absent, hits.trials, TEST_DELTA)


def _together(configuration: Configuration, plan: BudgetPlan, parts: list[_Part], effort: Effort) -> Iterator[Finding]:
    """The paid evaluation, all Gaussian noise together, and the pipeline as it is."""
    paid = configuration.evaluate.paid
    if paid is not None:
        draw = plan.draw(DrawKind.EVALUATION)
        scores = evaluation_scores(draw, paid.length, configuration.stability, effort.trials_of(draw))
        parts.append(_Part(draw=draw, scores=scores, tight=True))
        yield parts[-1].finding
    if plan.uses_laplace:
        return
    if len(parts) > 1:
        claim = stated_mu(configuration, plan, [part.draw for part in parts])
        tight = configuration.privacy.accountant == "gdp" and all(part.tight for part in parts)
        yield mu_finding("pipeline, pinned", joint_scores([part.scores for part in parts]), claim, tight=tight)
    in_rounds = configuration.marginals is not None and rounds_of(configuration) is not None
    if configuration.resize is None and not in_rounds:
        release = MadeUpRelease.of(configuration)
        of_pipeline = tuple_pipeline_scores if configuration.marginals is None else marginal_pipeline_scores
        # OpenDP's selections take as long as all else
        selects = configuration.marginals is None and configuration.percentile is not None
        scores = of_pipeline(release, effort.runs // 2 if selects else effort.runs)
        claim = stated_mu(release.configuration, release.plan, release.plan.draws)
        yield mu_finding("pipeline", scores, claim, tight=False, delta=release.plan.delta_threshold)
