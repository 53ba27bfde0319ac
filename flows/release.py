"""One configuration in, one differentially private release out.

Read from top to bottom, `release` is the way of the data: private stages, the draws of noise, then post-processing that is
given no private file.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from marginweave.flows.bookkeeping import (
    Bookkeeper,
    account_statement,
    release_facts,
    run_lock,
    settle,
    told_to_operator,
)
from marginweave.flows.environment import home_directory
from marginweave.flows.mirror import show_in_prefect
from marginweave.flows.preparation import internal_evaluation_due, prepare_run, read_request
from marginweave.schemas.manifest import RunState
from marginweave.tasks.aggregate.task import aggregate_level, collect_draws, count_records
from marginweave.tasks.budget.task import reserve_budget
from marginweave.tasks.decode.task import decode
from marginweave.tasks.door import quiet
from marginweave.tasks.encode.task import encode
from marginweave.tasks.evaluate.internal import compare_internally
from marginweave.tasks.evaluate.task import evaluate
from marginweave.tasks.normalize.task import normalize_counts
from marginweave.tasks.preprocess.task import preprocess
from marginweave.tasks.publish.task import publish
from marginweave.tasks.references import RunReference
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
        Path of `release/`. DP: (epsilon, delta) of the configuration, charged to the account of the dataset.

    Raises:
        InputError, BudgetError, StageError: see `schemas.errors`; no message holds a value of the table.
    """
    place = home_directory(Path(home) if home else None, os.environ)
    request = read_request(Path(configuration), run=run, source=source, home=place)
    with run_lock(request.folder), told_to_operator(request.folder):
        private, state = quiet("prepare")(prepare_run)(request)
        if state != RunState.FINISHED:
            _release(private)
        if internal_evaluation_due(private):  # reads a release that is fixed, and writes to internal/ only
            compare_internally(private)
    return str(request.folder.release)


def _release(private: RunReference) -> None:
    """The stages, in order."""
    configuration = private.configuration
    lengths = range(1, configuration.reporting_length + 1)
    book = Bookkeeper(private.folder, stages=11 + len(lengths))

    validated = book.stage("validate", validate, private)
    preprocessed = book.stage("preprocess", preprocess, private, validated)
    encoded = book.stage("encode", encode, private, preprocessed)

    book.step("budget", reserve_budget, private, getpass.getuser())
    book.stage("count records", count_records, private, encoded)
    for length in lengths:
        book.stage(f"aggregate k={length}", aggregate_level, private, encoded, length)
    collected = book.stage("collect", collect_draws, private)

    public = private.derived  # from here on no stage is given a private file
    normalized = book.stage("normalize", normalize_counts, public, collected)
    synthesized = book.stage("synthesize", synthesize, public, normalized)
    decoded = book.stage("decode", decode, public, synthesized, normalized, private.suites[1])
    evaluated = book.stage("evaluate", evaluate, public, synthesized, normalized)

    parts = {"normalize": normalized, "decode": decoded, "evaluate": evaluated}
    settle(private)
    account, facts = account_statement(private), release_facts(private)
    outputs = book.step("publish", publish, public, private.folder.release, private.plan, parts, account, facts)
    book.finish(private, outputs)
    show_in_prefect(private)
