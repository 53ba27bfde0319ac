"""What the tasks of all stages share: a Prefect task that never repeats by itself, never caches, and never quotes data."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.tasks import Task

from marginweave.base.errors import InputError, MachineError, MarginweaveError, OperatorError, StageError, place_of

P = ParamSpec("P")
R = TypeVar("R")

BACK_OFF_SECONDS = (1.0, 4.0, 16.0)


def stage_task(
    stage: str, run_name: str | None = None, *, patient: bool = False
) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a function the Prefect task of `stage`.

    No result caching: a cached frame would be a copy of private rows outside the checkpoint store. No retries, as a draw may
    only be repeated through the ledger, except for a `patient` stage, which draws nothing: it waits out a fault of the machine
    (`MachineError`), and no other.
    """
    as_task = task(
        name=stage,
        task_run_name=run_name or stage,
        retries=len(BACK_OFF_SECONDS) if patient else 0,
        retry_delay_seconds=list(BACK_OFF_SECONDS),
        retry_condition_fn=_is_machine_fault,
        cache_policy=NO_CACHE,
        persist_result=False,
        log_prints=False,
    )
    silence = quiet(stage)

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        return as_task(silence(function))

    return decorate


def _is_machine_fault(_task: object, _run: object, state: State[Any]) -> bool:
    return isinstance(state.result(raise_on_failure=False), MachineError)


def quiet(stage: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let no exception pass whose text depends on the data: Prefect stores and logs it.

    What a library raised becomes a StageError that names its type and place; a broken rule of the input becomes an
    OperatorError, whose reason only the operator is shown. What a library warns of is not shown at all: its text may quote a
    value or a count, and standard error is in the logs of schedulers and of Prefect's workers.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return function(*args, **kwargs)
            except InputError as error:
                replacement: MarginweaveError = OperatorError(str(error))
            except MarginweaveError:
                raise
            except Exception as error:
                kind = MachineError if isinstance(error, OSError) else StageError
                replacement = kind(f"{stage} failed: {type(error).__name__} at {place_of(error)}")
            # Outside the handler, so that the original is not even the context of what Prefect stores and logs.
            raise replacement

        return call

    return decorate
