"""Door of the stage: synthetic records, as codes, from the normalized counts."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.schemas.contracts import check_codes
from marginweave.tasks.aggregate.marginal_payloads import unpack_marginals
from marginweave.tasks.aggregate.payloads import unpack_aggregates
from marginweave.tasks.checkpoint.codecs import pack_codes
from marginweave.tasks.door import stage_task
from marginweave.tasks.references import DerivedReference, StageResult


@stage_task("synthesize")
def synthesize(reference: DerivedReference, normalized: StageResult) -> StageResult:
    """Synthetic records as codes, in blocks of records, of which few are in memory at once. DP: post-processing."""

    def compute() -> Iterator[bytes]:
        from marginweave.tasks.synthesize.release import synthesize_blocks  # numba

        configuration, payload = reference.resolved, reference.load(normalized)
        counts = unpack_aggregates(payload) if configuration.marginals is None else unpack_marginals(payload)
        settings, sizes = configuration.synthesize, counts.domain.sizes
        for codes in synthesize_blocks(counts, configuration, settings):
            check_codes(configuration.attributes, sizes, codes, "synthesize", complete=settings.complete)
            yield pack_codes(codes)

    return reference.checkpoint_blocks("synthesize", [normalized], compute)
