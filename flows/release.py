"""One configuration in, one differentially private release out.

Read from top to bottom, `release` is the way of the data: private stages, the draws of noise, then post-processing that is
given no private file; but for a comparison with the data where one is bought, a draw like the others.
"""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import TagsContext
from prefect.runtime import flow_run
from prefect.tasks import Task
from pydantic import Field

from marginweave.base.errors import BudgetError, InputError, MachineError, MarginweaveError
from marginweave.base.interruption import INTERRUPTION
from marginweave.checkpoints.run_folder import staged_release
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts.engine import prepare_engine
from marginweave.counts.noise import with_terms
from marginweave.draws.references import RunReference, StageResult
from marginweave.measurements.plan import BudgetPlan, DrawKind
from marginweave.planning.split import plan_budget
from marginweave.released.manifest import RunState
from marginweave.runs.bookkeeping import Bookkeeper, release_facts, return_unused_draws
from marginweave.runs.home import home_directory, service_directory
from marginweave.runs.looks import stops_are_looks
from marginweave.runs.lookup import place_of_files, record_stop_reason, run_lock
from marginweave.runs.metrics import counted
from marginweave.runs.preparation import check_request, internal_evaluation_due, prepare_run
from marginweave.runs.process_hardening import closed_to_others, outlive_the_reader, protect_process
from marginweave.runs.progress import reporter, reporting
from marginweave.runs.request import Request, read_request
from marginweave.runs.stopping import obey_signals, take_signals

from ..tasks.aggregate.combinations import aggregate_level, collect_draws, count_records
from ..tasks.aggregate.marginals import collect_marginals, discover_values, measure_larger, measure_one_way, score_pairs
from ..tasks.aggregate.rounds import count_candidates, measure_round, rounds_left
from ..tasks.budget import reserve_budget
from ..tasks.decode import decode
from ..tasks.encode import encode
from ..tasks.evaluate import evaluate
from ..tasks.internal import compare_internally
from ..tasks.normalize import normalize_counts
from ..tasks.paid import buy_evaluation
from ..tasks.preprocess import preprocess, release_bounds
from ..tasks.publish import publish, report_internally
from ..tasks.stage import quiet, stage_of
from ..tasks.synthesize import fit_model, synthesize
from ..tasks.validate import validate
from .prefect import records as prefect_records
from .prefect import run_names
from .prefect.artifacts import shown_in_prefect
from .prefect.environment import ANALYTICS_OFF, SERVICE
from .prefect.records import announced, end_dead_attempts, warn_of_exhaustion
from .prefect.reporting import report_to_prefect
from .prefect.servers import end_with
from .prefect.session import log_to

P = ParamSpec("P")
R = TypeVar("R")
_BACK_OFF_SECONDS = (1.0, 4.0, 16.0)


def as_task(function: Callable[P, R]) -> Task[P, R]:
    """Make a Prefect task of a stage: the one place where a plain function of `tasks/` becomes one.

    No result caching: a cached table would be a copy of private rows outside the checkpoint store. No retries, as a draw may
    only be repeated through the ledger, except for a patient stage, which draws nothing: it waits out a fault of the machine
    (`MachineError`), and no other.
    """
    stage = stage_of(function)
    return task(
        name=stage.name,
        task_run_name=stage.run_name,
        retries=len(_BACK_OFF_SECONDS) if stage.patient else 0,
        retry_delay_seconds=list(_BACK_OFF_SECONDS),
        retry_condition_fn=_is_machine_fault,
        cache_policy=NO_CACHE,
        persist_result=False,
        log_prints=False,
    )(function)


def _is_machine_fault(_task: object, _run: object, state: State[Any]) -> bool:
    return isinstance(state.result(raise_on_failure=False), MachineError)


def _flow_run_name() -> str:
    configuration = Path(str(flow_run.parameters.get("configuration")))
    with suppress(MarginweaveError):  # the flow itself says what is wrong with the configuration
        return run_names.run_name(configuration, flow_run.parameters.get("run"))
    return configuration.stem


