"""Commands that make, list and clear runs: `run`, `resume`, `runs`, `purge`."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.base.errors import InputError, MarginweaveError

from ..prefect.environment import importing, makes_database
from . import console
from .console import Config, Home, RunName, Source, out

if TYPE_CHECKING:
    from marginweave.released.account import AccountSums
    from marginweave.runs.capabilities import RunReference
    from marginweave.runs.progress import Reporter
    from marginweave.runs.request import Request


_Run = Annotated[
    str | None,
    typer.Option("--run", help="Name of the run; DATASET-HASH of the configuration if not given."),
]
_Yes = Annotated[
    bool,
    typer.Option(
        "--yes", help="Nobody watches: do not stop where the table does not fit the configuration."
    ),
]
_Supersedes = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="The published run that this one corrects: a new charge."),
]

_FILES = """\
  aggregates.csv   counts of attribute combinations (also .parquet)
  synthetic.csv    synthetic records (also .parquet)
  report.html      what this is and how good it is; evaluation.json has the numbers
  explore.html     look into counts and records, in a browser
  privacy.json     the guarantee, its mechanisms and assumptions
  account.json     the account when it was published: its cap, and what was charged"""
_LINKED_FILE = "\n  linked.csv       counts of rows of linked tables (also .parquet)"


def run(
    config: Config,
    run_name: _Run = None,
    source: Source = None,
    supersedes: _Supersedes = None,
    yes: _Yes = False,
    home: Home = Path(),
) -> None:
    """Release a dataset: the whole flow. The same command again resumes, or finds the finished release, free of charge.

    It stops before anything is charged where a table has no rows, or a column of it can hardly be read as declared:
    `marginweave check` shows why. A scheduler gives `--yes`, because stopping would itself reveal something about the rows.

    Where the configuration says `publish: {approval: required}` it ends at `awaiting approval`. A correction of a published
    run is `--supersedes`: a new charge, and both releases say in the ledger that they belong together.

    Example: `marginweave run deployments/examples/affairs.yaml`, or
    `marginweave run census.yaml --run census-2026-b --supersedes census-2026-a`
    """
    from marginweave.configuration.load import load_configuration

    console.end_on_signals()
    try:
        load_configuration(config)  # refuses a broken file before anything heavy is imported
        with importing():
            from marginweave.runs.request import read_request

        request = read_request(
            config, run=run_name, source=source, home=home, supersedes=supersedes
        )
    except MarginweaveError as error:
        if not out.is_terminal:
            from marginweave.runs.progress import LineReporter

            LineReporter(sys.stdout, run_name or "", "").stopped(error)
        raise
    execute(request, yes=yes)


def resume(run_name: RunName, yes: _Yes = False, home: Home = Path()) -> None:
    """Resume a run that was stopped, with its original configuration and source.

    Example: `marginweave resume affairs-1a2b3c4d`
    """
    console.end_on_signals()
    with importing():
        from marginweave.runs.lookup import check_resumable
        from marginweave.runs.request import resumed_request

    check_resumable(home, run_name)
    # without `supersedes`: a run corrects what its manifest says that it was begun to correct (`continuity.check_correction`)
    execute(resumed_request(home, run_name), yes=yes)


def execute(request: Request, *, yes: bool = False) -> None:
    """Run the flow unless its release is finished, and print where its files are."""
    with importing():
        from marginweave.released.manifest import RunState
        from marginweave.runs.bookkeeping import tell_of_other_bytes
        from marginweave.runs.lookup import run_lock
        from marginweave.runs.metrics import counted
        from marginweave.runs.preparation import (
            attended,
            check_request,
            internal_evaluation_due,
            prepare_run,
        )
        from marginweave.runs.progress import reporting
        from marginweave.runs.unchanged import unchanged_since

    with (
        reporting(out, request.folder.run, request.configuration.dataset) as reporter,
        counted(request),
        attended(not yes),
    ):
        check_request(request)
        earlier = unchanged_since(request)
        if earlier is not None:
            _say_skipped(request, earlier, reporter)
            return
        with run_lock(request.folder):
            reference, state = prepare_run(request)
        is_unfinished = state == RunState.RUNNING
        if is_unfinished or internal_evaluation_due(reference):
            _announce_server(request, reporter)
            if is_unfinished and not yes and out.is_terminal:
                _warn(request)
            _release(request, reference)
            tell_of_other_bytes(reference, reporter.note)
    _end(request, reference, reporter.lease, was_unfinished=is_unfinished)


def _end(
    request: Request, reference: RunReference, lease: str | None, *, was_unfinished: bool
) -> None:
    """Print how a run ended that was not skipped; `lease` is that of this attempt, None where it drew nothing."""
    from marginweave.ledger.boxes import account_sums
    from marginweave.runs.bookkeeping import is_charged
    from marginweave.runs.lookup import place_of_files

    place = place_of_files(request.folder)
    _summarize(
        request,
        account_sums(reference.ledger.accounts.total(request.configuration.dataset)),
        place,
        is_waiting=place != request.folder.release,
        was_unfinished=was_unfinished,
        charged_now=is_charged(reference, lease),
    )


def _say_skipped(request: Request, earlier: str, reporter: Reporter) -> None:
    """Print that the run is skipped: to a person with the reason, to a pipeline with the file that says it."""
    from marginweave.runs.unchanged import record_skip

    reason = record_skip(request.folder, earlier)
    reporter.skipped(str(reason))
    if out.is_terminal:
        out.print(f"Skipped {request.folder.run}", style="bold")
        out.print(reason.read_text().strip())


def _announce_server(request: Request, reporter: Reporter) -> None:
    """Report that Prefect's server starts, and where that takes long."""
    reporter.started("starting Prefect (some seconds)")
    if makes_database(request.folder.home):
        reporter.note(
            "Starting Prefect's server for the first time in this home can take half a minute"
        )


