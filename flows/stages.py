"""Stages of a release, in order: for the Prefect flow, and for a process without Prefect.

Read `_run_in_order` from top to bottom to follow the data: private stages, the draws of noise, then post-processing that gets
no private file.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from marginweave.base.errors import MachineError
from marginweave.base.user import user_name
from marginweave.checkpoints.run_folder import staged_release
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts.engine import prepare_engine
from marginweave.measurements.base import ENCODE, PREPROCESS
from marginweave.released.manifest import RunState
from marginweave.runs.bookkeeping import Bookkeeper, Wrap, release_facts, return_unused_draws
from marginweave.runs.capabilities import RunReference, StageResult
from marginweave.runs.drawing import measurements_in_order
from marginweave.runs.looks import stops_are_looks
from marginweave.runs.preparation import internal_evaluation_due
from marginweave.runs.progress import reporter
from marginweave.runs.request import Request

from ..tasks.aggregate import aggregate, collect, collect_bounds
from ..tasks.budget import reserve_budget
from ..tasks.decode import decode
from ..tasks.encode import encode
from ..tasks.evaluate import evaluate
from ..tasks.internal import compare_internally
from ..tasks.normalize import normalize_counts
from ..tasks.preprocess import preprocess
from ..tasks.publish import publish, report_internally
from ..tasks.stage import quiet, stage_of
from ..tasks.synthesize import fit_model, fit_row_models, synthesize
from ..tasks.validate import validate

P = ParamSpec("P")
R = TypeVar("R")
BACK_OFF_SECONDS = (1.0, 4.0, 16.0)
"""Waits before a patient stage is tried again after a fault of the machine (`MachineError`)."""


def run_in_process(request: Request, private: RunReference) -> None:
    """Run the remaining stages of a prepared run in this process, without Prefect; the caller has the lock of the run.

    It writes the same files as the flow, with the same ledger and checkpoints: each can resume a run that the other began.
    No signal handler and no setting of the process is changed.

    DP: (epsilon, delta) of the configuration, charged to the account of the dataset.

    Raises:
        InputError, BudgetError, StageError: see `marginweave.base.errors`; no message holds a value of the table.
    """
    if private.manifest.state == RunState.RUNNING:
        run_stages(request, private, with_patience)
    compare_where_due(private, with_patience)


def with_patience(function: Callable[P, R]) -> Callable[P, R]:
    """Return a patient stage that is tried again after a fault of the machine, like its Prefect task; any other as it is."""
    if not stage_of(function).patient:
        return function

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for seconds in BACK_OFF_SECONDS:
            try:
                return function(*args, **kwargs)
            except MachineError:
                time.sleep(seconds)
        return function(*args, **kwargs)

    return call


def run_stages(request: Request, private: RunReference, wrap: Wrap) -> None:
    """Run the stages of a run that is in progress, in order, each wrapped by `wrap`."""
    reporter().attempt(private.lease)
    # Before any charge: an engine that does not work stops the run here.
    quiet("engine")(prepare_engine)(
        private.configuration, private.certificates, private.folder.private
    )
    with stops_are_looks(request):
        _run_in_order(private, wrap)


def compare_where_due(private: RunReference, wrap: Wrap) -> None:
    """Compare the records of a fixed release with the table, for its operator alone, where the configuration asks for it."""
    if internal_evaluation_due(private):
        wrap(compare_internally)(private)
        wrap(report_internally)(private)


# Number of stages that every release has, without its draws: from validate to publish.
_FIXED_STAGES = 10


def _run_in_order(private: RunReference, wrap: Wrap) -> None:
    plan = private.planned
    assert plan is not None  # `prepare_run` has made the plan of a run in progress
    draws_before_encode = plan.after(PREPROCESS)
    fits_model = isinstance(private.configuration.synthesize, MixtureSynthesis)
    draws_bounds = bool(private.configuration.private_bounds)
    fits_rows = bool(private.configuration.recorded_tables)
    stages = _FIXED_STAGES + draws_bounds + fits_model + fits_rows + len(plan.draws)
    book = Bookkeeper(private.folder, private.manifest, stages=stages, wrap=wrap)

    validated = book.stage("validate", validate, private)
    preprocessed = book.stage("preprocess", preprocess, private, validated)
    if draws_before_encode:
        book.step("budget", reserve_budget, private, plan, user_name())
        _draw_all(book, private, PREPROCESS, preprocessed)
        if draws_bounds:  # values can only be binned when their bounds are known
            book.stage("collect bounds", collect_bounds, private)
        encoded = book.stage("encode", encode, private, preprocessed)
    else:
        encoded = book.stage("encode", encode, private, preprocessed)
        book.step("budget", reserve_budget, private, plan, user_name())
    _draw_all(book, private, ENCODE, encoded)
    collected = book.stage("collect", collect, private)
    private.remembered.clear()  # not used any more

    public = private.derived  # a stage that gets only this reference sees no private file
    normalized = book.stage("normalize", normalize_counts, public, collected)
    parts = {"collect": collected, "normalize": normalized}
    if fits_model:
        parts["fit"] = book.stage("fit", fit_model, public, normalized)
    if fits_rows:
        parts["fit rows"] = book.stage("fit rows", fit_row_models, public, normalized, parts["fit"])
    synthesized = book.stage("synthesize", synthesize, public, normalized, parts.get("fit"))
    parts["synthesize"] = synthesized
    decoded = book.stage("decode", decode, public, parts, private.suites[1])
    parts["decode"] = decoded
    parts["evaluate"] = book.stage("evaluate", evaluate, public, parts)
    return_unused_draws(private)
    staged = staged_release(private.folder, private.lease)
    outputs = book.step(
        "publish", publish, public, staged, private.plan, parts, release_facts(private)
    )
    book.finish(private, outputs)


def _draw_all(book: Bookkeeper, private: RunReference, stage: str, rows: StageResult) -> None:
    """Draw the measurements of the rows that a stage has written, each when it is due."""
    for measurement in measurements_in_order(private, stage):
        book.stage(f"aggregate {measurement.name}", aggregate, private, rows, measurement.name)
