"""Commands on an existing release: `synthesize`, `evaluate`, `report`, `approve`, `reject`, `publish`, `handover`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from marginweave.base.errors import InputError, MarginweaveError, printable

from ..prefect.environment import prepare_environment
from .console import Home, Json, Reason, Released, RunName, Source, out, print_json, tell

if TYPE_CHECKING:
    from marginweave.accounting.records import Decision
    from marginweave.checkpoints.run_folder import RunFolder
    from marginweave.publish.comparison import ReleaseComparison
    from marginweave.released.evaluation import Evaluation

_Records = Annotated[
    int | None, typer.Option(min=0, max=10**8, help="How many records [default: as configured].")
]
_Internal = Annotated[
    bool,
    typer.Option(
        "--internal", help="Compare with the sensitive table; the result stays in internal/."
    ),
]
_MOST_SHOWN = 8  # most changes between two releases that are printed
_By = Annotated[str, typer.Option(help="Who decides; it stays in the ledger.")]


def synthesize(
    run_name: RunName,
    *,
    records: _Records = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Public seed of the new records [default: as configured]."),
    ] = None,
    sets: Annotated[
        int | None,
        typer.Option(
            min=5, max=1000, help="So many tables, whose differences tell how sure an analysis is."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column of these tables; one for each [default: all]."),
    ] = None,
    of: Annotated[str, typer.Option(help="What they tell of: population or table.")] = "population",
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write to [default: release/synthesis-SEED of the run, or ./sets]."
        ),
    ] = None,
    home: Home = Path(),
) -> None:
    """Make new synthetic records from a finished release: post-processing, free of charge.

    Example: `marginweave synthesize affairs-1a2b3c4d --records 1000 --seed 8`
    """
    from marginweave.runs.progress import LogReporter, reporting

    if sets is None and column:
        raise InputError("--column goes with --sets alone: --sets 20 --column age --column cost")
    if sets is not None and records is not None:
        raise InputError(
            "the number of records of a set follows from the release, so that --records does not go with --sets"
        )
    if sets is not None:
        from marginweave.inference.sets import SyntheticSets, write_sets
        from marginweave.runs.lookup import release_folder

        place = release_folder(home, run_name)
        tables = SyntheticSets.of_release(place, column or [], of, seed, "--")
        written = write_sets(home, to or Path("sets"), tables.draw(sets))
        if tables.cautions:
            out.print(printable(tables.cautions))
    else:
        from marginweave.runs.published import regenerate_records

        with reporting(LogReporter(out.print)) as reporter:
            reporter.started("synthesize")
            written = regenerate_records(home, run_name, records=records, seed=seed, to=to)
    out.print(f"Written to {written}")


def evaluate(
    released: Released,
    internal: _Internal = False,
    as_json: Json = False,
    source: Source = None,
    home: Home = Path(),
) -> None:
    """Show how well a release's records keep its counts; or compare with the sensitive table, for internal use only.

    Example: `marginweave evaluate affairs-1a2b3c4d`
    """
    from marginweave.runs.published import releasable_evaluation

    from ..internal import evaluate_internally

    if internal and as_json:
        raise InputError(
            "--json shows the numbers that may be released; internal ones are in a file only"
        )
    if internal:
        prepare_environment(home)
        out.print(f"Not for release: {evaluate_internally(home, released, source)}")
        return
    evaluation = releasable_evaluation(home, released)
    if as_json:
        typer.echo(evaluation.to_json().decode(), nl=False)
        return
    verdict = evaluation.verdict
    out.print(str(verdict.line))
    for line in (*verdict.says, *verdict.advice):
        out.print(line)
    _print_evaluation(evaluation)


def _print_evaluation(evaluation: Evaluation) -> None:
    """Print the comparison of records with counts: a table with a line for each length, and sentences."""
    table = Table(
        "length",
        "combinations",
        "counts kept",
        "suppressed",
        "fabricated",
        "mean error",
        "TVD",
        box=None,
    )
    for row in evaluation.lengths:
        preserved = None if row.preservation is None else 100 * row.preservation
        table.add_row(
            str(row.length), str(row.combinations), _shown(preserved, " %"), _shown(row.suppressed, " %"),
            _shown(row.fabricated, " %"), _shown(row.mean_error, ""), _shown(row.tvd, "", 3),
        )  # fmt: skip
    out.print(table)
    for line in _evaluation_words(evaluation):
        out.print(line)
    out.print("Synthetic records against the released counts, not against the sensitive table.")


def report(
    released: Released,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder to write the pages to [default: the published report]."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="An earlier release of the dataset: say what changed since, beyond noise.",
        ),
    ] = None,
    as_json: Json = False,
    home: Home = Path(),
) -> None:
    """Say where a release's report is, or write report and explorer again from what was published: the same bytes.

    With `--against` it compares two releases of one dataset, free of charge, and `--to` gets comparison.html.

    Example: `marginweave report affairs-1a2b3c4d --to pages`, or
    `marginweave report visits-2026-02 --against visits-2026-01 --to changes`
    """
    from marginweave.runs.published import compare_with, rewrite_report

    if against is None:
        prepare_environment(home)
        written = str(rewrite_report(home, released, to))
        print_json({"report": written}) if as_json else out.print(written)
        return
    from marginweave.publish.comparison import FALSE_ALARM

    comparison = compare_with(home, released, against, to)
    if as_json:
        facts = {
            "prepared": str(comparison.prepared or ""),
            "verdict": str(comparison.verdict),
            "backwards": str(comparison.backwards or ""),
            "totals": str(comparison.totals),
            "drawn": str(comparison.drawn_sentence or ""),
            "false_alarm": FALSE_ALARM,
            "changed": [asdict(change) for change in comparison.changed],
            "changed_pairs": [asdict(change) for change in comparison.changed_pairs],
            "differing": [asdict(change) for change in comparison.differing],
            "differing_pairs": [asdict(change) for change in comparison.differing_pairs],
        }
        print_json(facts)
        return
    _print_comparison(comparison, to)


def _print_comparison(comparison: ReleaseComparison, to: Path | None) -> None:
    """Print verdict, totals and the largest changes, and the page that was written to the folder `to`."""
    from marginweave.texts.sentences import report_sentence

    for line in (
        comparison.verdict,
        comparison.backwards,
        comparison.totals,
        comparison.drawn_sentence,
    ):
        if line:
            out.print(str(line))
    changes = (*comparison.differing, *comparison.differing_pairs)
    for change in changes[:_MOST_SHOWN]:
        out.print(f"  {printable(str(change.sentence))}")
    not_shown = len(changes) - _MOST_SHOWN
    if not_shown > 0:
        out.print(f"  {report_sentence('change.further', number=not_shown)}")
    out.print(str(comparison.false_alarm_sentence))
    if comparison.beyond_sentence:
        out.print(printable(str(comparison.beyond_sentence)))
    if to is not None:
        out.print(str(report_sentence("change.written", file=str(to / "comparison.html"))))


def _evaluation_words(evaluation: Evaluation) -> Iterator[str]:
    """Yield sentences on what the table lacks: weight of a record, model and sample, worst marginal, association, rules."""
    if evaluation.weight_sentence:
        yield str(evaluation.weight_sentence)
    parts = evaluation.model or ()
    if any(part.model_error is not None for part in parts):  # else nothing was released
        model_errors = ", ".join(_shown(part.model_error, "", 3) or "unknown" for part in parts)
        sampling_errors = ", ".join(
            _shown(part.sampling_error, "", 3) or "unknown" for part in parts
        )
        yield f"TVD by length from counts to the model {model_errors}, from the model to its records {sampling_errors}"
    for marginal in evaluation.marginals[:1]:
        noise = "" if marginal.noise is None else f" (noise alone implies {marginal.noise:.3f})"
        yield f"Furthest off: {', '.join(marginal.attributes)}, TVD {marginal.tvd:.3f}{noise}"
    difference = evaluation.association.cramers_v.mean_difference
    pairs_within_noise = evaluation.association.within_noise
    if difference is not None:
        yield f"Association of pairs (Cramér's V): mean difference {difference:.3f}"
    elif pairs_within_noise:
        yield "Association of pairs (Cramér's V): no pair is beyond noise"
    if pairs_within_noise:
        yield f"Pairs whose association in the counts is not above the noise: {pairs_within_noise}"
    broken = sum(rule.records > 0 for rule in evaluation.rules)
    if evaluation.rules:
        yield f"Rules of the configuration that some record breaks: {broken} of {len(evaluation.rules)}"


def _shown(value: float | None, unit: str, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


def approve(run_name: RunName, by: _By, reason: Reason, home: Home = Path()) -> None:
    """Publish a release that awaits approval, as it was submitted, byte for byte. Read its report first: `marginweave report`.

    Nothing is looked at but what may leave. A file that was changed since is refused.

    Example: `marginweave approve census-2026 --by "A. Meier" --reason "checked against the plan"`
    """
    _decide(run_name, by, reason, home, approved=True)


def reject(run_name: RunName, by: _By, reason: Reason, home: Home = Path()) -> None:
    """Do not publish a release that awaits approval: for good. What it was charged stays charged.

    Example: `marginweave reject census-2026 --by "A. Meier" --reason "wrong reference date"`
    """
    _decide(run_name, by, reason, home, approved=False)


def _decide(run: str, by: str, reason: str, home: Path, *, approved: bool) -> None:
    from marginweave.runs.lookup import decide, existing_run

    folder, decision = decide(home, run, approved=approved, by=by, reason=reason)
    word = "approved" if decision.approved else "rejected"
    decided = f"{word} by {decision.by} on {decision.created:%Y-%m-%d %H:%M} UTC"
    if decision.approved != approved:
        raise InputError(f"run {run} was {decided}: a decision is final")
    outcome = (
        f"Released: {folder.release}" if approved else "Nothing is published, and the charge stays"
    )
    out.print(f"Run {run} was {decided}. {outcome}")
    if "PREFECT_API_URL" in os.environ:
        _, manifest = existing_run(home, run)
        _show_in_prefect(folder, manifest.dataset, decision)


def _show_in_prefect(folder: RunFolder, dataset: str, decision: Decision) -> None:
    """Show a decision in Prefect's pages; a server that does not answer changes nothing."""
    prepare_environment(folder.home)
    try:
        from ..prefect.session import prefect_session

        with prefect_session(folder.home, folder.internal):
            from ..prefect.decisions import show_decision

            is_shown = show_decision(folder, dataset, decision)
    except MarginweaveError as error:
        tell(f"warning: Prefect's pages do not show the decision: {error}")
        return
    if is_shown:
        out.print("Prefect's pages show the decision")


