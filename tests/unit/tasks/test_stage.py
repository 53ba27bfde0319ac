"""A stage tells where it failed, never what a library said."""

from __future__ import annotations

import inspect
import pickle
import threading
import traceback
import warnings

import cloudpickle
import pyarrow as pa
import pytest

from marginweave.base.errors import BudgetError, InputError, OperatorError, StageError
from marginweave.base.parallel import LocalEngine
from marginweave.flows.release import as_task
from marginweave.prepare.clean import clean_table
from marginweave.tasks.stage import quiet, stage, stage_of
from tests.support.configurations import configuration

MARKER = "xq7marker"


def test_a_fault_is_named_by_type_and_place_alone() -> None:
    """What the library said is neither in the message nor in a chained exception."""

    def fail() -> None:
        clean_table(pa.table({"sex": [MARKER]}), configuration())  # lacks the other columns

    with pytest.raises(StageError) as raised:
        quiet("preprocess")(fail)()
    assert str(raised.value).startswith("preprocess failed: KeyError at prepare/clean.py:")
    assert raised.value.__context__ is None

    def quote() -> None:
        raise ValueError(f"cannot parse {MARKER}")

    with pytest.raises(StageError) as quoted:
        quiet("encode")(quote)()
    assert str(quoted.value).startswith("encode failed: ValueError at tasks/stage.py:")
    assert MARKER not in "".join(traceback.format_exception(quoted.value)).replace(
        f'f"cannot parse {MARKER}"', ""
    )


def test_what_a_library_warns_of_is_not_shown() -> None:
    """Neither from the stage nor from its threads, whatever filters stand; and they stand again afterwards."""

    def warn() -> None:
        warnings.warn(f"the least populated class is {MARKER}", stacklevel=1)
        list(LocalEngine().map(lambda _: warnings.warn(MARKER, stacklevel=1), [1, 2]))

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        quiet("evaluate")(warn)()
        assert shown == []
        warn()
        assert len(shown) == 3


def test_stages_of_two_threads_leave_the_filters_of_warnings_as_they_were() -> None:
    """Whichever ends first: the filters belong to the process, and the last one to leave brings them back."""
    first_is_inside, second_is_inside, first_has_left = (
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )

    def first() -> None:
        first_is_inside.set()
        assert second_is_inside.wait(60)

    def second() -> None:
        assert first_is_inside.wait(60)
        second_is_inside.set()
        assert first_has_left.wait(60)
        warnings.warn(MARKER, stacklevel=1)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        threads = [
            threading.Thread(target=quiet("encode")(function)) for function in (first, second)
        ]
        for thread in threads:
            thread.start()
        threads[0].join()
        first_has_left.set()
        threads[1].join()
        assert shown == []
        assert warnings.filters == before


def test_a_broken_rule_of_the_input_is_for_the_operator_only() -> None:
    """What Prefect stores is a constant; the reason stands apart."""

    def refuse() -> None:
        raise InputError(f"column {MARKER} breaks a rule")

    with pytest.raises(OperatorError) as stopped:
        quiet("validate")(refuse)()
    assert MARKER in stopped.value.detail
    assert MARKER not in str(stopped.value) + repr(stopped.value.args)
    assert stopped.value.__context__ is None
    stored = cloudpickle.dumps(stopped.value)  # as Prefect does, into a file that others may read
    assert MARKER.encode() not in stored
    assert pickle.loads(stored).detail == str(stopped.value)


def test_other_errors_of_ours_pass_as_they_are() -> None:
    def refuse() -> None:
        raise BudgetError("no account")

    with pytest.raises(BudgetError, match="no account"):
        quiet("budget")(refuse)()


def test_a_stage_neither_retries_nor_caches() -> None:
    encode = as_task(stage("encode")(lambda: None))
    assert encode.retries == 0
    assert encode.persist_result is False
    assert type(encode.cache_policy).__name__ == "_None"


def test_a_stage_is_a_plain_function_with_a_name() -> None:
    """It can be called as it is, takes what its function takes, and says what its task is called."""

    @stage("aggregate", run_name="aggregate k={length}", patient=True)
    def aggregate(length: int) -> int:
        return 2 * length

    assert inspect.isfunction(aggregate)
    assert aggregate(length=3) == 6
    assert stage_of(aggregate).name == "aggregate"
    task = as_task(aggregate)
    assert (task.name, task.task_run_name, task.retries) == ("aggregate", "aggregate k={length}", 3)
    with pytest.raises(KeyError):
        stage_of(lambda: None)
