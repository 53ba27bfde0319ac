"""Stage `encode`: encode the clean records, complete them, and write the codes.

Missing values are imputed at random, and the table gets a public number of records, here and not before: bounds must be known,
and values must be codes. To impute a code is the same as to impute a value and bin it.
"""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.configuration.release import Configuration
from marginweave.domain.membership import check_codes
from marginweave.prepare import codes as coding
from marginweave.prepare.clean import CleanBlocks
from marginweave.prepare.codes import EncodedTable
from marginweave.prepare.encode import encode_blocks
from marginweave.runs.capabilities import RunReference, StageResult

from .stage import stage


@stage("encode")
def encode(reference: RunReference, preprocessed: StageResult) -> StageResult:
    """Write the encoded table, a small unsigned integer for each value; impute missing values and resize where declared."""
    configuration = reference.counted

    def compute() -> Iterator[bytes]:
        clean = CleanBlocks(reference.load_blocks(preprocessed))
        key = reference.key_file.read_bytes()
        tables = encode_blocks(clean, configuration, key)
        return coding.pack_blocks(_check_tables(tables, configuration))

    return reference.checkpoint_blocks(
        "encode", [preprocessed.digest, configuration.digest], compute
    )


def _check_tables(
    tables: Iterator[EncodedTable], configuration: Configuration
) -> Iterator[EncodedTable]:
    """Yield the tables, each after a check of its codes."""
    attributes = (*configuration.attributes, *configuration.indicators)
    for table in tables:
        check_codes(attributes, table.sizes, table.codes, "encode", complete=True)
        yield table
