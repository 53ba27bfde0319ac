"""Door of the stage: synthetic records as a table of the declared columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginweave.schemas.errors import StageError
from marginweave.schemas.table import check_contract, output_schema
from marginweave.tasks.checkpoint.codecs import pack_table, unpack_codes
from marginweave.tasks.decode.decode import decode_table
from marginweave.tasks.door import stage_task
from marginweave.tasks.normalize.released import released_counts
from marginweave.tasks.references import DerivedReference, StageResult
from marginweave.tasks.validate.expectations import Suite

if TYPE_CHECKING:
    from pathlib import Path


@stage_task("decode")
def decode(
    reference: DerivedReference, synthesized: StageResult, normalized: StageResult, suite: Path | None
) -> StageResult:
    """The synthetic table, held against its contract and the suite for synthetic output. DP: post-processing.

    Raises:
        StageError: the table breaks its contract or the suite; what was charged stays committed, and `resume` goes on
            once the suite was changed.
    """

    def compute() -> bytes:
        configuration = reference.resolved
        table = decode_table(
            unpack_codes(reference.load(synthesized)),
            released_counts(reference, normalized).domain,
            configuration,
            configuration.synthesize.seed,
        )
        frame = table.to_pandas()
        check_contract(output_schema(configuration), frame, "decode")
        broken = [] if suite is None else [r for r in Suite(suite, raw_input=False).check(frame) if not r.success]
        if broken:
            rules = "; ".join(f"column {b.column!r} breaks {b.expectation}" for b in broken)
            raise StageError(f"decode: the synthetic table does not meet the suite of expectations: {rules}")
        return pack_table(table)

    files = [] if suite is None else [suite]
    return reference.checkpoint("decode", [synthesized, normalized], compute, files)
