"""Release flow: a Prefect flow that makes a differentially private release of a configuration (`stages.py`)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

from prefect import Flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import TagsContext
from prefect.runtime import flow_run
from prefect.tasks import Task
from pydantic import Field

from marginweave.base.errors import BudgetError, InputError, MachineError, MarginweaveError
from marginweave.base.interruption import INTERRUPTION
from marginweave.released.manifest import RunState
from marginweave.runs.home import home_directory, service_directory
from marginweave.runs.lookup import place_of_files, record_stop_reason, run_lock
from marginweave.runs.metrics import counted
from marginweave.runs.preparation import check_request, prepare_run
from marginweave.runs.process_hardening import closed_to_others, outlive_the_reader, protect_process
from marginweave.runs.progress import ServiceReporter, reporter, reporting
from marginweave.runs.request import Request, read_request
from marginweave.runs.stopping import obey_signals, take_signals
from marginweave.runs.unchanged import record_skip, unchanged_since

from ..tasks.stage import quiet, stage_of
from .prefect import records as prefect_records
from .prefect import run_names
from .prefect.artifacts import shown_in_prefect
from .prefect.environment import ANALYTICS_OFF, SERVICE, SERVICE_TERMINAL
from .prefect.records import announced, end_dead_attempts, warn_of_exhaustion
from .prefect.reporting import report_to_prefect
from .prefect.servers import end_with
from .prefect.session import log_to
from .stages import BACK_OFF_SECONDS, compare_where_due, run_stages

P = ParamSpec("P")
R = TypeVar("R")


def as_task(function: Callable[P, R]) -> Task[P, R]:
    """Return the Prefect task of a stage: the only place where a plain function of `tasks/` becomes a task.

    No result caching: a cached table would be a copy of private rows outside the checkpoint store. No retries, because a draw
    may only be repeated through the ledger. A patient stage, which draws nothing, is an exception: it is tried again after a
    fault of the machine (`MachineError`), and after no other error.
    """
    stage = stage_of(function)
    return task(
        name=stage.name,
        task_run_name=stage.run_name,
        retries=len(BACK_OFF_SECONDS) if stage.patient else 0,
        retry_delay_seconds=list(BACK_OFF_SECONDS),
        retry_condition_fn=_is_machine_fault,
        cache_policy=NO_CACHE,
        persist_result=False,
        log_prints=False,
    )(function)


def _is_machine_fault(_task: object, _run: object, state: State[Any]) -> bool:
    return isinstance(state.result(raise_on_failure=False), MachineError)


def _flow_run_name() -> str:
    configuration = Path(str(flow_run.parameters.get("configuration")))
    with suppress(MarginweaveError):  # the flow itself reports an error in the configuration
        return run_names.run_name(configuration, flow_run.parameters.get("run"))
    return configuration.stem


class _ReleaseFlow(Flow[P, R]):
    """A flow whose parameters are JSON."""

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters: texts and a number. Prefect's own way imports FastAPI, which nothing else here needs."""
        return dict(parameters)