def _warn(request: Request) -> None:
    """Print what the person at the terminal should know before anything is charged."""
    from marginweave.forecast.delta import delta_forecast

    from ..check.table import id_warnings

    for sentence in delta_forecast(request.configuration):
        out.print(str(sentence), style="yellow")
    for line in id_warnings(request):
        out.print(f"{line}. See marginweave check {request.path.name}", style="yellow")


def _release(request: Request, reference: RunReference) -> None:
    folder = request.folder
    with ExitStack() as session:
        with importing():
            from ..prefect.session import prefect_session

            meanwhile = partial(_rehearse, request)
            session.enter_context(
                prefect_session(folder.home, folder.internal, meanwhile=meanwhile)
            )
            _load_flow()
            from prefect import tags

            from .. import release
            from ..prefect.records import flow_run_tags

        with tags(*flow_run_tags(reference.manifest.dataset)):
            release(
                str(request.path),
                folder.run,
                request.source,
                str(folder.home),
                supersedes=request.supersedes,
            )


def _load_flow() -> None:
    """Import the flow, and what its first stage would import: all at once takes less time."""
    from ...schemas.contracts import load_libraries
    from .. import release  # noqa: F401

    load_libraries()


def _rehearse(request: Request) -> None:
    """Import the flow, and compile what it calls or load it, while Prefect's server starts.

    Where the disk refuses what was compiled, a stage that needs it says so, as stages do.
    """
    from marginweave.base.progress import unreported
    from marginweave.runs.rehearsal import rehearse

    _load_flow()
    with suppress(OSError), unreported():
        rehearse(request.configuration)


