"""Stage `aggregate`: make one draw of the plan; and the stages that collect the draws."""

from __future__ import annotations

import json

from marginweave.domain.membership import check_levels
from marginweave.measurements.collected import collected_combinations, collected_marginals
from marginweave.measurements.quantile_bounds import drawn_bounds
from marginweave.observations.payloads import pack_aggregates, pack_marginals
from marginweave.runs.capabilities import BOUNDS, RunReference, StageResult
from marginweave.runs.drawing import RunDraws, draw_once

from .stage import stage


@stage("aggregate", run_name="aggregate {name}")
def aggregate(reference: RunReference, counted: StageResult, name: str) -> StageResult:
    """Count the rows of a measurement exactly, charge, add noise and commit.

    DP: the planned cost of the draw, one ledger event.
    """
    return draw_once(reference, reference.plan.by_name[name], counted)


@stage("collect bounds")
def collect_bounds(reference: RunReference) -> StageResult:
    """Write the private bounds that were drawn: from here on `resolved` has them in their place. DP: post-processing."""
    bounds = drawn_bounds(RunDraws(reference))
    content = json.dumps(bounds, sort_keys=True).encode()
    return reference.derived.checkpoint(BOUNDS, [], lambda: content)


@stage("collect")
def collect(reference: RunReference) -> StageResult:
    """Collect the counts of the committed draws and of earlier releases; from here on no stage gets a private file.

    DP: post-processing.
    """
    drawn = RunDraws(reference)
    results = [drawn.result(draw) for draw in reference.plan.draws if drawn.is_committed(draw)]
    public = reference.derived

    def compute() -> bytes:
        if reference.configuration.marginals is not None:
            return pack_marginals(collected_marginals(drawn, public.read_kept))
        aggregates = collected_combinations(drawn)
        check_levels(aggregates.levels, aggregates.domain.sizes, "collect")
        return pack_aggregates(aggregates)

    return public.checkpoint("collect", results, compute)