@flow(name=run_names.FLOW, flow_run_name=_flow_run_name, retries=0, persist_result=False, log_prints=False)
def release(
    configuration: Annotated[str, Field(min_length=1, examples=["configurations/visits.yaml"])],
    run: Annotated[str | None, Field(examples=["visits-2026-11-20"])] = None,
    source: Annotated[str | None, Field(examples=["extracts/visits.parquet"])] = None,
    home: Annotated[str | None, Field(examples=["/srv/marginweave"])] = None,
    warn_at: Annotated[float, Field(gt=0, le=1, examples=[0.8])] = 0.8,
    supersedes: Annotated[str | None, Field(examples=["visits-2026-08-20"])] = None,
) -> str:
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
        Path of `release/`, or of `proposed/` where the release awaits approval. DP: (epsilon, delta) of the configuration,
        charged to the account of the dataset.

    Raises:
        InputError, BudgetError, StageError: see `marginweave.base.errors`; no message holds a value of the table.
    """
    _settle_in()
    path = Path(configuration)
    with closed_to_others(), announced(flow_run.name or path.stem):
        where = _home_of(home)
        named = run_names.run_name(path, run)
        request = read_request(path, run=named, source=source, home=where, supersedes=supersedes)
        attempt = counted(request) if run_names.deployed_run() else nullcontext()  # a command counts its own
        told = _served(request) if SERVICE in os.environ else nullcontext()
        with attempt, told, record_stop_reason(request.folder):
            quiet("check")(check_request)(request)  # a run that is refused leaves no folder behind
            # An earlier attempt that lives after all ends its release first.
            with run_lock(request.folder, waiting=run_names.is_resumed()):
                private, state = quiet("prepare")(prepare_run)(request)
                end_dead_attempts(private.manifest)
                if state == RunState.RUNNING:
                    reporter().attempt(private.lease)
                    quiet("engine")(prepare_engine)(private)  # before anything is charged
                    with shown_in_prefect(private), TagsContext(current_tags=set()), stops_are_looks(request):
                        # Prefect asks for a slot for each tag that a task inherits; a server on SQLite often refuses it (503)
                        # while it writes something else, and is asked again two seconds later.
                        _release(private)
                if internal_evaluation_due(private):  # reads a release that is fixed, and writes to internal/ only
                    as_task(compare_internally)(private)
                    as_task(report_internally)(private)
                place = place_of_files(request.folder)
            waits = place != request.folder.release
            if SERVICE in os.environ:  # a command says more at its end
                reporter().published(str(place), is_waiting=waits)
        with suppress(BudgetError):  # a ledger that has gone away meanwhile makes no failure of what is released
            warn_of_exhaustion(
                request.folder.run, private.ledger.accounts.total(request.configuration.dataset), warn_at
            )
    prefect_records.announce(flow_run.name or path.stem, awaiting=waits)
    return str(place)


@contextmanager
def _served(request: Request) -> Iterator[None]:
    """Below `marginweave serve`: JSON lines on standard output, and Prefect's log in the service's file."""
    log = service_directory(request.folder.home) / "prefect.log"
    with log_to(log), reporting(None, request.folder.run, request.configuration.dataset):
        yield


def _settle_in() -> None:
    """What the command line has done for a run of its own, and a process that Prefect has started has to do itself."""
    protect_process()
    os.environ.update(ANALYTICS_OFF)
    if service := os.environ.get(SERVICE):
        INTERRUPTION.ours = True
        obey_signals(lambda _: None)
        end_with(int(service), signal.SIGTERM)()
    take_signals()
    if run_names.deployed_run() is not None:
        outlive_the_reader()
        report_to_prefect()


def _home_of(home: str | None) -> Path:
    """The home; a deployment has to name it: a worker's working directory may be a temporary one, removed with all in it."""
    if home is None and run_names.deployed_run() and not os.environ.get("MARGINWEAVE_HOME"):
        raise InputError("home is not set: a deployed release needs MARGINWEAVE_HOME, or the parameter home")
    return home_directory(home)


# Stages that every release has, beside those that count: from validate to publish.
_ALWAYS = 9


