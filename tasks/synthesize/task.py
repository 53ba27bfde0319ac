"""Door of the stage: synthetic records, as codes, from the normalized counts."""

from __future__ import annotations

from marginweave.tasks.aggregate.payloads import unpack_aggregates
from marginweave.tasks.checkpoint.codecs import pack_arrays
from marginweave.tasks.door import stage_task
from marginweave.tasks.references import DerivedReference, StageResult


@stage_task("synthesize")
def synthesize(reference: DerivedReference, normalized: StageResult) -> StageResult:
    """Synthetic records as codes. DP: post-processing."""

    def compute() -> bytes:
        from marginweave.tasks.synthesize.synthesize import synthesize_records  # numba

        configuration = reference.configuration
        aggregates = unpack_aggregates(reference.load(normalized))
        records = synthesize_records(aggregates, configuration.synthesize, configuration.optional)
        return pack_arrays({"records": records}, {})

    return reference.checkpoint("synthesize", [normalized], compute)
