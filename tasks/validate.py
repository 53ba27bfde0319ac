"""The task of the stage: read the source, hold it against its contract and a suite of expectations, checkpoint its columns."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.base.errors import InputError
from marginweave.checkpoints.codecs import compact_table, in_blocks, pack_table
from marginweave.drafts.tally import Usability
from marginweave.runs.capabilities import RunReference, StageResult
from marginweave.sources.source import TableSource

from ..schemas.expectations import Suite
from ..schemas.source import source_contract
from .stage import stage


@stage("validate", patient=True)
def validate(reference: RunReference) -> StageResult:
    """The declared columns of the source as Arrow tables, block by block.

    A broken contract stops the run before the first draw: a data-dependent stop, shown to the operator only. So does a table
    that cannot be used as it is declared, where a person has started the run or the configuration asks for it.

    Raises:
        InputError: the source or a declared rule is broken, the table is not usable, or the source is being changed.
    """
    files = [file for file in reference.suites[:1] if file is not None]

    def compute() -> Iterator[bytes]:
        configuration = reference.configuration
        contract, suite = source_contract(configuration), Suite(files[0], raw_input=True) if files else None
        rules: set[tuple[str, str]] = set()
        expectations: dict[str, None] = {}
        usability = Usability(configuration)
        source = TableSource.of(reference.source, configuration)
        with source.unchanged(_CHANGED):
            _check_unchanged(reference, source)
            for block in in_blocks(source.tables(configuration.source_names), configuration.block_rows):
                raw = compact_table(block)
                # all rules look at one row, so blocks are held against them one by one
                rules |= contract.broken(raw.select(list(configuration.raw_names)))
                if reference.stops:
                    usability.add(raw)
                if suite is not None:
                    expectations |= dict.fromkeys(suite.broken(raw))
                yield pack_table(raw)
        _check_unchanged(reference, source)
        contract.refuse(rules)
        if expectations:
            broken = "; ".join(expectations)
            raise InputError(f"validate: the source does not meet the suite of expectations: {broken}")
        if reference.stops:
            usability.check(reference.manifest.written)

    return reference.checkpoint_blocks("validate", [reference.manifest.source_digest], compute, files)


_CHANGED = "validate: the source was changed since the run began"


def _check_unchanged(reference: RunReference, source: TableSource) -> None:
    """What is digested is what is parsed: asked before the first row is read and after the last."""
    if not reference.is_source(source.chunks()):
        raise InputError(_CHANGED)
