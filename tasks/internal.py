"""The internal comparison: the one stage right of `aggregate` that reads private rows; never for release."""

from __future__ import annotations

from marginweave.base.durable import PRIVATE_MODE, replace_file
from marginweave.checkpoints.codecs import plain_table
from marginweave.configuration.rules.structure import Structure
from marginweave.draws.references import RunReference
from marginweave.evaluate.internal import (
    RawBlocks,
    check_source,
    encoded_rows,
    joined_tables,
    over_one_domain,
    published_configuration,
    published_records,
)
from marginweave.evaluate.metrics import evaluate_internal
from marginweave.evaluate.numbers import NumberTallies, exact_summaries
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.measurements.combinations import Domain
from marginweave.sources.source import TableSource, source_columns

from .stage import stage


@stage("evaluate internally")
def compare_internally(reference: RunReference) -> None:
    """Compare the published synthetic table with the sensitive one and write `internal/evaluation.json` (0600).

    The release is fixed before; that somebody looked is booked in the ledger first, and every later release or synthesis
    of the account is marked. DP: none. Its numbers go to no log, no terminal and no Prefect record.

    Raises:
        InputError: the source is not the one the release was made from.
    """
    manifest, configuration = reference.manifest, published_configuration(reference)
    source = TableSource.of(reference.source, configuration)
    with source.unchanged(f"the source was changed while run {manifest.run} was compared with it"):
        check_source(reference, source)
        reference.ledger.evaluations.record(configuration.dataset, manifest.release)
        present = source_columns(reference.source, configuration.source)
        computed = (configuration.structure or Structure()).computed_among(present)
        raw = RawBlocks(source, configuration, tuple(dict.fromkeys((*configuration.source_names, *computed))))
        numbers = NumberTallies(configuration), NumberTallies(configuration)
        sensitive = joined_tables(encoded_rows(raw, configuration, reference.folder.internal, numbers[0]))
        broken = add_rules([(broken_rules(plain_table(table), configuration), table.num_rows) for table in raw])
    check_source(reference, source)
    place = reference.folder.release / "synthetic.parquet"
    records, broken_made = published_records(place, configuration, numbers[1])
    real, made = over_one_domain(sensitive, records)
    names = tuple(attribute.name for attribute in configuration.attributes)
    evaluation = evaluate_internal(
        real.codes,
        made.codes,
        Domain(names=names, labels=real.labels),
        ordered=configuration.ordered,
        rules=broken_made,
        sensitive_rules=broken,
    )
    if summaries := exact_summaries(*numbers):
        evaluation = evaluation.model_copy(update={"numbers": summaries})
    replace_file(reference.folder.internal_evaluation, evaluation.to_json(), PRIVATE_MODE)
