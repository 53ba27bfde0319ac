"""Input and output stages wait out a fault of the machine; nothing else is ever tried again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prefect.states import Failed

from marginweave.base.errors import BudgetError, InputError, MachineError, StageError
from marginweave.flows.release import as_task
from marginweave.tasks.aggregate.combinations import aggregate_level, collect_draws, count_records
from marginweave.tasks.budget import reserve_budget
from marginweave.tasks.publish import publish
from marginweave.tasks.stage import quiet
from marginweave.tasks.validate import validate


@pytest.mark.parametrize("stage", [count_records, aggregate_level, collect_draws, reserve_budget])
def test_stages_that_draw_or_charge_are_never_retried(stage: Callable[..., object]) -> None:
    assert as_task(stage).retries == 0


@pytest.mark.parametrize("stage", [validate, publish])
def test_only_a_fault_of_the_machine_is_retried(stage: Callable[..., object]) -> None:
    task = as_task(stage)
    assert task.retries == 3
    assert task.retry_condition_fn is not None
    for error in (MachineError("x"), StageError("x"), InputError("x"), BudgetError("x"), ValueError("x")):
        retried = task.retry_condition_fn(task, None, Failed(data=error))  # pyright: ignore[reportArgumentType]
        assert retried is isinstance(error, MachineError)


@pytest.mark.parametrize(("error", "kind"), [(OSError(28, "full"), MachineError), (ValueError("x"), StageError)])
def test_a_foreign_error_is_the_machines_if_the_system_says_so(error: Exception, kind: type[Exception]) -> None:
    @quiet("publish")
    def fails() -> None:
        raise error

    with pytest.raises(StageError) as caught:
        fails()
    assert type(caught.value) is kind
