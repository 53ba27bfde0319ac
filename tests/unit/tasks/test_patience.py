"""Input and output stages wait out a fault of the machine; nothing else is ever tried again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from prefect.states import Failed

from marginweave.base.errors import BudgetError, InputError, MachineError, StageError
from marginweave.flows.release import as_task
from marginweave.flows.stages import with_patience
from marginweave.tasks.aggregate import aggregate, collect
from marginweave.tasks.budget import reserve_budget
from marginweave.tasks.publish import publish
from marginweave.tasks.stage import quiet, stage
from marginweave.tasks.validate import validate


@pytest.mark.parametrize("drawing", [aggregate, collect, reserve_budget])
def test_stages_that_draw_or_charge_are_never_retried(drawing: Callable[..., object]) -> None:
    assert as_task(drawing).retries == 0


@pytest.mark.parametrize("patient", [validate, publish])
def test_only_a_fault_of_the_machine_is_retried(patient: Callable[..., object]) -> None:
    task = as_task(patient)
    assert task.retries == 3
    assert task.retry_condition_fn is not None
    for error in (
        MachineError("x"),
        StageError("x"),
        InputError("x"),
        BudgetError("x"),
        ValueError("x"),
    ):
        retried = task.retry_condition_fn(task, None, Failed(data=error))  # pyright: ignore[reportArgumentType]
        assert retried is isinstance(error, MachineError)


def _failing(name: str, *, patient: bool, faults: int) -> tuple[Callable[[], str], list[int]]:
    """A stage that meets so many faults of the machine before it succeeds, and a list that grows with each call."""
    calls: list[int] = []

    @stage(name, patient=patient)
    def call() -> str:
        calls.append(len(calls))
        if len(calls) <= faults:
            raise MachineError("the disk is full")
        return "done"

    return call, calls


def test_without_prefect_a_patient_stage_waits_as_long_as_its_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    function, calls = _failing("publish", patient=True, faults=3)
    assert with_patience(function)() == "done"
    assert waited == as_task(function).retry_delay_seconds
    assert len(calls) == 4
    function, calls = _failing("publish", patient=True, faults=4)
    with pytest.raises(MachineError):
        with_patience(function)()
    assert len(calls) == 4


def test_without_prefect_a_stage_that_draws_is_tried_once() -> None:
    function, calls = _failing("aggregate", patient=False, faults=1)
    with pytest.raises(MachineError):
        with_patience(function)()
    assert calls == [0]


@pytest.mark.parametrize(
    ("error", "kind"), [(OSError(28, "full"), MachineError), (ValueError("x"), StageError)]
)
def test_a_foreign_error_is_the_machines_if_the_system_says_so(
    error: Exception, kind: type[Exception]
) -> None:
    @quiet("publish")
    def fails() -> None:
        raise error

    with pytest.raises(StageError) as caught:
        fails()
    assert type(caught.value) is kind
