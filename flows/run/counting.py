"""What a release counts, as one object: its draws, its stages, its limits, and its words.

Whether combinations or marginals are counted is asked where the object is made, in `counting_method`. It stands below the
tasks that a flow runs: a plan asks for draws, limits and words without starting Prefect. So `stages` names the tasks, and
`flows.release` has them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from marginweave.flows.run.limits import check_marginals, check_mixture, check_paid, check_tuples
from marginweave.schemas.configuration.marginals import MarginalSettings
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import BudgetPlan, DrawKind
from marginweave.tasks.accounting.plan.defaults import counts_words
from marginweave.tasks.accounting.plan.k_tuples import plan_budget


@dataclass(frozen=True, kw_only=True)
class CountingStage:
    """A stage that counts: its name, the task that it runs, the stage whose result it is given, and its `number`, if any.

    A `repeated` stage runs while shares of the rounds are left, which follows from what was drawn.
    """

    name: str
    task: str
    source: str | None = "encode"
    number: int | None = None
    repeated: bool = False


@dataclass(frozen=True)
class CountingMethod(ABC):
    """One way to count."""

    configuration: Configuration

    def draws(self) -> BudgetPlan:
        """The planned draws of the whole release. DP: a function of the configuration alone."""
        return plan_budget(self.configuration)

    def describe(self) -> str:
        """What is counted, for a reader of the plan."""
        return counts_words(self.configuration.aggregate, len(self.configuration.attributes))

    @abstractmethod
    def stages(self, plan: BudgetPlan) -> tuple[CountingStage, ...]:
        """The stages that make the draws of `plan`, in order; the last one collects what was drawn."""

    @abstractmethod
    def limits(self) -> None:
        """Refuse, from public facts and before any draw, more cells or more noise than can be handled."""


@dataclass(frozen=True)
class KTuples(CountingMethod):
    """All combinations of up to R attributes that reach a threshold."""

    def stages(self, plan: BudgetPlan) -> tuple[CountingStage, ...]:
        """The record count, unless a resized table has a public one, and one stage a length."""
        lengths = range(1, self.configuration.reporting_length + 1)
        records = [CountingStage(name="count records", task="count records")]
        return (
            *(records if plan.has(DrawKind.COUNT) else ()),
            *(CountingStage(name=f"aggregate k={k}", task="aggregate", number=k) for k in lengths),
            CountingStage(name="collect", task="collect combinations", source=None),
        )

    def limits(self) -> None:
        """As `CountingMethod.limits`."""
        check_tuples(self.configuration)


@dataclass(frozen=True)
class MarginalTables(CountingMethod):
    """Dense tables of a few attributes each."""

    settings: MarginalSettings

    def stages(self, plan: BudgetPlan) -> tuple[CountingStage, ...]:
        """Private values, single attributes, then the larger marginals: in rounds, or scored and measured."""
        found = [CountingStage(name="measure one-way", task="measure one-way")]
        if plan.has(DrawKind.VALUES):
            found.insert(0, CountingStage(name="discover values", task="discover values"))
        rounds = sum(draw.kind is DrawKind.MEASURE for draw in plan.draws)
        if rounds:
            found.append(CountingStage(name="count candidates", task="count candidates"))
        found += [
            CountingStage(name=f"round {n}", task="round", source="count candidates", number=n, repeated=True)
            for n in range(1, rounds + 1)
        ]
        if plan.has(DrawKind.SCORES):
            found.append(CountingStage(name="select marginals", task="select marginals"))
        if plan.has(DrawKind.MARGINALS):
            found.append(CountingStage(name="measure marginals", task="measure marginals"))
        return (*found, CountingStage(name="collect", task="collect marginals", source=None))

    def limits(self) -> None:
        """As `CountingMethod.limits`."""
        check_marginals(self.configuration, self.settings)


def counting_method(configuration: Configuration) -> CountingMethod:
    """How the release counts."""
    if isinstance(configuration.aggregate, MarginalSettings):
        return MarginalTables(configuration, configuration.aggregate)
    return KTuples(configuration)


def check_size(configuration: Configuration) -> None:
    """Refuse, from public facts and before any draw, a release with more cells or more noise than can be handled."""
    counting_method(configuration).limits()
    check_mixture(configuration)
    check_paid(configuration)