@partial(
    _ReleaseFlow,
    name=run_names.FLOW,
    flow_run_name=_flow_run_name,
    retries=0,
    persist_result=False,
    log_prints=False,
)
def release(
    configuration: Annotated[str, Field(min_length=1, examples=["configurations/visits.yaml"])],
    run: Annotated[str | None, Field(examples=["visits-2026-11-20"])] = None,
    source: Annotated[str | None, Field(examples=["extracts/visits.parquet"])] = None,
    home: Annotated[str | None, Field(examples=["/srv/marginweave"])] = None,
    warn_at: Annotated[float, Field(gt=0, le=1, examples=[0.8])] = 0.8,
    supersedes: Annotated[str | None, Field(examples=["visits-2026-08-20"])] = None,
) -> State[str]:
    """Release the dataset that the configuration file describes and return the folder of the release.

    The same run again goes on where it stopped, or returns the finished release, free of charge: retry is safe.

    Args:
        configuration: Path of the YAML file that describes the release, as the worker sees it.
        run: Name of the run. Left empty: dataset and scheduled date where a schedule starts it, else dataset and hash of the
            configuration. The same name again resumes a release, or finds it finished, free of charge.
        source: Path of the table, instead of the one that the configuration names.
        home: Folder in which runs/ lives. Left empty: MARGINWEAVE_HOME or, outside deployments, the working directory.
        warn_at: Share of the account's budget from which on a finished release tells that it is nearly exhausted.
        supersedes: Name of the published run that this one corrects: a new charge. Left empty: none, or the one that the run
            was begun to correct.

    Returns:
        The state Completed with the path of `release/`, AwaitingApproval with that of `proposed/`, or Skipped. DP: (epsilon,
        delta) of the configuration, charged to the account of the dataset; nothing where it is skipped.

    Raises:
        InputError, BudgetError, StageError: see `marginweave.base.errors`; no message holds a value of the table.
    """
    prepare_worker_process()
    path = Path(configuration)
    shown_name = flow_run.name or path.stem
    with closed_to_others(), announced(shown_name):
        home_folder = _home_folder(home)
        run_name = run_names.run_name(path, run)
        request = read_request(
            path, run=run_name, source=source, home=home_folder, supersedes=supersedes
        )
        # a command counts its attempt itself
        counting = counted(request) if run_names.deployed_run() else nullcontext()
        service_reporting = _report_below_serve(request) if SERVICE in os.environ else nullcontext()
        with counting, service_reporting, record_stop_reason(request.folder):
            # a run that is refused leaves no folder behind
            quiet("check")(check_request)(request)
            earlier = quiet("compare")(unchanged_since)(request)
            if earlier is not None:
                return _skip(request, earlier, shown_name)
            # An earlier attempt that is still alive ends its release first.
            with run_lock(request.folder, waiting=run_names.is_resumed()):
                private, state = quiet("prepare")(prepare_run)(request)
                end_dead_attempts(private.manifest)
                if state == RunState.RUNNING:
                    with shown_in_prefect(private), TagsContext(current_tags=set()):
                        # Without tags: Prefect asks for a slot for each tag that a task inherits. A server on SQLite often
                        # refuses it (503) while it writes something else, and is asked again two seconds later.
                        run_stages(request, private, as_task)
                compare_where_due(private, as_task)
                place = place_of_files(request.folder)
            if SERVICE in os.environ:  # a command prints more at its end
                reporter().published(str(place), is_waiting=place != request.folder.release)
        # the release succeeded, also where the ledger cannot be reached any more
        with suppress(BudgetError):
            total = private.ledger.accounts.total(request.configuration.dataset)
            warn_of_exhaustion(request.folder.run, total, warn_at)
    return prefect_records.ended(shown_name, request.folder, place)


def _skip(request: Request, earlier: str, shown_name: str) -> State[str]:
    """Write why the run is skipped, report that it is, and return its state in Prefect."""
    reason = record_skip(request.folder, earlier)
    reporter().skipped(str(reason))
    return prefect_records.skipped(shown_name, reason)


@contextmanager
def _report_below_serve(request: Request) -> Iterator[None]:
    """Report a run of `marginweave serve` on standard output, with Prefect's log in the service's file.

    The lines are JSON, unless the service prints to a terminal.
    """
    log = service_directory(request.folder.home) / "prefect.log"
    run = request.folder.run
    in_terminal = ServiceReporter(sys.stdout, run) if SERVICE_TERMINAL in os.environ else None
    with log_to(log), reporting(in_terminal, run, request.configuration.dataset):
        yield


def prepare_worker_process() -> None:
    """Prepare a process that Prefect started, as the command line does for its own: protection, signals, analytics off."""
    protect_process()
    os.environ.update(ANALYTICS_OFF)
    service = os.environ.get(SERVICE)
    if service:
        INTERRUPTION.owns_process = True
        obey_signals(lambda _: None)
        end_with(int(service), signal.SIGTERM)()
    take_signals()
    if run_names.deployed_run() is not None:
        outlive_the_reader()
        report_to_prefect()


def _home_folder(home: str | None) -> Path:
    """Return the home. A deployment has to name it: the working directory of a worker may be temporary, and be deleted."""
    if home is None and run_names.deployed_run() and not os.environ.get("MARGINWEAVE_HOME"):
        raise InputError(
            "home is not set: a deployed release needs MARGINWEAVE_HOME, or the parameter home"
        )
    return home_directory(home)
