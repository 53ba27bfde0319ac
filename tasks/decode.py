"""Stage `decode`: turn synthetic records into a table of the declared columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from marginweave.base.errors import StageError
from marginweave.base.parallel import LocalEngine
from marginweave.checkpoints.codecs import pack_table, unpack_codes, unpack_table
from marginweave.records.decode import decode_table, label_counts, typed_table
from marginweave.runs.capabilities import DerivedReference, StageResult

from ..schemas.expectations import Suite
from ..schemas.records import records_contract
from .normalize import load_counts, released_counts
from .stage import stage

if TYPE_CHECKING:
    from pathlib import Path


@stage("decode")
def decode(
    reference: DerivedReference,
    synthesized: StageResult,
    normalized: StageResult,
    suite: Path | None,
) -> StageResult:
    """Write the synthetic table, checked by its contract and the suite for synthetic output. DP: post-processing.

    The written table has one block per synthesized block. One block for each core is in memory at a time; with a suite,
    the whole table is.

    Raises:
        StageError: the table breaks its contract or the suite; what was charged stays committed, and `resume` continues
            once the suite was changed.
    """

    def compute() -> Iterator[bytes]:
        normalized_counts = load_counts(reference, normalized)
        blocks = reference.load_blocks(synthesized)
        configuration = reference.estimated(normalized_counts.domain)
        counts = released_counts(normalized_counts, configuration)
        domain = counts.domain
        counts_by_label = label_counts(counts)
        contract = records_contract(configuration)
        seed = configuration.synthesize.seed
        types = reference.types
        tables = []

        def decode_block(number: int) -> bytes:
            codes = unpack_codes(blocks[number])
            table = decode_table(
                codes, domain, configuration, seed, number, counts_by_label, types=types
            )
            # The contract is of the declared types, which `typed_table` replaces by those of the source.
            contract.check(table)
            return pack_table(typed_table(table, domain, configuration, types))

        for packed in LocalEngine().map(decode_block, range(len(blocks))):
            yield packed
            if suite is not None:
                tables.append(unpack_table(packed).replace_schema_metadata(None))
        if suite is not None:
            # On the whole table, because a rule of the suite may be about all cells of a column.
            broken = Suite(suite, raw_input=False).broken(pa.concat_tables(tables))
            if broken:
                rules = "; ".join(broken)
                raise StageError(
                    f"decode: the synthetic table does not meet the suite of expectations: {rules}"
                )

    files = [] if suite is None else [suite]
    return reference.checkpoint_blocks("decode", [synthesized, normalized], compute, files)
