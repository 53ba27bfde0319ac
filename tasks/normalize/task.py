"""The task of the stage: consistent counts from the collected ones."""

from __future__ import annotations

from marginweave.schemas.contracts import check_aggregates
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.tasks.aggregate.payloads import pack_aggregates, pack_marginals, unpack_aggregates, unpack_marginals
from marginweave.tasks.normalize.marginals import marginal_counts, normalize_marginals
from marginweave.tasks.normalize.normalize import normalize
from marginweave.tasks.references import DerivedReference, StageResult
from marginweave.tasks.stage import stage_task


def released_counts(reference: DerivedReference, normalized: StageResult) -> Aggregates:
    """Counts of combinations from the checkpoint of `normalize`. DP: post-processing."""
    payload = reference.load(normalized)
    if reference.configuration.marginals is None:
        return unpack_aggregates(payload)
    return marginal_counts(unpack_marginals(payload), reference.resolved)


@stage_task("normalize")
def normalize_counts(reference: DerivedReference, collected: StageResult) -> StageResult:
    """Counts that are monotone and closed under sub-combinations, or consistent marginals. DP: post-processing."""

    def compute() -> bytes:
        if reference.configuration.marginals is not None:
            marginals = unpack_marginals(reference.load(collected))
            return pack_marginals(normalize_marginals(marginals, reference.resolved))
        normalized = normalize(unpack_aggregates(reference.load(collected)))
        check_aggregates(normalized, "normalize")
        return pack_aggregates(normalized)

    return reference.checkpoint("normalize", [collected], compute)
