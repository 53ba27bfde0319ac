"""The task of the stage: encode the clean records, checkpoint the codes."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.contracts import check_codes
from marginweave.tasks.encode.codes import (
    EncodedBlocks,
    EncodedTable,
    encode_table,
    encoded_labels,
    pack_blocks,
    with_labels,
)
from marginweave.tasks.encode.complete import Numbers, complete_blocks
from marginweave.tasks.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.tasks.preprocess.clean import CleanBlock, CleanBlocks
from marginweave.tasks.preprocess.task import open_clean
from marginweave.tasks.references import RunReference, StageResult
from marginweave.tasks.stage import stage_task


@stage_task("encode")
def encode(reference: RunReference, preprocessed: StageResult) -> StageResult:
    """The encoded table, one small unsigned integer a value; missing values imputed and the table resized where declared."""
    configuration = reference.resolved

    def compute() -> Iterator[bytes]:
        clean, key = open_clean(reference, preprocessed), reference.key_file.read_bytes()
        return pack_blocks(_checked(encode_blocks(clean, configuration, key), configuration))

    return reference.checkpoint_blocks("encode", [preprocessed.digest, configuration.digest], compute)


def encode_blocks(clean: CleanBlocks, configuration: Configuration, key: bytes) -> Iterator[EncodedTable]:
    """The encoded records, imputed and resized, block by block, all over the same labels; `configuration` has its bounds.

    DP: stable as `configuration.stability` says.
    """

    def streams(purpose: str, numbers: Numbers) -> RecordWords:
        return RecordWords(words=KeyedBits(key=key, purpose=purpose), records=numbers)

    def encoded(block: CleanBlock) -> tuple[EncodedTable, Numbers]:
        table = with_labels(block.table, labels)
        return encode_table(table, configuration, streams("encode", block.numbers)), block.numbers

    labels = encoded_labels(clean.labels, configuration)
    return complete_blocks(map(encoded, clean), lambda: [block.numbers for block in clean], configuration, streams)


def open_encoded(reference: RunReference, encoded: StageResult) -> EncodedBlocks:
    """The encoded table, block by block. Private."""
    return EncodedBlocks(reference.load_blocks(encoded))


def _checked(tables: Iterator[EncodedTable], configuration: Configuration) -> Iterator[EncodedTable]:
    for table in tables:
        check_codes(configuration.attributes, table.sizes, table.codes, "encode", complete=True)
        yield table
