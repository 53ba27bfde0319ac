"""Door of the stage: consistent counts from the collected ones."""

from __future__ import annotations

from marginweave.tasks.aggregate.payloads import pack_aggregates, unpack_aggregates
from marginweave.tasks.door import stage_task
from marginweave.tasks.normalize.normalize import normalize
from marginweave.tasks.references import DerivedReference, StageResult


@stage_task("normalize")
def normalize_counts(reference: DerivedReference, collected: StageResult) -> StageResult:
    """Counts that are monotone and closed under sub-combinations. DP: post-processing."""

    def compute() -> bytes:
        return pack_aggregates(normalize(unpack_aggregates(reference.load(collected))))

    return reference.checkpoint("normalize", [collected], compute)
