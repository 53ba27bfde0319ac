"""The task of the stage: synthetic records as a table of the declared columns."""

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
    reference: DerivedReference, synthesized: StageResult, normalized: StageResult, suite: Path | None
) -> StageResult:
    """The synthetic table, held against its contract and the suite for synthetic output. DP: post-processing.

    The blocks are those of `synthesized`, one of them a core in memory at once, unless there is a suite.

    Raises:
        StageError: the table breaks its contract or the suite; what was charged stays committed, and `resume` goes on
            once the suite was changed.
    """

    def compute() -> Iterator[bytes]:
        whole, blocks = load_counts(reference, normalized), reference.load_blocks(synthesized)
        configuration = reference.estimated(whole.domain)
        counts = released_counts(whole, configuration)
        domain, known = counts.domain, label_counts(counts)
        contract, tables = records_contract(configuration), []

        def decoded(block: int) -> bytes:
            codes = unpack_codes(blocks[block])
            seed, types = configuration.synthesize.seed, reference.types
            table = decode_table(codes, domain, configuration, seed, block, known, types=types)
            contract.check(table)
            return pack_table(typed_table(table, domain, configuration, types))

        for packed in LocalEngine().map(decoded, range(len(blocks))):
            yield packed
            if suite is not None:
                tables.append(unpack_table(packed).replace_schema_metadata(None))
        if suite is not None:
            # the whole table, as the suite may have rules about all of a column
            broken = Suite(suite, raw_input=False).broken(pa.concat_tables(tables))
            if broken:
                rules = "; ".join(broken)
                raise StageError(f"decode: the synthetic table does not meet the suite of expectations: {rules}")

    files = [] if suite is None else [suite]
    return reference.checkpoint_blocks("decode", [synthesized, normalized], compute, files)
