"""The audit of one configuration: every mechanism of its plan, and the pipeline from rows to the last draw."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from marginweave.accounting.accountants import bisect, budget_mu2
from marginweave.accounting.selection_composition import mixed_delta
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.marginals import MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import read_yaml
from marginweave.measurements.base import Measurement
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.plan import Plan
from marginweave.measurements.private_values import PrivateValues
from marginweave.measurements.record_count import RecordCount
from marginweave.measurements.round_draws import RoundChoice, RoundMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.mechanisms.catalogue import count_noise
from marginweave.mechanisms.exponential import Exponential, selection_mu
from tests.audit import findings, marginals, tuples
from tests.audit.findings import Finding, Hits, TrialScores
from tests.audit.made_up import CANARIES, CanaryTable, MadeUpRelease
from tests.audit.tuples import TEST_DELTA


def examples() -> dict[str, Configuration]:
    """The releases of made-up data in `examples.yaml`, by name: what `make audit` looks at."""
    content = read_yaml(Path(__file__).with_name("examples.yaml"))
    common, releases = content["common"], content["releases"]
    return {
        name: parse_configuration(
            {**common, **own, "columns": {**common["columns"], **own.get("columns", {})}}
        )
        for name, own in releases.items()
    }


def claimed_mu(draw: Measurement[Any]) -> float:
    """The mu that a draw is charged for, or that its noise stands for where a resize charges all draws as one."""
    if draw.cost.mu2:
        return math.sqrt(draw.cost.mu2)
    return (
        selection_mu(draw.epsilon) if draw.mechanism is Exponential else 1 / draw.noise_multiplier
    )


def stated_mu(configuration: Configuration, plan: Plan, draws: Sequence[Measurement[Any]]) -> float:
    """The mu that the stated (epsilon, delta) leaves for `draws`, when all others lose what they are charged for.

    Beside selections Gaussians have what the exact curves leave them, which is more than a sum of mu^2 does; a
    selection among `draws` counts by its own mu, which covers it beside anything. What thresholds cost is taken off delta.
    """
    if configuration.resize is not None and configuration.resize.amplify:
        return math.sqrt(_squares(draws))
    delta = plan.delta - plan.delta_threshold
    selections = [draw.epsilon for draw in plan.draws if draw.mechanism is Exponential]
    others = [
        draw for draw in plan.draws if draw not in draws and draw.mechanism is not Exponential
    ]
    selected = _squares([draw for draw in draws if draw.mechanism is Exponential])
    return math.sqrt(
        max(0.0, _gaussian_budget(selections, plan.epsilon, delta) - _squares(others) + selected)
    )


def _gaussian_budget(selections: Sequence[float], epsilon: float, delta: float) -> float:
    """The largest mu^2 of Gaussians that are (epsilon, delta)-DP beside exponential mechanisms of `selections`; 0 for none."""
    most = budget_mu2(epsilon, delta)
    if not selections:
        return most
    return bisect(lambda mu2: mixed_delta(mu2, selections, epsilon) <= delta, 0.0, most, 40)[0]


def _squares(draws: Sequence[Measurement[Any]]) -> float:
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

    def trials_of(self, draw: Measurement[Any]) -> int:
        """How many vectors of noise of a draw: the more the less it is charged for."""
        return int(self.trials * min(_LONGEST, max(1.0, (_CLEAR / claimed_mu(draw)) ** 2)))


def audit(configuration: Configuration, effort: Effort | None = None) -> Iterator[Finding]:
    """Measure what a release by `configuration` loses, mechanism by mechanism and then all of them together.

    Reads no data: tables are made up, and noise comes from the functions that a release calls. What is claimed is what the
    plan charges, and of the pipelines what the configuration states.
    """
    suite = _Audit(
        configuration=configuration, plan=plan_budget(configuration), effort=effort or Effort()
    )
    yield from (
        suite.of_tuples()
        if configuration.marginals is None
        else suite.of_marginals(configuration.marginals)
    )
    yield from suite.together()


@dataclass(frozen=True, kw_only=True)
class _Audit:
    """The audit of one configuration. `parts` are the draws whose noise has been measured and adds up, with their scores."""

    configuration: Configuration
    plan: Plan
    effort: Effort
    parts: list[tuple[Measurement[Any], TrialScores]] = field(default_factory=list)
    loose: list[Measurement[Any]] = field(default_factory=list)

    def of_tuples(self) -> Iterator[Finding]:
        """Of k-tuples: the counts of each length, the record count, the percentile and the thresholds."""
        configuration, stability = self.configuration, self.configuration.stability
        replaces = stability.neighbors == "replace-one"
        table = CanaryTable(columns=tuples.canary_columns(configuration), stability=stability)
        for length in range(1, configuration.reporting_length + 1):
            draw, combinations = (
                self.plan.draw(TupleLevel, length),
                math.comb(table.columns, length),
            )
            repeats = max(
                1,
                min(
                    self.effort.trials_of(draw) // CANARIES, _DRAWN // (combinations * table.places)
                ),
            )
            yield self._summed(draw, tuples.level_scores(table, draw, repeats))
            if combinations > 1:
                scores = tuples.level_scores(table, draw, max(1, repeats // 4), combinations // 2)
                yield _alone(
                    f"{draw.name}, {combinations // 2} of {combinations} kept", draw, scores
                )
        if configuration.resize is None and not (replaces and stability.records == 1):
            draw = self.plan.draw(RecordCount)
            scores = tuples.count_scores(draw, stability, self.effort.trials_of(draw))
            yield _alone(draw.name, draw, scores) if replaces else self._summed(draw, scores)
        if configuration.percentile is not None:
            percentile = self.plan.draw(ContributionBound, 1)
            scores = tuples.percentile_scores(configuration, percentile, self.effort.selections)
            yield _alone("percentile-k", percentile, scores)
        if configuration.private_columns:
            hits = tuples.exposed_units(configuration, self.plan, self.effort.units)
            yield from _exposure("threshold 1", hits)

    def of_marginals(self, settings: MarginalSettings) -> Iterator[Finding]:
        """Of marginals: private values, the counts with either noise, the scores of pairs, and one of the rounds."""
        configuration, plan, effort = self.configuration, self.plan, self.effort
        stability, events = configuration.stability, []
        if plan.of(PrivateValues):
            scores = marginals.values_scores(configuration, plan, effort.trials // 10)
            yield _alone("values", plan.draw(PrivateValues), scores)
            yield from _exposure(
                "threshold", marginals.exposed_values(configuration, plan, effort.units)
            )
        lengths = (OneWayMarginals, 1), (LargerMarginals, 2)
        for draw, length in (
            (plan.draw(kind), length) for kind, length in lengths if plan.of(kind)
        ):
            if draw.mechanism.is_pure:
                scores = marginals.pure_scores(
                    draw, length, settings.allocation, stability, effort.laplace
                )
                events.append((draw, scores))
                yield findings.epsilon_finding(str(draw), scores.hits, draw.epsilon)
            else:
                trials = effort.trials_of(draw)
                scores = marginals.marginal_scores(
                    draw, length, settings.allocation, stability, trials
                )
                yield self._summed(draw, scores)
        if plan.of(PairScores):
            draw = plan.draw(PairScores)
            scores = marginals.selection_scores(draw, stability, effort.trials_of(draw))
            yield self._summed(draw, scores, tight=stability.neighbors == "add-remove")
        if self._in_rounds:  # a share and a choice: all rounds are alike
            share, pick = plan.draw(RoundMarginals, 1), plan.draw(RoundChoice, 1, 1)
            yield self._summed(
                share,
                marginals.marginal_scores(share, 2, "equal", stability, effort.trials_of(share)),
            )
            yield _alone(
                pick.name, pick, marginals.choice_scores(pick, stability, effort.selections)
            )
        if len(events) > 1:
            joint = findings.joint_scores([scores for _, scores in events])
            title = count_noise(events[0][0].mechanism.name).title
            yield findings.epsilon_finding(
                f"all {title} noise", joint.hits, sum(draw.epsilon for draw, _ in events)
            )

    def together(self) -> Iterator[Finding]:
        """All Gaussian noise together, and the pipeline as it is."""
        configuration, plan, effort = self.configuration, self.plan, self.effort
        if plan.pure_noise is not None:
            return
        if len(self.parts) > 1:
            claim = stated_mu(configuration, plan, [draw for draw, _ in self.parts])
            tight = not self.loose
            joint = findings.joint_scores([scores for _, scores in self.parts])
            yield findings.mu_finding("pipeline, pinned", joint, claim, tight=tight)
        if configuration.resize is None and not self._in_rounds:
            release = MadeUpRelease.of(configuration)
            of_pipeline, trials = marginals.marginal_pipeline_score, range(effort.runs)
            if configuration.marginals is None:
                of_pipeline = tuples.tuple_pipeline_score
                # OpenDP's selections take as long as all else
                if configuration.percentile is not None:
                    trials = range(effort.runs // 2)
            # the cut is from a fifth of the trials, which are left out then
            present, absent = (
                np.array([of_pipeline(release, side) for _ in trials]) for side in (0, 1)
            )
            claim = stated_mu(release.configuration, release.plan, release.plan.draws)
            scores, delta = findings.split_cut(present, absent), release.plan.delta_threshold
            yield findings.mu_finding("pipeline", scores, claim, tight=False, delta=delta)

    @property
    def _in_rounds(self) -> bool:
        return self.configuration.marginals is not None and self.configuration.rounds is not None

    def _summed(
        self, draw: Measurement[Any], scores: TrialScores, *, tight: bool = True
    ) -> Finding:
        """What the scores say of the draw's own price, and keep them; `tight` where tables and test are the worst there are."""
        self.parts.append((draw, scores))
        if not tight:
            self.loose.append(draw)
        return findings.mu_finding(draw.name, scores, claimed_mu(draw), tight=tight)


def _alone(name: str, draw: Measurement[Any], scores: TrialScores) -> Finding:
    """What scores that are added to no others, and are not the worst there are, say of the draw's own price."""
    return findings.mu_finding(name, scores, claimed_mu(draw), tight=False)


def _exposure(threshold: str, hits: Hits) -> Iterator[Finding]:
    """A unit whose rows have values of their own, and one whose rows have the same ones."""
    name = f"{threshold} at delta {TEST_DELTA:g}"
    yield findings.delta_finding(f"{name}, rows apart", hits.present, hits.trials, TEST_DELTA)
    yield findings.delta_finding(f"{name}, rows alike", hits.absent, hits.trials, TEST_DELTA)
