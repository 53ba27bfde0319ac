"""The task of the stage: encode the clean records, and complete them; checkpoint the codes.

Missing values become draws, and the table gets a public number of records, once bounds are known and values are codes; a draw
that is binned is a draw of its bin.
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
    """The encoded table, one small unsigned integer a value; missing values imputed and the table resized where declared."""
    configuration = reference.counted

    def compute() -> Iterator[bytes]:
        clean, key = CleanBlocks(reference.load_blocks(preprocessed)), reference.key_file.read_bytes()
        return coding.pack_blocks(_checked(encode_blocks(clean, configuration, key), configuration))

    return reference.checkpoint_blocks("encode", [preprocessed.digest, configuration.digest], compute)


def _checked(tables: Iterator[EncodedTable], configuration: Configuration) -> Iterator[EncodedTable]:
    for table in tables:
        attributes = (*configuration.attributes, *configuration.indicators)
        check_codes(attributes, table.sizes, table.codes, "encode", complete=True)
        yield table
