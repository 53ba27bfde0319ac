"""The stages of a release, in order: what the Prefect flow runs, and what a process runs without Prefect.

Read from top to bottom, `_run_in_order` is the way of the data: private stages, the draws of noise, then post-processing that
is given no private file.
"""

from __future__ import annotations

import functools
import getpass
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from marginweave.base.errors import MachineError
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
from ..tasks.synthesize import fit_model, synthesize
from ..tasks.validate import validate

P = ParamSpec("P")
R = TypeVar("R")
BACK_OFF_SECONDS = (1.0, 4.0, 16.0)
"""What a patient stage waits before it is tried again after a fault of the machine (`MachineError`)."""


def run_in_process(request: Request, private: RunReference) -> None:
    """Run what is left of a prepared run in this process, without Prefect; the caller has the lock of the run.

    The same files as the flow writes, under the same ledger and checkpoints: either continues what the other began.
    No signal handler and no setting of the process is changed.

    DP: (epsilon, delta) of the configuration, charged to the account of the dataset.

    Raises:
        InputError, BudgetError, StageError: see `marginweave.base.errors`; no message holds a value of the table.
    """
    if private.manifest.state == RunState.RUNNING:
        run_stages(request, private, with_patience)
    compare_where_due(private, with_patience)


def with_patience(function: Callable[P, R]) -> Callable[P, R]:
    """Try a patient stage again after a fault of the machine, as its Prefect task does; any other stage is as it is."""
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
    """Run the stages of a run that is under way, in order; `wrap` makes of each what is called in its place."""
    reporter().attempt(private.lease)
    quiet("engine")(prepare_engine)(
        private.configuration, private.certificates, private.folder.private
    )  # before any charge
    with stops_are_looks(request):
        _run_in_order(private, wrap)


def compare_where_due(private: RunReference, wrap: Wrap) -> None:
    """Compare the records of a fixed release with the table, for its operator alone, where the configuration asks for it."""
    if internal_evaluation_due(private):
        wrap(compare_internally)(private)
        wrap(report_internally)(private)


# Stages that every release has, beside its draws: from validate to publish.
_ALWAYS = 10


def _run_in_order(private: RunReference, wrap: Wrap) -> None:
    plan = private.planned
    assert plan is not None  # `prepare_run` has planned what is under way
    bought = plan.after(PREPROCESS)
    fits = isinstance(private.configuration.synthesize, MixtureSynthesis)
    buys_bounds = bool(private.configuration.private_bounds)
    count = _ALWAYS + buys_bounds + fits + len(plan.draws)
    book = Bookkeeper(private.folder, private.manifest, stages=count, wrap=wrap)

    validated = book.stage("validate", validate, private)
    preprocessed = book.stage("preprocess", preprocess, private, validated)
    if bought:
        book.step("budget", reserve_budget, private, plan, getpass.getuser())
        _draw_all(book, private, PREPROCESS, preprocessed)
        if buys_bounds:  # they have to be there before anything is binned
            book.stage("collect bounds", collect_bounds, private)
        encoded = book.stage("encode", encode, private, preprocessed)
    else:
        encoded = book.stage("encode", encode, private, preprocessed)
        book.step("budget", reserve_budget, private, plan, getpass.getuser())
    _draw_all(book, private, ENCODE, encoded)
    collected = book.stage("collect", collect, private)
    private.remembered.clear()  # of no use any more

    public = private.derived  # what is given this alone sees no private file
    normalized = book.stage("normalize", normalize_counts, public, collected)
    parts = {"collect": collected, "normalize": normalized}
    if fits:
        parts["fit"] = book.stage("fit", fit_model, public, normalized)
    synthesized = book.stage("synthesize", synthesize, public, normalized, parts.get("fit"))
    decoded = book.stage("decode", decode, public, synthesized, normalized, private.suites[1])
    parts |= {"synthesize": synthesized, "decode": decoded}
    parts["evaluate"] = book.stage("evaluate", evaluate, public, parts)
    return_unused_draws(private)
    staged = staged_release(private.folder, private.lease)
    outputs = book.step("publish", publish, public, staged, private.plan, parts, release_facts(private))
    book.finish(private, outputs)


def _draw_all(book: Bookkeeper, private: RunReference, stage: str, rows: StageResult) -> None:
    """The measurements of the rows that a stage has left, each when it is due."""
    for measurement in measurements_in_order(private, stage):
        book.stage(f"aggregate {measurement.name}", aggregate, private, rows, measurement.name)
