"""What a run has spent and released, in Prefect's pages: a mirror for people, never read by anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from marginweave.schemas.errors import MarginweaveError
from marginweave.schemas.ledger.states import CHARGED
from marginweave.tasks.references import RunReference


@contextmanager
def shown_in_prefect(reference: RunReference) -> Iterator[None]:
    """Make artifacts at the end of a release: its draws, also where it stops after something was charged, and its numbers.

    They have public facts of the plan, the states in the ledger, and what was published. The release is complete without
    them: a server that cannot take them changes nothing.
    """
    try:
        yield
    except MarginweaveError:
        _show_budget(reference)
        raise
    _show_budget(reference)
    _show_release(reference)


def _show_budget(reference: RunReference) -> None:
    from prefect.artifacts import create_table_artifact

    with suppress(Exception):  # the ledger's disk may be what stopped the run
        record = reference.ledger.release(reference.manifest.release)
        if record is None or not any(draw.state in CHARGED for draw in record.draws):
            return
        rows = [{"draw": draw.name, "state": draw.state.value, **draw.cost.texts} for draw in record.draws]
        create_table_artifact(
            key=f"budget-of-{record.release}",
            table=rows,
            description=f"Budget of run {record.run}, account {record.dataset}: a copy, the ledger is what counts",
        )


def _show_release(reference: RunReference) -> None:
    """Table of the releasable evaluation, a summary, and a link to the report; from the published files alone.

    Of a release that awaits approval there are none yet, and nothing is shown; nor later, as no flow run approves it.
    """
    from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

    place = reference.folder.release
    with suppress(Exception):
        statement = json.loads((place / "privacy.json").read_text(encoding="utf-8"))
        evaluation = json.loads((place / "evaluation.json").read_text(encoding="utf-8"))
        release, run, guarantee, account = (statement[key] for key in ("release", "run", "guarantee", "account"))
        create_table_artifact(
            key=f"evaluation-of-{release}",
            table=[
                {key: value for key, value in row.items() if not key.endswith("_missing")}  # never against counts
                for row in evaluation["lengths"]
            ],
            description=f"Synthetic records of run {run} against its released counts",
        )
        create_markdown_artifact(
            key=f"release-{release}",
            markdown=(
                f"**{statement['dataset']}**, run {run}: epsilon {guarantee['epsilon']:g}, delta {guarantee['delta']:g} "
                f"for one {guarantee['unit']}.\n\nThe account has spent epsilon {account['epsilon']:.4g} of "
                f"{account['cap_epsilon']:g} at delta {account['delta']:g}, in {account['releases']} release(s).\n\n"
                f"{_marginals_table(evaluation['marginals'])}"
            ),
            description=f"What run {run} guarantees, and which marginals its records keep worst",
        )
        create_link_artifact(
            key=f"report-of-{release}",
            link=(place / "report.html").resolve().as_uri(),
            link_text="report.html",
            description=f"Report of run {run}",
        )


def _marginals_table(marginals: Sequence[Mapping[str, Any]]) -> str:
    """The worst marginals as a table in Markdown."""
    lines = ["| marginal | TVD | implied by noise |", "| --- | --- | --- |"]
    for row in marginals:
        names = ", ".join(row["attributes"]).replace("|", "\\|")
        noise = "" if row["noise"] is None else f"{row['noise']:.3f}"
        lines.append(f"| {names} | {row['tvd']:.3f} | {noise} |")
    return "\n".join(lines) + "\n"
