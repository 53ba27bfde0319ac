"""The pages of a release, from what is in it alone: written with it, and written anew from a published one.

report.html has neither scripts nor network: what was released, under which guarantee, and how good it is. explore.html has
released counts and synthetic records to look into; it needs no network and no server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.errors import InputError
from marginweave.publish import figures, reader
from marginweave.publish.best import best_records, distributions
from marginweave.publish.conclusions import citation, conclusions
from marginweave.publish.explorer import render_explorer
from marginweave.publish.reader import PublishedRelease, RecordCodes, ShownRecords
from marginweave.publish.synthetic import missing_words
from marginweave.publish.tables import ROW_GROUP
from marginweave.publish.templates import render
from marginweave.publish.wording import reader_warnings
from marginweave.released.evaluation import Evaluation, InternalEvaluation, RecordAgreement
from marginweave.released.statement import MarginalStatement, Mechanism
from marginweave.released.verdict import SetVerdict

_GRADES = {"good": ("good", "Good"), "with care": ("care", "With care"), "not": ("bad", "Do not use")}


def release_pages(published: PublishedRelease, shown: ShownRecords, evaluation: Evaluation) -> dict[str, bytes]:
    """report.html and explore.html of a release, what they show of its records, and its evaluation. DP: post-processing."""
    report, explorer = render_report(published, shown, evaluation), render_explorer(published, shown)
    return {"report.html": report.encode(), "explore.html": explorer.encode()}


def read_pages(place: Path) -> dict[str, bytes]:
    """`release_pages` of the release in folder `place`; the bytes that were published with it. DP: post-processing.

    Raises:
        InputError: it is not there, or not complete.
    """
    return release_pages(*_read(place))


def internal_report(place: Path, internal: InternalEvaluation) -> bytes:
    """The report of the release in folder `place` with the comparison `internal` in it. DP: none: for `internal/` only.

    Raises:
        InputError: it is not there, or not complete.
    """
    published, shown, evaluation = _read(place)
    return render_report(published, shown, evaluation, internal).encode()


def _read(place: Path) -> tuple[PublishedRelease, ShownRecords, Evaluation]:
    """The release, what is shown of its records, read block by block, and its evaluation."""
    published = PublishedRelease.read(place)
    domain, configuration = published.aggregates.domain, published.configuration

    def codes_of(batch: pa.RecordBatch) -> RecordCodes:
        return reader.record_codes(pa.Table.from_batches([batch]), domain, configuration)

    try:
        with pq.ParquetFile(place / "synthetic.parquet") as file:
            nothing = codes_of(pa.RecordBatch.from_pylist([], file.schema_arrow))
            blocks = chain([nothing], map(codes_of, file.iter_batches(ROW_GROUP)))
            shown = reader.show_records(blocks, file.metadata.num_rows, domain, configuration)
        evaluation = Evaluation.from_json((place / "evaluation.json").read_bytes())
    except (OSError, pa.ArrowInvalid, ValueError):
        raise InputError(f"{place} does not hold a complete release (synthetic.parquet and evaluation.json)") from None
    return published, shown, evaluation


def render_report(
    published: PublishedRelease, shown: ShownRecords, evaluation: Evaluation, internal: InternalEvaluation | None = None
) -> str:
    """The page as HTML text, the same for the same release.

    Args:
        published: The release.
        shown: What is shown of its synthetic records.
        evaluation: The content of its evaluation.json; a section without numbers is left out.
        internal: The comparison with the sensitive table, for the page's internal twin alone, which says so everywhere.

    Returns:
        HTML. DP: post-processing of released counts and records; with `internal` none.
    """
    statement, aggregates, titled = published.statement, published.aggregates, published.configuration.titled_names
    scale = published.total / shown.records if shown.records else 1.0
    columns = distributions(published, shown, scale)
    return render(
        "report.html.j2",
        published=published,
        shown=shown,
        evaluation=evaluation,
        internal=internal,
        warnings=reader_warnings(
            published.configuration, aggregates, statement.mechanisms, statement.not_measured or ()
        ),
        observer=math.ceil(100 * statement.observer - 1e-9),
        shares=_shares(statement.mechanisms),
        total=best_records(published),
        scale=scale,
        marginals=_by_length(statement.marginals or ()),
        columns=[(c, figures.distribution_figure(c, f"column-{j}")) for j, c in enumerate(columns)],
        conclusions=conclusions(published, columns, evaluation.verdict),
        citation=citation(published.configuration, statement),
        missing_words=missing_words,
        pairs=_pairs(evaluation, titled),
        figures=_quality_figures(evaluation, "quality", "Released counts", titled),
        internal_figures=internal and _quality_figures(internal, "internal", "Sensitive table", titled),
    )


def _pairs(evaluation: Evaluation, titled: Mapping[str, str]) -> list[tuple[str, str, list[SetVerdict]]]:
    """The pairs of each grade: the best of the good first, of all others the worst, and those that nothing measured."""
    sets = [one for one in evaluation.verdict.sets if len(one.attributes) == 2]
    rows = [one.model_copy(update={"attributes": [titled[name] for name in one.attributes]}) for one in sets]
    known = sorted((one for one in rows if one.error is not None), key=lambda one: one.error or 0.0)
    found = [(*words, [one for one in known if one.grade == grade]) for grade, words in _GRADES.items()]
    found = [(kind, words, some if kind == "good" else some[::-1]) for kind, words, some in found]
    found.append(("unknown", "Not measured", [one for one in rows if one.error is None]))
    return [(kind, words, some) for kind, words, some in found if some]


def _quality_figures(
    evaluation: RecordAgreement, name: str, reference: str, titled: Mapping[str, str]
) -> dict[str, Any]:
    """The figures of what an evaluation has, by section."""
    found: dict[str, Any] = {}
    if any(bucket.proportional_error is not None for bucket in evaluation.by_count):
        found["errors"] = figures.error_figure(evaluation.by_count, f"{name}-errors")
    if evaluation.marginals:
        found["worst"] = figures.worst_marginals_figure(evaluation.marginals, f"{name}-worst")
    measure = evaluation.association.cramers_v
    if names := [titled.get(own, own) for own in measure.names]:
        sides = ("synthetic", measure.synthetic, "Synthetic records"), ("reference", measure.reference, reference)
        found["association"] = [
            (title, figures.association_figure(names, of, title, f"{name}-{side}"), figures.strongest_pairs(names, of))
            for side, of, title in sides
        ]
    return found


def _by_length(marginals: Sequence[MarginalStatement]) -> list[tuple[int, list[MarginalStatement]]]:
    lengths = sorted({len(m.attributes) for m in marginals})
    return [(length, [m for m in marginals if len(m.attributes) == length]) for length in lengths]


def _shares(mechanisms: Sequence[Mechanism]) -> list[float] | None:
    """Each draw's share of mu², or of plain epsilon where all are charged in that; None where both are charged."""
    charged = [[float(row.mu2) for row in mechanisms], [float(row.plain_epsilon) for row in mechanisms]]
    charged = [amounts for amounts in charged if sum(amounts) > 0]
    if len(charged) != 1:
        return None
    return [amount / sum(charged[0]) for amount in charged[0]]
