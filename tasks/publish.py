"""Stage `publish`: write the files of `release/`, the only folder from which anything may leave."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.answers.tables import released_tables
from marginweave.base.durable import PRIVATE_MODE, at_place, read_file, replace_file
from marginweave.base.errors import StageError
from marginweave.base.parallel import LocalEngine
from marginweave.checkpoints.codecs import Unpacked, unpack_codes, unpack_table
from marginweave.configuration.release import Configuration
from marginweave.estimate.earlier import earlier_files
from marginweave.estimate.intervals import Intervals, marginal_intervals, release_intervals
from marginweave.estimate.marginals import listed_counts
from marginweave.estimate.mixture.linked_rows import RowModel, row_gaps, unpack_row_models
from marginweave.estimate.mixture.model import unpack_mixture
from marginweave.measurements.plan import Plan
from marginweave.observations.combinations import Aggregates
from marginweave.observations.payloads import unpack_aggregates
from marginweave.observations.tables import Marginals
from marginweave.publish.croissant import CROISSANT, croissant
from marginweave.publish.fitted import MODEL, model_table
from marginweave.publish.linked_tables import linked_table
from marginweave.publish.measured_tables import marginal_facts, measurements_table
from marginweave.publish.pages import internal_report, release_pages
from marginweave.publish.reader import PublishedRelease, show_records
from marginweave.publish.statement import privacy_statement, with_types
from marginweave.publish.synthetic import row_files, write_records
from marginweave.publish.tables import counts_of_others, counts_table, csv_bytes, parquet_bytes
from marginweave.released.evaluation import Evaluation, InternalEvaluation
from marginweave.released.statement import MarginalsStatement, PrivacyStatement, ReleaseFacts
from marginweave.runs.capabilities import DerivedReference, RunReference, StageResult
from marginweave.texts.sentences import counts_sentence

from .normalize import load_counts, released_counts
from .stage import stage


@stage("publish", patient=True)
def publish(
    reference: DerivedReference,
    place: Path,
    plan: Plan,
    parts: dict[str, StageResult],
    release: ReleaseFacts,
) -> dict[str, str]:
    """Write the files of the release to `place`, a folder of this attempt, and return their names with their SHA-256.

    The folder becomes `release/` once the ledger has the digests. `parts` has the results of `evaluate` and of its inputs;
    `release` has the identity of the release. DP: post-processing.
    """
    configuration = reference.configuration
    normalized = load_counts(reference, parts["normalize"])
    evaluation = Evaluation.from_json(reference.load(parts["evaluate"]))
    aggregates, intervals, counts, marginals = counts_and_marginals(
        reference, normalized, parts["collect"]
    )
    bounds = reference.released_bounds
    statement_without_types = privacy_statement(
        configuration, plan, aggregates, release, bounds, evaluation.summary, marginals=marginals
    )
    statement = with_types(statement_without_types, reference.types, configuration)
    published = _as_published(reference, normalized, aggregates, intervals, statement)
    blocks = Unpacked(unpack_codes, reference.load_blocks(parts["synthesize"]))
    resolved = reference.estimated(aggregates.domain)
    shown_records = show_records(blocks, evaluation.records, aggregates.domain, resolved)
    files = {
        **counts,
        **_model_file(reference, parts, normalized),
        "evaluation.json": evaluation.to_json(),
        "privacy.json": statement.to_json(),
        **dict(earlier_files(configuration, reference.read_kept)),
        **release_pages(published, shown_records, evaluation),
    }
    with at_place(place, "created"):
        place.mkdir(exist_ok=True)
    for name, content in files.items():
        replace_file(place / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    decoded = reference.load_blocks(parts["decode"])

    def tables() -> Iterator[pa.Table]:
        # Blocks are verified when they are read: on all cores.
        return LocalEngine().map(lambda number: unpack_table(decoded[number]), range(len(decoded)))

    gaps = row_gaps(resolved, _row_models(reference, parts))
    digests |= write_records(place, tables, resolved, reference.types, gaps)
    digests[CROISSANT] = _describe(place, resolved, statement, digests, gaps)
    return {f"release/{name}": digest for name, digest in digests.items()}


def _describe(
    place: Path,
    configuration: Configuration,
    statement: PrivacyStatement,
    digests: dict[str, str],
    row_gaps: Mapping[str, Collection[str]],
) -> str:
    """Write the Croissant description of the files, and return its SHA-256."""
    schema = pq.read_schema(place / "synthetic.parquet")
    rows = {
        name: (pq.read_schema(place / row_files(name)[0]), configuration.of_rows(name, gaps))
        for name, gaps in row_gaps.items()
    }
    description = croissant(configuration, statement, schema, digests, rows)
    replace_file(place / CROISSANT, description)
    return hashlib.sha256(description).hexdigest()


def _as_published(
    reference: DerivedReference,
    normalized: Aggregates | Marginals,
    aggregates: Aggregates,
    intervals: tuple[Intervals, ...],
    statement: PrivacyStatement,
) -> PublishedRelease:
    """Return the release as a reader gets it from its files: its pages are made of that."""
    measured = None
    resolved = reference.estimated(aggregates.domain)
    if isinstance(normalized, Marginals):
        measured, _ = released_tables(
            normalized, reference.configuration, resolved, reference.read_kept
        )
    return PublishedRelease(
        configuration=resolved,
        aggregates=aggregates,
        intervals=intervals,
        statement=statement,
        measured=measured,
    )


def _model_file(
    reference: DerivedReference,
    parts: Mapping[str, StageResult],
    normalized: Aggregates | Marginals,
) -> dict[str, bytes]:
    if "fit" not in parts:
        return {}
    resolved = reference.estimated(normalized.domain)
    mixture = unpack_mixture(reference.load(parts["fit"]))
    table = model_table(mixture, normalized, resolved, _row_models(reference, parts))
    return {MODEL: parquet_bytes(table)}


def _row_models(
    reference: DerivedReference, parts: Mapping[str, StageResult]
) -> dict[str, RowModel]:
    """Return what the rows of linked tables are like, by the names of the tables that get rows."""
    if "fit rows" not in parts:
        return {}
    return unpack_row_models(reference.load(parts["fit rows"]))


def counts_and_marginals(
    reference: DerivedReference, normalized: Aggregates | Marginals, collected: StageResult
) -> tuple[Aggregates, tuple[Intervals, ...], dict[str, bytes], MarginalsStatement]:
    """Return the counts for the pages, the files of all counts, and what privacy.json says about marginals.

    Returns:
        Normalized counts as the pages have them; intervals of k-tuples, an item for each length, none for marginals; the files
        by name; the statement of marginals.
    """
    configuration = reference.estimated(normalized.domain)
    files: dict[str, bytes] = {}
    statement = MarginalsStatement()
    aggregates = released_counts(normalized, configuration)
    if not isinstance(normalized, Marginals):
        intervals = release_intervals(
            aggregates, unpack_aggregates(reference.load(collected)), configuration
        )
        remarks = _remarks(configuration, aggregates.bounds)
        table = counts_table(
            aggregates,
            intervals,
            configuration.longest,
            besides=counts_of_others(configuration),
            remarks=remarks,
        )
    else:
        listed, number_left_out = listed_counts(aggregates)
        intervals = marginal_intervals(listed, normalized, configuration)
        table = counts_table(
            listed,
            intervals,
            configuration.longest,
            number_left_out,
            besides=counts_of_others(configuration),
            coarse=bool(normalized.coarse),
            remarks=_remarks(configuration, {}),
        )
        files = {
            "measurements.parquet": parquet_bytes(measurements_table(normalized, configuration))
        }
        aggregates, _ = listed_counts(aggregates, 1)
        statement = marginal_facts(normalized, configuration)
        files |= _linked_files(normalized, configuration)
        intervals = ()
    files |= {
        "aggregates.parquet": parquet_bytes(table),
        "aggregates.csv": csv_bytes(table, configuration.publish.csv),
    }
    return aggregates, intervals, files, statement


def _linked_files(normalized: Marginals, configuration: Configuration) -> dict[str, bytes]:
    """Return the files of the histograms of linked tables; none where no such table was counted."""
    if not normalized.linked:
        return {}
    table = linked_table(normalized.linked)
    return {
        "linked.parquet": parquet_bytes(table),
        "linked.csv": csv_bytes(table, configuration.publish.csv),
    }


def _remarks(configuration: Configuration, bounds: Mapping[int, int]) -> list[str]:
    """Return what the table of counts says of all of them: what they are of, and where values beyond bounds are."""
    remarks = []
    if configuration.earlier:
        remarks.append(str(counts_sentence("key.records-alone")))
    note = configuration.count_note(bounds)
    if note:
        remarks.append(note)
    if any(map(configuration.clamped_ends, configuration.names)):
        remarks.append(str(counts_sentence("key.clamped")))
    return remarks


@stage("report internally", patient=True)
def report_internally(reference: RunReference) -> None:
    """Write `internal/report.html` (0600) from the release and `internal/evaluation.json`. DP: none.

    Raises:
        StageError: there is no internal evaluation.
    """
    evaluation = read_file(reference.folder.internal_evaluation)
    if evaluation is None:
        raise StageError(f"{reference.folder.internal_evaluation} is missing")
    page = internal_report(reference.folder.release, InternalEvaluation.from_json(evaluation))
    replace_file(reference.folder.internal_report, page, PRIVATE_MODE)
