"""Stage `validate`: read the source, check its contract and a suite of expectations, and write its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from marginweave.base.errors import InputError
from marginweave.checkpoints.codecs import compact_table, in_blocks, pack_table
from marginweave.linked.source import ReleaseSource
from marginweave.linked.usability import LinkedUsability
from marginweave.runs.capabilities import RunReference, StageResult

from ..schemas.expectations import Suite
from ..schemas.source import source_contract
from .stage import stage


@stage("validate", patient=True)
def validate(reference: RunReference) -> StageResult:
    """Write the declared columns of the source as Arrow tables, block by block.

    A broken contract stops the run before the first draw: a data-dependent stop, shown to the operator only. So does a table
    that cannot be used as it is declared, where a person has started the run or the configuration asks for it.

    Raises:
        InputError: the source or a declared rule is broken, the table is not usable, or the source is being changed.
    """
    table_suite, _ = reference.suites  # the second is that of the records
    files = [] if table_suite is None else [table_suite]

    def compute() -> Iterator[bytes]:
        configuration = reference.configuration
        contract = source_contract(configuration)
        suite = Suite(table_suite, raw_input=True) if table_suite is not None else None
        rules: set[tuple[str, str]] = set()
        expectations: dict[str, None] = {}
        source = ReleaseSource.of(reference.places, configuration)
        usability = LinkedUsability(configuration, unlinked=source.unlinked)
        if reference.stops:
            source = replace(source, watch=usability.add_linked)
        # The states of the files before and after show a change while rows are read, even one that is undone; they miss a
        # change before. The digest shows any change before the first row, or before the last check, that is not undone.
        with source.unchanged(_CHANGED):
            _check_digest(reference, source)
            flags = configuration.undeclared_flags
            nested = configuration.nested_names
            tables = source.tables((*configuration.source_names, *flags, *nested))
            for block in in_blocks(tables, configuration.block_rows):
                raw = compact_table(block)
                # Every rule is about a single row, so each block can be checked by itself.
                rules |= contract.broken(raw.select(list(configuration.raw_names)))
                plain = raw.drop_columns(nested)
                if reference.stops:
                    usability.add(plain)
                if suite is not None:
                    expectations |= dict.fromkeys(suite.broken(plain.drop_columns(flags)))
                yield pack_table(raw)
        _check_digest(reference, source)
        contract.refuse(rules)
        if expectations:
            broken = "; ".join(expectations)
            raise InputError(
                f"validate: the source does not meet the suite of expectations: {broken}"
            )
        if reference.stops:
            usability.check(reference.manifest.written)

    return reference.checkpoint_blocks(
        "validate", [reference.manifest.source_digest], compute, files
    )


_CHANGED = "validate: the source was changed since the run began"


def _check_digest(reference: RunReference, source: ReleaseSource) -> None:
    """Refuse a source that changed: checked before the first row is read and after the last, so that digest and rows agree."""
    if not reference.is_source(source.contents()):
        raise InputError(_CHANGED)