def _summarize(
    request: Request,
    account: AccountSums,
    place: Path,
    *,
    is_waiting: bool,
    was_unfinished: bool,
    charged_now: bool,
) -> None:
    """Print where the files are, and the guarantee of the release or how to decide on it: for a terminal, or as JSON."""
    from marginweave.runs.lookup import what_to_do
    from marginweave.runs.progress import LineReporter
    from marginweave.runs.published import next_words, outcome_lines, released_verdict

    run = request.folder.run
    working_folder = Path.cwd()
    shown_place = (
        place.relative_to(working_folder) if place.is_relative_to(working_folder) else place
    )
    report = shown_place / "report.html"
    verdict = released_verdict(place)
    if not out.is_terminal:
        facts: dict[str, object] = {"report": str(report), "next": what_to_do(run)}
        if not is_waiting:
            facts = {"release": str(shown_place), "accuracy": _accuracy(place)}
        if verdict is not None:
            facts["verdict"] = verdict.model_dump(mode="json")
        event = "awaiting approval" if is_waiting else "finished"
        lines = LineReporter(sys.stdout, run, account.dataset)
        lines.line(event, **facts, charged_now=charged_now, account=account.model_dump(mode="json"))
        return
    if is_waiting:
        out.print(f"\nAwaiting approval: {run}; nothing is published yet", style="bold")
        out.print(f"What may leave: {report}\nThen {what_to_do(run)}")
    else:
        released = "Released" if was_unfinished or charged_now else "Already released"
        remark = "" if charged_now else ", nothing charged"
        out.print(f"\n{released}{remark}: {shown_place}", style="bold")
        privacy = request.configuration.privacy
        unit = request.configuration.unit_words
        guarantee = f"epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, for one {unit}"
        linked = _LINKED_FILE * bool(request.configuration.counted_tables)
        out.print(f"{_FILES}{linked}\nGuarantee: {guarantee}")
    for line in outcome_lines(account, verdict):
        out.print(line.text, style="bold" if line.is_verdict else None)
    if not is_waiting:
        out.print(next_words(run, report, verdict))


def _accuracy(release: Path) -> dict[str, object]:
    """Return the distances of synthetic records from released counts, from evaluation.json. DP: post-processing."""
    from marginweave.released.evaluation import Evaluation

    evaluation = Evaluation.from_json((release / "evaluation.json").read_bytes())
    return {
        "mean_tvd": evaluation.mean_distances,
        "marginals_beyond_noise": evaluation.beyond_noise,
    }


def runs(as_json: console.Json = False, home: Home = Path()) -> None:
    """List the runs of the home, and which of them still hold private files: `internal` where only an exact evaluation is kept.

    Example: `marginweave runs`
    """
    from marginweave.runs.retention import Progress, carry_out_decisions, list_runs

    carry_out_decisions(home)
    summaries = list_runs(home)
    if as_json:
        console.print_json([summary.row() for summary in summaries])
        return
    table = console.table_of("run", "dataset", "state", "begun", "private files")
    for summary in summaries:
        private = "internal" if summary.holds_exact else "no"
        if summary.holds_private:
            private = "yes"
        table.add_row(summary.name, summary.dataset, summary.state, summary.begun, private)
    console.print_wide(table)
    for summary in summaries:
        if summary.reason is not None:
            ended = "was skipped" if summary.progress == Progress.SKIPPED else "stopped"
            out.print(f"Why {summary.name} {ended}: {summary.reason}")


def purge(
    run_name: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Name of a run; `marginweave runs` lists them."),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Instead of RUN: days since a run's last stage, such as 30d.")
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also a run that is not finished.")
    ] = False,
    home: Home = Path(),
) -> None:
    """Delete a run's private files; the release is kept. With --older-than also those of failed runs, but none in progress.

    Example: `marginweave purge affairs-1a2b3c4d`, or `marginweave purge --older-than 30d`
    """
    from marginweave.runs.retention import purge_older, purge_run

    if (run_name is None) == (older_than is None):
        raise InputError("give either RUN or --older-than: it says which runs to purge")
    busy: list[str] = []
    if run_name is not None:
        purge_run(home, run_name, unfinished=unfinished)
        done = [run_name]
    else:
        done, busy = purge_older(home, console.days("older-than", older_than or ""))
    for run in done:
        out.print(_purged(home, run))
    for run in busy:
        out.print(f"Run {run} is in progress, and was left alone")
    if not done:
        out.print("Nothing that old holds private files")


def _purged(home: Path, run: str) -> str:
    """Return a sentence on the files that a purge removed, and on `internal/`, which stays until somebody removes it."""
    from marginweave.checkpoints.run_folder import RunFolder
    from marginweave.runs.retention import holds_exact

    folder = RunFolder.at(home, run)
    if holds_exact(folder):
        return f"private/ is gone from run {run}; {folder.internal} still holds an evaluation that is exact"
    remark = (
        f"; {folder.internal} keeps the log and the request" if folder.internal.is_dir() else ""
    )
    return f"Nothing private is left in run {run}{remark}"
