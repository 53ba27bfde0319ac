"""The task of the stage: read the source, hold it against the contract and the suite, checkpoint the raw columns."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.schemas.errors import InputError
from marginweave.tasks.checkpoint.codecs import compact_table, in_blocks, pack_table
from marginweave.tasks.references import RunReference, StageResult
from marginweave.tasks.stage import stage_task
from marginweave.tasks.validate.contract import InputChecks
from marginweave.tasks.validate.expectations import Suite
from marginweave.tasks.validate.source import TableSource


@stage_task("validate", patient=True)
def validate(reference: RunReference) -> StageResult:
    """The declared columns of the source as Arrow tables, block by block.

    A broken contract stops the run before the first draw: a data-dependent stop, told to the operator only.

    Raises:
        InputError: the source or a declared rule is broken, or the source is being changed.
    """
    files = [file for file in reference.suites[:1] if file is not None]

    def compute() -> Iterator[bytes]:
        configuration = reference.configuration
        checks = InputChecks(configuration, Suite(files[0], raw_input=True) if files else None)
        source = TableSource(reference.source, configuration.source)
        state = source.state()
        _check_unchanged(reference, source)
        for block in in_blocks(source.tables(configuration.source_names), configuration.block_rows):
            raw = compact_table(block)
            checks.look_at(raw)
            yield pack_table(raw)
        if source.state() != state:
            raise InputError(_CHANGED)
        _check_unchanged(reference, source)
        checks.refuse_broken()

    return reference.checkpoint_blocks("validate", [reference.manifest.source_digest], compute, files)


_CHANGED = "validate: the source was changed since the run began"


def _check_unchanged(reference: RunReference, source: TableSource) -> None:
    """What is digested is what is parsed: asked before the first row is read and after the last."""
    manifest = reference.manifest
    if not reference.ledger.keys.source_digest(source.chunks()).matches(manifest.release, manifest.source_digest):
        raise InputError(_CHANGED)
