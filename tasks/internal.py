"""Stage `evaluate internally`: the only stage after `aggregate` that reads private rows; never for release."""

from __future__ import annotations

from marginweave.base.durable import PRIVATE_MODE, replace_file
from marginweave.base.errors import InputError
from marginweave.checkpoints.codecs import plain_table
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.structure import Structure
from marginweave.domain.labels import Domain
from marginweave.evaluate.internal import (
    RawBlocks,
    encoded_rows,
    joined_tables,
    over_one_domain,
    published_records,
)
from marginweave.evaluate.metrics import evaluate_internal
from marginweave.evaluate.numbers import NumberTallies, exact_summaries
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.linked.source import ReleaseSource
from marginweave.released.statement import PrivacyStatement
from marginweave.runs.capabilities import RunReference

from .stage import stage


@stage("evaluate internally")
def compare_internally(reference: RunReference) -> None:
    """Compare the published synthetic table with the sensitive one and write `internal/evaluation.json` (0600).

    The release cannot change any more. The ledger records first that somebody looked, and every later release or synthesis of
    the account is marked. DP: none. Its numbers go to no log, no terminal and no Prefect record.

    Raises:
        InputError: the source is not the one the release was made from.
    """
    manifest = reference.manifest
    configuration = _published_configuration(reference)
    real_tallies = NumberTallies(configuration)
    synthetic_tallies = NumberTallies(configuration)
    source = ReleaseSource.of(reference.places, configuration)
    with source.unchanged(f"the source was changed while run {manifest.run} was compared with it"):
        _check_source(reference, source)
        reference.ledger.evaluations.record(configuration.dataset, manifest.release)
        computed = (configuration.structure or Structure()).computed_among(source.columns())
        names_to_read = tuple(dict.fromkeys((*configuration.source_names, *computed)))
        raw = RawBlocks(source, configuration, names_to_read)
        rows = joined_tables(
            encoded_rows(raw, configuration, reference.folder.internal, real_tallies)
        )
        broken = [
            (broken_rules(plain_table(table), configuration), table.num_rows) for table in raw
        ]
    _check_source(reference, source)
    place = reference.folder.release / "synthetic.parquet"
    records, broken_by_records = published_records(place, configuration, synthetic_tallies)
    real, synthetic = over_one_domain(rows, records)
    names = tuple(attribute.name for attribute in configuration.attributes)
    evaluation = evaluate_internal(
        real.codes,
        synthetic.codes,
        Domain(names=names, labels=real.labels),
        ordered=configuration.ordered,
        rules=broken_by_records,
        sensitive_rules=add_rules(broken),
    )
    summaries = exact_summaries(real_tallies, synthetic_tallies)
    if summaries:
        evaluation = evaluation.model_copy(update={"numbers": summaries})
    replace_file(reference.folder.internal_evaluation, evaluation.to_json(), PRIVATE_MODE)


def _published_configuration(reference: RunReference) -> Configuration:
    """Return the configuration with the bounds in the published files: the checkpoints of a finished run are deleted."""
    statement = PrivacyStatement.from_json((reference.folder.release / "privacy.json").read_bytes())
    resolved = reference.configuration.with_bounds(statement.bounds)
    return resolved.with_undeclared(statement.released_domain.with_undeclared)


def _check_source(reference: RunReference, source: ReleaseSource) -> None:
    """Refuse a source unless `source` holds the bytes that the release was made from."""
    if not reference.is_source(source.contents()):
        raise InputError(
            f"the source is not the one that run {reference.manifest.run} was made from"
        )
