"""Pages of a release in Prefect: its charges, its accuracy, and a summary; copies for people, which no program reads.

The name of a page has the dataset and the kind, so that Prefect shows the pages of earlier runs as its history. Its content is
public: the plan, the states in the ledger, and the published files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path

from prefect import artifacts

from marginweave.accounting.records import CHARGED
from marginweave.base.errors import MarginweaveError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.measurements.kinds import kind_named
from marginweave.released.evaluation import Evaluation, LengthMetrics
from marginweave.released.statement import Mechanism, PrivacyStatement
from marginweave.runs.capabilities import RunReference
from marginweave.runs.lookup import place_of_files, what_to_do


@contextmanager
def shown_in_prefect(reference: RunReference) -> Iterator[None]:
    """Make artifacts at the end of a release: its numbers, and its draws, the latter also if it stops after a charge.

    The release is complete without them: a server that refuses them changes nothing.
    """
    try:
        yield
    except MarginweaveError:
        _show_budget(reference)
        raise
    _show_budget(reference)
    show_release(reference.folder, reference.manifest.dataset)


def artifact_key(dataset: str, kind: str) -> str:
    """Return the name of an artifact for all runs of a dataset: Prefect allows lower-case letters, digits and dashes alone."""
    name = re.sub(r"[^a-z0-9]+", "-", dataset.lower())
    return f"{name.strip('-')}-{kind}"


def _show_budget(reference: RunReference) -> None:
    with suppress(Exception):  # the ledger's disk may be what stopped the run
        record = reference.ledger.releases.find(reference.manifest.release)
        if record is None or not any(draw.state in CHARGED for draw in record.draws):
            return
        rows = []
        for draw in record.draws:
            row = {"draw": draw.name, "state": draw.state.value, "mechanism": draw.mechanism}
            for name, cost in draw.cost.texts.items():
                row[name] = f"{float(cost):.4g}"
            rows.append(row)
        artifacts.create_table_artifact(
            key=artifact_key(record.dataset, "budget"),
            table=rows,
            description=f"Budget of run {record.run}, account {record.dataset}: a copy, the ledger is what counts",
        )


def show_release(folder: RunFolder, dataset: str) -> None:
    """Show tables of the releasable evaluation, and a summary; from the published files alone.

    Of a release that awaits approval, show that it does, and what to do: `approve` shows its numbers.
    """
    if place_of_files(folder) != folder.release:
        _show_awaiting(folder, dataset)
        return
    place = folder.release
    with suppress(Exception):
        statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
        evaluation = Evaluation.from_json((place / "evaluation.json").read_bytes())
        run = statement.run
        artifacts.create_table_artifact(
            key=artifact_key(dataset, "evaluation"),
            table=[_rounded_row(row) for row in evaluation.lengths],
            description=f"Synthetic records of run {run} against its released counts",
        )
        artifacts.create_markdown_artifact(
            key=artifact_key(dataset, "release"),
            markdown=_summary(statement, evaluation, place),
            description=f"What run {run} guarantees, what it was charged, and how near its records are to its counts",
        )


def _show_awaiting(folder: RunFolder, dataset: str) -> None:
    lines = (
        f"# {folder.run}",
        "- **Awaiting approval:** nothing is published yet",
        f"- **What may leave:** `{folder.proposed.resolve()}` on the machine of the run; begin with `report.html`",
        f"- **Then** {what_to_do(folder.run)}",
    )
    _make_page(dataset, lines, f"Run {folder.run} awaits approval")


def show_rejection(folder: RunFolder, dataset: str) -> None:
    """Show that a release is not published, in the place of the page that says what to decide."""
    lines = (f"# {folder.run}", "- **Rejected:** nothing is published, and the charge stays")
    _make_page(dataset, lines, f"Run {folder.run} was rejected")


def _make_page(dataset: str, lines: Iterable[str], description: str) -> None:
    with suppress(Exception):
        artifacts.create_markdown_artifact(
            key=artifact_key(dataset, "release"),
            markdown="\n".join(lines),
            description=description,
        )


def _rounded_row(row: LengthMetrics) -> dict[str, float | int | None]:
    """Return the rounded metrics of one length, without those of SDS and those that counts never have."""
    rounded: dict[str, float | int | None] = {}
    for name, value in row.model_dump(exclude={"tvd_missing", "l1_missing"}).items():
        if not name.startswith("sds_"):
            rounded[name] = round(value, 4) if isinstance(value, float) else value
    return rounded


def _length_cells(row: LengthMetrics) -> tuple[str, str, str, str]:
    return str(row.length), f"{row.combinations:,}", _number(row.tvd), _number(row.preservation)


def _summary(statement: PrivacyStatement, evaluation: Evaluation, place: Path) -> str:
    """Return the page of a release, in Markdown."""
    guarantee = statement.guarantee
    near = ", ".join(
        f"{100 * tvd:.2g} % for {columns} column(s)"
        for columns, tvd in evaluation.mean_distances.items()
    )
    lengths = [_length_cells(row) for row in evaluation.lengths]
    worst = [
        (", ".join(row.attributes), _number(row.tvd), _number(row.noise))
        for row in evaluation.marginals
    ]
    comparable = [row for row in evaluation.marginals if row.noise is not None]
    verdict = "unknown, as no marginal has all of its counts released"
    if comparable:
        verdict = (
            f"{evaluation.beyond_noise} of the {len(comparable)} worst marginals are farther from their counts than noise "
            "implies"
        )
    charge_names = (
        "stage",
        "mechanism",
        "draws",
        "noise (sd, records)",
        "share of budget",
        "delta",
    )
    lines = [
        f"# {statement.run}",
        f"- **Guarantee:** epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}, for one {guarantee.unit}",
        f"- **Accuracy:** mean distance (TVD) of synthetic records from released counts: {near or 'unknown'}",
        f"- **Verdict:** {verdict}",
        f"- **Records:** {evaluation.records:,} synthetic ones, for a noisy count of {evaluation.reference_records:,}",
        *(f"- {sentence}" for sentence in [evaluation.weight_sentence] if sentence),
        f"- **Files:** `{place.resolve()}` on the machine of the run; begin with `report.html`",
        "## Charged, by stage",
        *_table(charge_names, _charges(statement)),
        "## Accuracy, by number of columns",
        *_table(("columns", "combinations", "mean TVD", "counts kept"), lengths),
        "## Marginals that the records keep worst",
        *_table(("marginal", "TVD", "implied by noise"), worst),
    ]
    return "\n".join(lines)


def _charges(statement: PrivacyStatement) -> Iterator[tuple[str, ...]]:
    """Yield a row for the draws of each stage and mechanism: their names, their noise, and their cost."""
    stages: dict[tuple[str, str], list[Mechanism]] = {}
    for draw in statement.mechanisms:
        if draw.state == "drawn":
            kind = kind_named(draw.draw)
            stage = draw.draw if kind is None else kind.title.format(draw.length)
            stages.setdefault((stage, draw.mechanism), []).append(draw)
    total_mu2 = sum((Decimal(draw.mu2) for draws in stages.values() for draw in draws), Decimal(0))
    levels = {f"level-{noise.length}": noise.deviation for noise in statement.noise}
    for (stage, mechanism), draws in stages.items():
        names = {draw.draw for draw in draws}
        sigmas = {levels[name] for name in names & levels.keys()}
        sigmas |= {row.deviation for row in statement.marginals or () if row.draw in names}
        if not sigmas:
            sigmas = {draw.sigma for draw in draws if draw.sigma is not None}
        mu2 = sum((Decimal(draw.mu2) for draw in draws), Decimal(0))
        delta = sum((Decimal(draw.delta) for draw in draws), Decimal(0))
        share = f"{float(100 * mu2 / total_mu2):.1f} %" if total_mu2 else ""
        yield stage, mechanism, str(len(draws)), _span(sigmas), share, f"{float(delta):.2g}"


def _span(values: Iterable[float]) -> str:
    """Return the smallest and the largest of the values as "low to high"; once if they look the same, "" if there are none."""
    ordered = sorted(values)
    if not ordered:
        return ""
    texts = [f"{value:.4g}" for value in (ordered[0], ordered[-1])]
    return " to ".join(dict.fromkeys(texts))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown, with empty lines around it."""
    lines = [""]
    for row in (head, ["---"] * len(head), *rows):
        cells = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