def _release(private: RunReference) -> None:
    """The stages, in order."""
    configuration = private.configuration
    plan = with_terms(configuration, plan_budget(configuration))
    stages = _counting_stages(configuration, plan)
    bought, paid = bool(configuration.private_bounds), configuration.evaluate.paid is not None
    fits = isinstance(configuration.synthesize, MixtureSynthesis)
    count = _ALWAYS + bought + fits + paid + len(stages)
    book = Bookkeeper(private.folder, stages=count, wrap=as_task)

    validated = book.stage("validate", validate, private)
    preprocessed = book.stage("preprocess", preprocess, private, validated)
    if bought:  # bounds have to be there before anything is binned
        book.step("budget", reserve_budget, private, plan, getpass.getuser())
        book.stage("release bounds", release_bounds, private, preprocessed)
        encoded = book.stage("encode", encode, private, preprocessed)
    else:
        encoded = book.stage("encode", encode, private, preprocessed)
        book.step("budget", reserve_budget, private, plan, getpass.getuser())
    collected = _count(book, private, encoded, stages)

    public = private.derived  # what is given this alone sees no private file
    normalized = book.stage("normalize", normalize_counts, public, collected)
    parts = {"collect": collected, "normalize": normalized}
    if fits:
        parts["fit"] = book.stage("fit", fit_model, public, normalized)
    synthesized = book.stage("synthesize", synthesize, public, normalized, parts.get("fit"))
    decoded = book.stage("decode", decode, public, synthesized, normalized, private.suites[1])
    parts |= {"synthesize": synthesized, "decode": decoded}
    if paid:  # the last draw, of rows against records that are fixed
        parts["paid"] = book.stage("buy evaluation", buy_evaluation, private, encoded, synthesized, normalized)
    parts["evaluate"] = book.stage("evaluate", evaluate, public, parts)
    return_unused_draws(private)
    staged = staged_release(private.folder, private.lease)
    outputs = book.step("publish", publish, public, staged, private.plan, parts, release_facts(private))
    book.finish(private, outputs)


@dataclass(frozen=True)
class _CountingStage:
    """A stage that counts: its name and function, the stage whose result it is given, and its `number`, if any."""

    name: str
    function: Callable[..., StageResult]
    source: str | None = "encode"
    number: int | None = None


def _counting_stages(configuration: Configuration, plan: BudgetPlan) -> list[_CountingStage]:
    """The stages that make the draws of counts in `plan`, in order; the last one collects what was drawn."""
    if configuration.marginals is None:  # a resized table has a public record count
        records = [_CountingStage("count records", count_records)] if plan.has(DrawKind.COUNT) else []
        lengths = range(1, configuration.reporting_length + 1)
        levels = [_CountingStage(f"aggregate k={k}", aggregate_level, number=k) for k in lengths]
        return [*records, *levels, _CountingStage("collect", collect_draws, None)]
    rounds = sum(draw.kind is DrawKind.MEASURE for draw in plan.draws)
    return [
        *([_CountingStage("discover values", discover_values)] if plan.has(DrawKind.VALUES) else ()),
        _CountingStage("measure one-way", measure_one_way),
        *([_CountingStage("count candidates", count_candidates)] if rounds else ()),
        *(_CountingStage(f"round {n}", measure_round, "count candidates", n) for n in range(1, rounds + 1)),
        *([_CountingStage("select marginals", score_pairs)] if plan.has(DrawKind.SCORES) else ()),
        *([_CountingStage("measure marginals", measure_larger)] if plan.has(DrawKind.MARGINALS) else ()),
        _CountingStage("collect", collect_marginals, None),
    ]


def _count(
    book: Bookkeeper, private: RunReference, encoded: StageResult, stages: Sequence[_CountingStage]
) -> StageResult:
    """The draws of counts, in order, and all of them together: the result of the last stage.

    Rounds end when their shares are used up, which follows from what was drawn.
    """
    results = {"encode": encoded}
    for stage in stages:
        if stage.function is not measure_round or rounds_left(private):
            given = [results[stage.source]] if stage.source is not None else []
            number = [] if stage.number is None else [stage.number]
            results[stage.name] = book.stage(stage.name, stage.function, private, *given, *number)
    return results[stages[-1].name]
