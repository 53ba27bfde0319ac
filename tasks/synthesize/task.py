"""Door of the stage: synthetic records, as codes, from the normalized counts."""

from __future__ import annotations

from marginweave.schemas.contracts import check_codes
from marginweave.tasks.aggregate.marginal_payloads import unpack_marginals
from marginweave.tasks.aggregate.payloads import unpack_aggregates
from marginweave.tasks.checkpoint.codecs import pack_codes
from marginweave.tasks.door import stage_task
from marginweave.tasks.references import DerivedReference, StageResult


@stage_task("synthesize")
def synthesize(reference: DerivedReference, normalized: StageResult) -> StageResult:
    """Synthetic records as codes. DP: post-processing."""

    def compute() -> bytes:
        from marginweave.tasks.synthesize.release import synthesize_codes  # numba

        configuration, payload = reference.resolved, reference.load(normalized)
        counts = unpack_aggregates(payload) if configuration.marginals is None else unpack_marginals(payload)
        settings = configuration.synthesize
        codes = synthesize_codes(counts, configuration, settings)
        check_codes(configuration.attributes, counts.domain.sizes, codes, "synthesize", complete=settings.complete)
        return pack_codes(codes)

    return reference.checkpoint("synthesize", [normalized], compute)
