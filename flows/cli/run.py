"""`marginweave run` and `marginweave resume`."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.flows.cli.console import Config, Home, RunName, Source, command, out, warn_of_former_keys
from marginweave.flows.orchestration.environment import importing

if TYPE_CHECKING:
    from marginweave.flows.run.request import Request
    from marginweave.tasks.references import RunReference

_Run = Annotated[
    str | None, typer.Option("--run", help="Name of the run; DATASET-HASH of the configuration if not given.")
]
_Supersedes = Annotated[
    str | None,
    typer.Option("--supersedes", metavar="RUN", help="The published run that this one corrects: a new charge."),
]


@command
def run(
    config: Config, run_name: _Run = None, source: Source = None, supersedes: _Supersedes = None, home: Home = None
) -> None:
    """Release a dataset: the whole flow. The same command again resumes, or finds the finished release, free of charge.

    Where the configuration says `publish: {approval: required}` it ends at `awaiting approval`. A correction of a published
    run is `--supersedes`: charged anew, and both releases say in the ledger that they belong together.

    Example: `marginweave run deployments/examples/affairs.yaml`, or
    `marginweave run census.yaml --run census-2026-b --supersedes census-2026-a`
    """
    from marginweave.tasks.accounting.plan.resolve import load_configuration

    warn_of_former_keys(load_configuration(config))  # refuses a broken file before anything heavy is imported
    with importing():
        from marginweave.flows.orchestration.environment import home_directory
        from marginweave.flows.run.request import read_request

    place = home_directory(home, os.environ)
    execute(read_request(config, run=run_name, source=source, home=place, supersedes=supersedes), config, source, place)


@command
def resume(run_name: RunName, home: Home = None) -> None:
    """Go on with a run that was stopped, with the configuration and source that it was begun with.

    Example: `marginweave resume affairs-1a2b3c4d`
    """
    with importing():
        from marginweave.flows.orchestration.environment import home_directory
        from marginweave.flows.run.request import original_request, read_request

    place = home_directory(home, os.environ)
    config, source = original_request(place, run_name)
    execute(read_request(config, run=run_name, source=source, home=place), config, source, place)


def execute(request: Request, config: Path, source: str | None, home: Path) -> None:
    """Run the flow unless its release is finished, and say where everything is."""
    with importing():
        from marginweave.flows.run.lookup import run_lock
        from marginweave.flows.run.preparation import check_request, internal_evaluation_due, prepare_run
        from marginweave.flows.run.progress import reporting
        from marginweave.schemas.released.manifest import RunState

    check_request(request)
    with run_lock(request.folder):
        reference, state = prepare_run(request)
    fresh, lease = state == RunState.RUNNING, None
    if fresh or internal_evaluation_due(reference):
        with reporting(out) as reporter:
            _release(request, reference, config, source, home)
        lease = reporter.lease
    from marginweave.flows.run.bookkeeping import account_statement
    from marginweave.flows.run.lookup import place_of_files

    account, charged = account_statement(reference), _has_drawn(reference, lease)
    place = place_of_files(request.folder)
    if place == request.folder.release:
        _summarize(request, account, fresh=fresh, charged=charged)
    else:
        _tell_waiting(request, account, place, charged=charged)


def _release(request: Request, reference: RunReference, config: Path, source: str | None, home: Path) -> None:
    with ExitStack() as session:
        with importing():
            from marginweave.flows.orchestration.session import prefect_session

            session.enter_context(prefect_session(home, request.folder.internal))
            from prefect import tags

            from marginweave.flows import release
            from marginweave.flows.run.prefect_records import release_tag

        with tags(release_tag(reference.manifest.release)):  # from its first moment on, should it be killed at once
            release(str(config), request.folder.run, source, str(home), supersedes=request.supersedes)


def _has_drawn(reference: RunReference, lease: str | None) -> bool:
    """Whether the attempt called `lease` has begun a draw; another process may have begun others meanwhile."""
    record = reference.ledger.release(reference.manifest.release)
    return record is not None and any(lease and draw.lease == lease for draw in record.draws)


def _tell_waiting(request: Request, account: dict[str, object], place: Path, *, charged: bool) -> None:
    """Nothing is published: what was made, and who can do what with it."""
    from marginweave.flows.run.lookup import what_to_do

    run, report = request.folder.run, _shown(place / "report.html")
    if not out.is_terminal:
        line = {
            "event": "awaiting approval",
            "run": run,
            "report": report,
            "next": what_to_do(run),
            "charged_now": charged,
            "account": account,
        }
        out.file.write(json.dumps(line) + "\n")
        return
    out.print(f"\nAwaiting approval: {run}; nothing is published yet", style="bold")
    out.print(f"What may leave: {report}")
    out.print(f"Then {what_to_do(run)}")
    _tell_account(account)


def _shown(place: Path) -> str:
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)


def _summarize(request: Request, account: dict[str, object], *, fresh: bool, charged: bool) -> None:
    privacy, shown = request.configuration.privacy, _shown(request.folder.release)
    if not out.is_terminal:
        line = {"event": "finished", "release": shown, "charged_now": charged, "account": account}
        out.file.write(json.dumps(line) + "\n")
        return
    said = "Released" if charged else f"{'Released' if fresh else 'Already released'}, nothing charged"
    out.print(f"\n{said}: {shown}", style="bold")
    out.print("  aggregates.csv   counts of attribute combinations (also .parquet)")
    out.print("  synthetic.csv    synthetic records (also .parquet)")
    out.print("  report.html      what this is and how good it is; evaluation.json has the numbers")
    out.print("  explore.html     look into counts and records, in a browser")
    out.print("  privacy.json     the guarantee, its mechanisms and assumptions")
    out.print(f"Guarantee: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, for one {privacy.unit_words}")
    _tell_account(account)


def _tell_account(account: dict[str, object]) -> None:
    out.print(
        f"Account {account['dataset']}: epsilon {account['epsilon']:.4g} of {account['cap_epsilon']:g} spent "
        f"at delta {account['delta']:g}, {account['releases']} release(s)"
    )