def publish(
    run_name: RunName,
    to: Annotated[
        Path, typer.Option(help="Folder to copy to; must be empty or new, and not among the runs.")
    ],
    even_so: Annotated[
        bool, typer.Option("--even-so", help="Also where the verdict is: not for publication.")
    ] = False,
    home: Home = Path(),
) -> None:
    """Copy what was released, and nothing else, to another place; each file is compared with its digest in the ledger.

    Example: `marginweave publish affairs-1a2b3c4d --to /srv/open-data/affairs`
    """
    from marginweave.runs.published import copy_release, released_verdict

    files, left_out, superseded_by = copy_release(home, run_name, to, even_so=even_so)
    verdict = released_verdict(to)
    out.print(f"Copied {len(files)} files to {to}; all match the digests in the ledger")
    for name in left_out:
        out.print(f"Skipped {name}: it was made after the release and has no digest in the ledger")
    if superseded_by is not None:
        out.print(
            f"Run {run_name} is superseded by run {superseded_by}: readers should have that one"
        )
    if verdict is not None:
        out.print(str(verdict.line))
    out.print(f"Open {to / 'report.html'}")


def handover(
    run_name: RunName,
    to: Annotated[
        Path, typer.Option(help="A new file FILE.zip, or a folder that is empty or new.")
    ],
    home: Home = Path(),
) -> None:
    """Bundle what an auditor needs: plan, privacy.json, the release's rows of the ledger, the anchor, and how to verify them.

    No private file is read, and the ledger is verified first. Of a rejected release it says what would have been promised, and
    has nothing that was computed from its draws.

    Example: `marginweave handover affairs-1a2b3c4d --to affairs-audit.zip`
    """
    from marginweave.verify.handover import hand_over

    names = hand_over(home, run_name, to)
    out.print(f"{', '.join(names)} written to {to}; README.md says how to verify them")
