"""Renders the pages of a release from its files only: for a new release, and again for a published one.

report.html has neither scripts nor network: what was released, under which guarantee, and how good it is. explore.html has
released counts and synthetic records to look into; it needs no network and no server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.errors import InputError
from marginweave.publish import figures, reader
from marginweave.publish.best import Distribution, best_records, distributions
from marginweave.publish.conclusions import citation, conclusions
from marginweave.publish.explorer import render_explorer
from marginweave.publish.preparation_words import moment_sentences, value_sentences
from marginweave.publish.reader import PublishedRelease, RecordCodes, ShownRecords
from marginweave.publish.synthetic import no_value_sentence
from marginweave.publish.tables import ROW_GROUP
from marginweave.publish.templates import render
from marginweave.publish.wording import reader_warnings
from marginweave.released.evaluation import Evaluation, InternalEvaluation, RecordAgreement
from marginweave.released.statement import MarginalStatement, Mechanism
from marginweave.released.verdict import SetVerdict, UnlistedPairs
from marginweave.texts.sentences import Sentence, report_sentence

MOST_FIGURES = 60
"""Columns that the report has a figure of; the explorer has all."""
_GRADES = {
    "good": ("good", report_sentence("pairs.good")),
    "with care": ("care", report_sentence("pairs.with-care")),
    "not": ("bad", report_sentence("pairs.not")),
}


def release_pages(
    published: PublishedRelease, shown: ShownRecords, evaluation: Evaluation
) -> dict[str, bytes]:
    """Return report.html and explore.html of a release. DP: post-processing.

    Args:
        published: The release.
        shown: What the pages show of its synthetic records.
        evaluation: The content of its evaluation.json.
    """
    return {
        "report.html": render_report(published, shown, evaluation).encode(),
        "explore.html": render_explorer(published, shown).encode(),
    }


def read_pages(place: Path) -> dict[str, bytes]:
    """Return `release_pages` of the release in folder `place`: the bytes that were published with it. DP: post-processing.

    Raises:
        InputError: it is not there, or not complete.
    """
    return release_pages(*_read(place))


def internal_report(place: Path, internal: InternalEvaluation) -> bytes:
    """Return the report of the release in `place`, with the comparison `internal`. DP: none: for `internal/` only.

    Raises:
        InputError: it is not there, or not complete.
    """
    published, shown, evaluation = _read(place)
    return render_report(published, shown, evaluation, internal).encode()


def _read(place: Path) -> tuple[PublishedRelease, ShownRecords, Evaluation]:
    """Return the release, what is shown of its records, read block by block, and its evaluation."""
    published = PublishedRelease.read(place)
    domain = published.aggregates.domain
    configuration = published.configuration

    def codes_of(batch: pa.RecordBatch) -> RecordCodes:
        return reader.record_codes(pa.Table.from_batches([batch]), domain, configuration)

    try:
        with pq.ParquetFile(place / "synthetic.parquet") as file:
            nothing = codes_of(pa.RecordBatch.from_pylist([], file.schema_arrow))
            blocks = chain([nothing], map(codes_of, file.iter_batches(ROW_GROUP)))
            shown = reader.show_records(blocks, file.metadata.num_rows, domain, configuration)
        evaluation = Evaluation.from_json((place / "evaluation.json").read_bytes())
    except (OSError, pa.ArrowInvalid, ValueError):
        raise InputError(
            f"{place} does not hold a complete release (synthetic.parquet and evaluation.json)"
        ) from None
    return published, shown, evaluation


def render_report(
    published: PublishedRelease,
    shown: ShownRecords,
    evaluation: Evaluation,
    internal: InternalEvaluation | None = None,
) -> str:
    """Return the page as HTML text, the same for the same release.

    Args:
        published: The release.
        shown: What is shown of its synthetic records.
        evaluation: The content of its evaluation.json; a section without numbers is left out.
        internal: The comparison with the sensitive table, for the internal version of the page, which says so everywhere.

    Returns:
        HTML. DP: post-processing of released counts and records; with `internal` none.
    """
    configuration = published.configuration
    statement = published.statement
    titled = configuration.titled_names
    scale = published.total / shown.records if shown.records else 1.0
    columns = distributions(published, shown, scale)
    warnings = reader_warnings(
        configuration, published.aggregates, statement.mechanisms, statement.not_measured or ()
    )
    columns_shown = _columns_to_show(columns, evaluation)
    return render(
        "report.html.j2",
        published=published,
        shown=shown,
        evaluation=evaluation,
        internal=internal,
        warnings=warnings,
        observer=math.ceil(100 * statement.observer - 1e-9),
        shares=_shares(statement.mechanisms),
        total=best_records(published),
        scale=scale,
        marginals=_by_length(statement.marginals or ()),
        columns=[
            (column, figures.distribution_figure(column, f"column-{j}"))
            for j, column in enumerate(columns_shown)
        ],
        other_columns=len(columns) - len(columns_shown),
        conclusions=conclusions(published, columns, evaluation.verdict),
        citation=citation(configuration, statement),
        no_value=no_value_sentence,
        moments=moment_sentences(configuration, statement),
        value_sentences=value_sentences,
        pairs=_pairs(evaluation, titled),
        figures=_quality_figures(evaluation, "quality", report_sentence("figure.released"), titled),
        internal_figures=internal
        and _quality_figures(internal, "internal", report_sentence("figure.sensitive"), titled),
    )


def _columns_to_show(
    columns: Sequence[Distribution], evaluation: Evaluation
) -> Sequence[Distribution]:
    """Return the columns that the report has a figure of, in declared order: of many those expected to be farthest off."""
    if len(columns) <= MOST_FIGURES:
        return columns
    errors = {row.attributes: row.error for row in evaluation.verdict.sets}
    farthest = sorted(columns, key=lambda column: -(errors.get((column.name,)) or 0.0))
    names = {column.name for column in farthest[:MOST_FIGURES]}
    return [column for column in columns if column.name in names]


@dataclass(frozen=True, kw_only=True)
class PairGroup:
    """Pairs of columns with one grade, or that nothing measured.

    `kind` is the class of its title on the page. `unlisted` are pairs that the verdict does not list.
    """

    kind: str
    title: Sentence
    rows: Sequence[SetVerdict]
    unlisted: Sequence[UnlistedPairs]

    @property
    def number(self) -> int:
        """How many pairs these are."""
        return len(self.rows) + self.number_unlisted

    @property
    def number_unlisted(self) -> int:
        """How many of them are not listed."""
        return sum(group.pairs for group in self.unlisted)


def _pairs(evaluation: Evaluation, titled: Mapping[str, str]) -> list[PairGroup]:
    """Return the pairs of columns by grade.

    Good pairs begin with the best, those of other grades with the worst; pairs that nothing measured are the last group.
    """
    pairs = []
    for verdict in evaluation.verdict.sets:
        if len(verdict.attributes) == 2:
            names = [titled[name] for name in verdict.attributes]
            pairs.append(verdict.model_copy(update={"attributes": names}))
    measured = [pair for pair in pairs if pair.error is not None]
    measured.sort(key=lambda pair: pair.error or 0.0)
    unlisted = evaluation.verdict.unlisted or ()
    known = [group for group in unlisted if group.least_error is not None]
    groups: list[PairGroup] = []
    for grade, (kind, title) in _GRADES.items():
        graded = [pair for pair in measured if pair.grade == grade]
        groups.append(
            PairGroup(
                kind=kind,
                title=title,
                rows=graded if kind == "good" else graded[::-1],
                unlisted=[group for group in known if group.grade == grade],
            )
        )
    unknown = PairGroup(
        kind="unknown",
        title=report_sentence("pairs.not-measured"),
        rows=[pair for pair in pairs if pair.error is None],
        unlisted=[group for group in unlisted if group.least_error is None],
    )
    return [group for group in (*groups, unknown) if group.number]


def _quality_figures(
    evaluation: RecordAgreement,
    name: str,
    reference: Sentence,
    titled: Mapping[str, str],
) -> dict[str, Any]:
    """Return the figures of an evaluation by section."""
    sections: dict[str, Any] = {}
    if any(bucket.proportional_error is not None for bucket in evaluation.by_count):
        sections["errors"] = figures.error_figure(evaluation.by_count, f"{name}-errors")
    if evaluation.marginals:
        sections["worst"] = figures.worst_marginals_figure(evaluation.marginals, f"{name}-worst")
    measure = evaluation.association.cramers_v
    names = [titled.get(column, column) for column in measure.names]
    if names:
        heat_maps = []
        for side, matrix, title in (
            ("synthetic", measure.synthetic, report_sentence("figure.synthetic")),
            ("reference", measure.reference, reference),
        ):
            figure = figures.association_figure(names, matrix, title, f"{name}-{side}")
            heat_maps.append((title, figure, figures.strongest_pairs(names, matrix)))
        sections["association"] = heat_maps
    return sections


def _by_length(marginals: Sequence[MarginalStatement]) -> list[tuple[int, list[MarginalStatement]]]:
    """Return marginals grouped by their number of attributes, the fewest first."""
    groups: dict[int, list[MarginalStatement]] = {}
    for marginal in marginals:
        groups.setdefault(len(marginal.attributes), []).append(marginal)
    return sorted(groups.items())


def _shares(mechanisms: Sequence[Mechanism]) -> list[float] | None:
    """Return each draw's share of mu², or of plain epsilon where all are charged in that; None where both are charged."""
    mu2 = [float(row.mu2) for row in mechanisms]
    plain_epsilon = [float(row.plain_epsilon) for row in mechanisms]
    total_mu2 = sum(mu2)
    total_epsilon = sum(plain_epsilon)
    if total_mu2 > 0 and total_epsilon <= 0:
        return [amount / total_mu2 for amount in mu2]
    if total_epsilon > 0 and total_mu2 <= 0:
        return [amount / total_epsilon for amount in plain_epsilon]
    return None
