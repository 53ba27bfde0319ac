"""report.html: one page without scripts or network: what was released, under which guarantee, and how good it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.evaluation import Evaluation, InternalEvaluation, RecordAgreement
from marginweave.schemas.released.statement import MarginalStatement, Mechanism
from marginweave.tasks.evaluate.intervals import record_interval
from marginweave.tasks.publish.cautions import reader_warnings
from marginweave.tasks.publish.figures import (
    association_figure,
    distribution_figure,
    error_figure,
    worst_marginals_figure,
)
from marginweave.tasks.publish.reader import PublishedRelease
from marginweave.tasks.publish.records import ShownRecords, distributions
from marginweave.tasks.publish.templates import render
from marginweave.tasks.publish.wording import paid_words


def render_report(
    published: PublishedRelease,
    shown: ShownRecords,
    evaluation: Evaluation,
    internal: InternalEvaluation | None = None,
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
    configuration, aggregates, statement = published.configuration, published.aggregates, published.statement
    made = shown.records
    scale = aggregates.record_count / made if made else 1.0
    columns = distributions(published, shown, scale)
    inside = record_interval(aggregates)
    return render(
        "report.html.j2",
        statement=statement,
        evaluation=evaluation,
        internal=internal,
        paid=paid_words(evaluation),
        warnings=reader_warnings(configuration, aggregates, statement.mechanisms, statement.not_measured or ()),
        whose=_whose(configuration),
        guess=_guess(configuration),
        observer=math.ceil(100 * statement.observer - 1e-9),
        shares=_shares(statement.mechanisms),
        record_count=aggregates.record_count,
        record_deviation=aggregates.record_deviation,
        record_interval=inside,
        records=made,
        scale=scale,
        combinations=[len(level) for level in aggregates.levels],
        exact=[noise.exact for noise in aggregates.noise],
        marginals=_marginals_by_length(statement.marginals or ()),
        private_columns=configuration.private_columns,
        columns=[(c, Markup(distribution_figure(c, f"column-{j}"))) for j, c in enumerate(columns)],  # noqa: S704
        figures=_quality_figures(evaluation, "quality", "Released counts"),
        internal_figures=internal and _quality_figures(internal, "internal", "Sensitive table"),
    )


def _quality_figures(evaluation: RecordAgreement, name: str, reference: str) -> dict[str, Any]:
    """The figures of what an evaluation has, by section."""
    figures: dict[str, Any] = {}
    if any(bucket.proportional_error is not None for bucket in evaluation.by_count):
        figures["errors"] = Markup(error_figure(evaluation.by_count, f"{name}-errors"))  # noqa: S704 - escaped by the XML writer
    if evaluation.marginals:
        figures["worst"] = Markup(worst_marginals_figure(evaluation.marginals, f"{name}-worst"))  # noqa: S704
    measure = evaluation.association.cramers_v
    if measure.names:
        sides = ("synthetic", measure.synthetic, "Synthetic records"), ("reference", measure.reference, reference)
        figures["association"] = [
            (title, Markup(association_figure(measure.names, cells, title, f"{name}-{side}")))  # noqa: S704
            for side, cells, title in sides
        ]
    return figures


def _marginals_by_length(marginals: Sequence[MarginalStatement]) -> list[dict[str, Any]]:
    """How many marginals of each length were measured, with how many cells and how much noise."""
    lengths: dict[int, list[MarginalStatement]] = {}
    for marginal in marginals:
        lengths.setdefault(len(marginal.attributes), []).append(marginal)
    return [
        {
            "length": length,
            "measured": len(found),
            "cells": sum(m.cells for m in found),
            "least": min(m.deviation for m in found),
            "most": max(m.deviation for m in found),
        }
        for length, found in sorted(lengths.items())
    ]


def _shares(mechanisms: Sequence[Mechanism]) -> list[float] | None:
    """Each draw's share of mu², or of plain epsilon where all are charged in that; None where both are charged."""
    charged = [[float(row.mu2) for row in mechanisms], [float(row.plain_epsilon) for row in mechanisms]]
    charged = [amounts for amounts in charged if sum(amounts) > 0]
    if len(charged) != 1:
        return None
    return [amount / sum(charged[0]) for amount in charged[0]]


def _whose(configuration: Configuration) -> str:
    """What is protected, for a reader."""
    added = configuration.privacy.neighbors == "add-remove"
    hidden = (
        f"the release hides {'whether it is in the table' if added else 'what it says, not that it is in the table'}"
    )
    if configuration.privacy.subject is None:
        return f"One row of the table: {hidden}. A person with several rows is protected less."
    return f"One {configuration.privacy.unit_words}: {hidden}."


def _guess(configuration: Configuration) -> str:
    """What such an observer tries to find out."""
    if configuration.privacy.neighbors == "add-remove":
        return "an observer's best guess whether a person is in the data"
    return "an observer's best guess which of two given records a person has in the data"
