"""A door tells where it failed, never what a library said."""

from __future__ import annotations

import traceback

import pyarrow as pa
import pytest

from marginweave.schemas.errors import InputError, StageError
from marginweave.tasks.door import quiet, stage_task
from marginweave.tasks.preprocess.clean import clean_table
from tests.support.configurations import configuration

MARKER = "xq7marker"


def test_a_fault_is_named_by_type_and_place_alone() -> None:
    """What the library said is neither in the message nor in a chained exception."""

    def fail() -> None:
        clean_table(pa.table({"sex": [MARKER]}), configuration())  # lacks the other columns

    with pytest.raises(StageError) as raised:
        quiet("preprocess")(fail)()
    assert str(raised.value).startswith("preprocess failed: KeyError at tasks/preprocess/clean.py:")
    assert raised.value.__context__ is None

    def quote() -> None:
        raise ValueError(f"cannot parse {MARKER}")

    with pytest.raises(StageError) as quoted:
        quiet("encode")(quote)()
    assert str(quoted.value).startswith("encode failed: ValueError at tasks/door.py:")
    assert MARKER not in "".join(traceback.format_exception(quoted.value)).replace(f'f"cannot parse {MARKER}"', "")


def test_an_error_of_ours_passes_as_it_is() -> None:
    def refuse() -> None:
        raise InputError("epsilon (-1.0) must be positive")

    with pytest.raises(InputError, match=r"epsilon \(-1.0\) must be positive"):
        quiet("validate")(refuse)()


def test_a_door_neither_retries_nor_caches() -> None:
    door = stage_task("encode")(lambda: None)
    assert door.retries == 0
    assert door.persist_result is False
    assert type(door.cache_policy).__name__ == "_None"
