"""One configuration in, one differentially private release out.

Read from top to bottom, `release` is the way of the data: private stages, the draws of noise, then post-processing that is
given no private file; but for a comparison with the data where one is bought, a draw like the others.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from marginweave.flows.approval import place_of_files
from marginweave.flows.bookkeeping import (
    Bookkeeper,
    account_statement,
    release_facts,
    run_lock,
    settle,
    told_to_operator,
)
from marginweave.flows.environment import home_directory
from marginweave.flows.mirror import shown_in_prefect
from marginweave.flows.preparation import internal_evaluation_due, prepare_run
from marginweave.flows.progress import reporter
from marginweave.flows.protection import protect_process
from marginweave.flows.reconcile import end_dead_attempts
from marginweave.flows.request import read_request
from marginweave.schemas.manifest import RunState
from marginweave.tasks.aggregate.marginals_task import (
    collect_marginals,
    discover_values,
    measure_larger,
    measure_one_way,
    score_pairs,
)
from marginweave.tasks.aggregate.task import aggregate_level, collect_draws, count_records
from marginweave.tasks.budget.task import reserve_budget
from marginweave.tasks.checkpoint.publication import staged_release
from marginweave.tasks.decode.task import decode
from marginweave.tasks.door import quiet
from marginweave.tasks.encode.task import encode
from marginweave.tasks.evaluate.internal import compare_internally
from marginweave.tasks.evaluate.paid_task import buy_evaluation
from marginweave.tasks.evaluate.task import evaluate
from marginweave.tasks.normalize.task import normalize_counts
from marginweave.tasks.preprocess.task import preprocess, release_bounds
from marginweave.tasks.publish.internal import report_internally
from marginweave.tasks.publish.task import publish
from marginweave.tasks.references import RunReference, StageResult
from marginweave.tasks.synthesize.task import synthesize
from marginweave.tasks.validate.task import validate


def _flow_run_name() -> str:
    parameters = flow_run.parameters
    return str(parameters.get("run") or Path(str(parameters.get("configuration"))).stem)


@flow(name="marginweave release", flow_run_name=_flow_run_name, retries=0, persist_result=False, log_prints=False)
def release(configuration: str, run: str | None = None, source: str | None = None, home: str | None = None) -> str:
    """Release the dataset that the configuration file describes and return the folder of the release.

    The same configuration again goes on where a run stopped, or returns the finished release, free of charge.

    Args:
        configuration: path of the YAML file.
        run: name of the run; `<dataset>-<8 hex of the configuration's hash>` if not given.
        source: path of the table, instead of the one in the configuration.
        home: folder in which `runs/` lives; MARGINWEAVE_HOME or the working directory if not given.

    Returns:
        Path of `release/`, or of `proposed/` where the release awaits approval. DP: (epsilon, delta) of the configuration,
        charged to the account of the dataset.

    Raises:
        InputError, BudgetError, StageError: see `schemas.errors`; no message holds a value of the table.
    """
    protect_process()  # the flow process of a worker has no command line of ours
    place = home_directory(Path(home) if home else None, os.environ)
    request = read_request(Path(configuration), run=run, source=source, home=place)
    with run_lock(request.folder), told_to_operator(request.folder):
        private, state = quiet("prepare")(prepare_run)(request)
        end_dead_attempts(private.manifest.release)
        if state == RunState.RUNNING:
            reporter().attempt(private.lease)
            with shown_in_prefect(private):
                _release(private)
        if internal_evaluation_due(private):  # reads a release that is fixed, and writes to internal/ only
            compare_internally(private)
            report_internally(private)
        return str(place_of_files(request.folder))


def _release(private: RunReference) -> None:
    """The stages, in order."""
    configuration = private.configuration
    bought = bool(configuration.private_bounds)
    counting = sum(draw.mechanism != "exponential" for draw in private.plan.draws)  # a stage each
    book = Bookkeeper(private.folder, stages=10 + bought + counting)

    validated = book.stage("validate", validate, private)
    preprocessed = book.stage("preprocess", preprocess, private, validated)
    if bought:  # bounds have to be there before anything is binned
        book.step("budget", reserve_budget, private, getpass.getuser())
        book.stage("release bounds", release_bounds, private, preprocessed)
        encoded = book.stage("encode", encode, private, preprocessed)
    else:
        encoded = book.stage("encode", encode, private, preprocessed)
        book.step("budget", reserve_budget, private, getpass.getuser())
    collected = (_combinations if configuration.marginals is None else _marginals)(book, private, encoded)

    public = private.derived  # what is given this alone sees no private file
    normalized = book.stage("normalize", normalize_counts, public, collected)
    synthesized = book.stage("synthesize", synthesize, public, normalized)
    decoded = book.stage("decode", decode, public, synthesized, normalized, private.suites[1])
    paid = None
    if configuration.evaluate.paid is not None:  # the last draw, of rows against records that are fixed
        paid = book.stage("buy evaluation", buy_evaluation, private, encoded, synthesized, normalized)
    evaluated = book.stage("evaluate", evaluate, public, synthesized, normalized, decoded, collected, paid)

    parts = {"collect": collected, "normalize": normalized, "synthesize": synthesized}
    parts |= {"decode": decoded, "evaluate": evaluated}
    settle(private)
    account, facts = account_statement(private), release_facts(private)
    staged = staged_release(private.folder, private.lease)
    outputs = book.step("publish", publish, public, staged, private.plan, parts, account, facts)
    book.finish(private, outputs)


def _combinations(book: Bookkeeper, private: RunReference, encoded: StageResult) -> StageResult:
    """The draws of k-tuples, in order."""
    if private.configuration.resize is None:  # a resized table has a public number of records
        book.stage("count records", count_records, private, encoded)
    for length in range(1, private.configuration.reporting_length + 1):
        book.stage(f"aggregate k={length}", aggregate_level, private, encoded, length)
    return book.stage("collect", collect_draws, private)


def _marginals(book: Bookkeeper, private: RunReference, encoded: StageResult) -> StageResult:
    """The draws of marginals that are planned, in order."""
    planned = {draw.name for draw in private.plan.draws}
    if "values" in planned:
        book.stage("discover values", discover_values, private, encoded)
    book.stage("measure one-way", measure_one_way, private, encoded)
    if "selection" in planned:
        book.stage("select marginals", score_pairs, private, encoded)
    if "marginals" in planned:
        book.stage("measure marginals", measure_larger, private, encoded)
    return book.stage("collect", collect_marginals, private)
