"""Door of the stage: encode the clean table, checkpoint the codes."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.schemas.contracts import check_codes
from marginweave.tasks.budget.randomness import KeyedBits
from marginweave.tasks.checkpoint.codecs import unpack_table
from marginweave.tasks.door import stage_task
from marginweave.tasks.encode.blocks import EncodedBlocks, pack_blocks
from marginweave.tasks.encode.codes import encode_table
from marginweave.tasks.encode.complete import complete_table
from marginweave.tasks.references import RunReference, StageResult


@stage_task("encode")
def encode(reference: RunReference, preprocessed: StageResult) -> StageResult:
    """The encoded table, one small unsigned integer a value; missing values imputed and the table resized where declared."""
    configuration = reference.resolved

    def compute() -> Iterator[bytes]:
        key = reference.key_file.read_bytes()
        table = encode_table(
            unpack_table(reference.load(preprocessed)), configuration, KeyedBits(key=key, purpose="encode")
        )
        table = complete_table(table, configuration, lambda purpose: KeyedBits(key=key, purpose=purpose))
        check_codes(configuration.attributes, table.sizes, table.codes, "encode", complete=True)
        return pack_blocks([table], lambda: table.labels)

    return reference.checkpoint_blocks("encode", [preprocessed.digest, configuration.digest], compute)


def open_encoded(reference: RunReference, encoded: StageResult) -> EncodedBlocks:
    """The encoded table, block by block. Private."""
    return EncodedBlocks(reference.load_blocks(encoded))
