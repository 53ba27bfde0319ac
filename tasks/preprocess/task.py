"""Door of the stage: clean the raw columns, checkpoint the clean table."""

from __future__ import annotations

from marginweave.tasks.checkpoint.codecs import pack_table, unpack_table
from marginweave.tasks.door import stage_task
from marginweave.tasks.preprocess.clean import clean_table
from marginweave.tasks.references import RunReference, StageResult


@stage_task("preprocess")
def preprocess(reference: RunReference, validated: StageResult) -> StageResult:
    """The clean table: missing values explicit, numbers inside their bounds."""

    def compute() -> bytes:
        return pack_table(clean_table(unpack_table(reference.load(validated)), reference.configuration))

    return reference.checkpoint("preprocess", [validated.digest], compute)
