"""The task of the stage: consistent counts from the collected ones."""

from __future__ import annotations

from marginweave.schemas.contracts import check_aggregates
from marginweave.tasks.aggregate.marginal_payloads import pack_marginals, unpack_marginals
from marginweave.tasks.aggregate.payloads import pack_aggregates, unpack_aggregates
from marginweave.tasks.normalize.marginals import normalize_marginals
from marginweave.tasks.normalize.normalize import normalize
from marginweave.tasks.references import DerivedReference, StageResult
from marginweave.tasks.stage import stage_task


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
