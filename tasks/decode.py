"""Stage `decode`: turn synthetic records into a table of the declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from marginweave.base.errors import StageError
from marginweave.base.parallel import LocalEngine
from marginweave.checkpoints.codecs import pack_table, unpack_codes, unpack_table
from marginweave.configuration.release import Configuration
from marginweave.estimate.mixture.linked_rows import unpack_row_models
from marginweave.estimate.mixture.model import unpack_mixture
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Marginals
from marginweave.records.decode import decode_table, label_counts, typed_table
from marginweave.records.nested import with_nested
from marginweave.runs.capabilities import DerivedReference, StageResult

from ..schemas.expectations import Suite
from ..schemas.records import records_contract
from .normalize import load_counts, released_counts
from .stage import stage

if TYPE_CHECKING:
    from pathlib import Path

    from marginweave.records.linked_rows import RowMaker  # numba


@stage("decode")
def decode(
    reference: DerivedReference, parts: dict[str, StageResult], suite: Path | None
) -> StageResult:
    """Write the synthetic table, checked by its contract and the suite for synthetic output. DP: post-processing.

    The written table has one block per synthesized block. One block for each core is in memory at a time; with a suite,
    the whole table is. Where linked tables get rows, each record holds its own, as a list for each table. `parts` has the
    results of `normalize`, `synthesize`, and of the fits if there are any.

    Raises:
        StageError: the table breaks its contract or the suite; what was charged stays committed, and `resume` continues
            once the suite was changed.
    """

    def compute() -> Iterator[bytes]:
        normalized_counts = load_counts(reference, parts["normalize"])
        blocks = reference.load_blocks(parts["synthesize"])
        configuration = reference.estimated(normalized_counts.domain)
        counts = released_counts(normalized_counts, configuration)
        domain = counts.domain
        counts_by_label = label_counts(counts)
        contract = records_contract(configuration)
        seed = configuration.synthesize.seed
        types = reference.types
        makers = _row_makers(reference, parts, normalized_counts, configuration)
        tables = []

        def decode_block(number: int) -> bytes:
            codes = unpack_codes(blocks[number])
            table = decode_table(
                codes, domain, configuration, seed, number, counts_by_label, types=types
            )
            nested = []
            for maker in makers:
                table, rows = maker.with_rows(table, codes, seed, number)
                records_contract(maker.rows_as_records).check(rows.table)
                nested.append(rows)
            # The contract is of the declared types, which `typed_table` replaces by those of the source.
            contract.check(table)
            return pack_table(with_nested(typed_table(table, domain, configuration, types), nested))

        for packed in LocalEngine().map(decode_block, range(len(blocks))):
            yield packed
            if suite is not None:
                records = unpack_table(packed).select(configuration.output_names)
                tables.append(records.replace_schema_metadata(None))
        if suite is not None:
            # On the whole table, because a rule of the suite may be about all cells of a column.
            broken = Suite(suite, raw_input=False).broken(pa.concat_tables(tables))
            if broken:
                rules = "; ".join(broken)
                raise StageError(
                    f"decode: the synthetic table does not meet the suite of expectations: {rules}"
                )

    files = [] if suite is None else [suite]
    inputs = [parts["synthesize"], parts["normalize"]]
    if "fit rows" in parts:
        inputs.append(parts["fit rows"])
    return reference.checkpoint_blocks("decode", inputs, compute, files)


def _row_makers(
    reference: DerivedReference,
    parts: Mapping[str, StageResult],
    counts: Aggregates | Marginals,
    configuration: Configuration,
) -> list[RowMaker]:
    """Return what makes the rows of linked tables, an item for each table that gets some."""
    if "fit rows" not in parts:
        return []
    from marginweave.records.linked_rows import row_makers  # numba

    assert isinstance(counts, Marginals)
    mixture = unpack_mixture(reference.load(parts["fit"]))
    models = unpack_row_models(reference.load(parts["fit rows"]))
    return row_makers(counts, configuration, mixture, models)
