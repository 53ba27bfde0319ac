"""Door of the stage: read the source, hold it against the contract and the suite, checkpoint the raw columns."""

from __future__ import annotations

from marginweave.schemas.errors import InputError
from marginweave.schemas.table import check_contract, input_schema
from marginweave.tasks.checkpoint.codecs import pack_table
from marginweave.tasks.door import stage_task
from marginweave.tasks.references import RunReference, StageResult
from marginweave.tasks.validate.expectations import check_suite
from marginweave.tasks.validate.source import load_source


@stage_task("validate", patient=True)
def validate(reference: RunReference) -> StageResult:
    """The declared columns of the source as an Arrow table.

    A broken contract stops the run before the first draw: a data-dependent stop, told to the operator only.

    Raises:
        InputError: the source or a declared rule is broken.
    """

    def compute() -> bytes:
        import pandas as pd

        configuration = reference.configuration
        source = load_source(reference.source, configuration.source)
        if reference.ledger.source_digest(source.chunks()) != reference.manifest.source_digest:
            raise InputError("validate: the source was changed since the run began")
        raw = source.table(configuration.source_names)
        frame = raw.to_pandas(types_mapper=pd.ArrowDtype)
        check_contract(input_schema(configuration), frame[list(configuration.names)], "validate")
        suite = reference.suites[0]
        if suite is not None:
            broken = [result for result in check_suite(suite, frame, raw_input=True) if not result.success]
            if broken:
                rules = "; ".join(f"column {b.column!r} breaks {b.expectation}" for b in broken)
                raise InputError(f"validate: the source does not meet the suite of expectations: {rules}")
        return pack_table(raw)

    files = [file for file in reference.suites[:1] if file is not None]
    return reference.checkpoint("validate", [reference.manifest.source_digest], compute, files)
