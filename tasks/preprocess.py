"""Stage `preprocess`: clean the raw columns, with the rows of each subject bounded or joined."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.checkpoints.codecs import Unpacked, unpack_table
from marginweave.prepare.clean import CleanBlock, pack_clean
from marginweave.prepare.rows import prepare_blocks
from marginweave.runs.capabilities import RunReference, StageResult

from ..schemas.clean import clean_contract
from .stage import stage


@stage("preprocess")
def preprocess(reference: RunReference, validated: StageResult) -> StageResult:
    """Write the clean table: at most theta rows or one record of each subject, missing values explicit, numbers in bounds."""
    configuration = reference.configuration
    folder = reference.folder.private
    contract = clean_contract(configuration)

    def blocks() -> Iterator[CleanBlock]:
        raw = Unpacked(unpack_table, reference.load_blocks(validated))
        for block in prepare_blocks(raw, configuration, reference.key_file.read_bytes(), folder):
            contract.check(block.table.select(list(configuration.names)))
            yield block

    return reference.checkpoint_blocks(
        "preprocess", [validated.digest], lambda: pack_clean(blocks())
    )
