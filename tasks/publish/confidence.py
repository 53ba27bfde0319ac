"""How sure the released counts are: their intervals, and what privacy.json says of these."""

from __future__ import annotations

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import BudgetPlan
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.schemas.released.statement import Confidence
from marginweave.tasks.aggregate.payloads import unpack_aggregates, unpack_marginals
from marginweave.tasks.evaluate.bounds import bounding_biases
from marginweave.tasks.evaluate.intervals import LEVEL, Intervals, marginal_intervals, release_intervals
from marginweave.tasks.references import DerivedReference, StageResult

_ABOUT = (
    "The interval from low to high covers the true count (after preparation, with bounded contributions) with the level for "
    "itself, not for all intervals together. It comes from the count as it was drawn; the published count was made consistent "
    "and may lie outside."
)
_SELECTED = (
    "Every combination was published because its noisy count reached a threshold. Its interval is adjusted for that: it "
    "inverts the normal distribution truncated at the threshold, and has the level among the published counts."
)
_MEASURED = (
    "No cell of a marginal was selected: its interval is that of its noise, and has the level among all measured "
    "cells. A value measured together with others has at most the count of all of them."
)


def count_intervals(
    reference: DerivedReference, aggregates: Aggregates, collected: StageResult, normalized: StageResult
) -> tuple[Intervals, ...]:
    """The intervals of normalized counts, from the checkpoints of `collect` and `normalize`: one item a length.

    DP: post-processing.
    """
    configuration = reference.resolved
    if configuration.marginals is None:
        return release_intervals(aggregates, unpack_aggregates(reference.load(collected)), configuration)
    return marginal_intervals(aggregates, unpack_marginals(reference.load(normalized)), configuration)


def stated_confidence(configuration: Configuration, plan: BudgetPlan, aggregates: Aggregates) -> Confidence:
    """For privacy.json: the level, how intervals are meant, and what bounding may have taken from each count.

    DP: post-processing.
    """
    return Confidence(
        level=LEVEL,
        intervals=(_ABOUT, _SELECTED if configuration.marginals is None else _MEASURED),
        bounding=bounding_biases(configuration, plan, aggregates),
    )
