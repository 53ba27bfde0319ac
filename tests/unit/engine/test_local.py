"""Results in order, few of them waiting, once each."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.tasks.engine.local import LocalEngine, in_order


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_results_come_once_and_in_order(parts: list[int], cores: int) -> None:
    assert list(LocalEngine(cores).map(lambda part: part + 1, parts)) == [part + 1 for part in parts]


@given(st.integers(0, 30), st.integers(1, 6))
def test_no_more_than_asked_for_are_begun_ahead(parts: int, ahead: int) -> None:
    begun: list[int] = []

    def submit(part: int):
        begun.append(part)
        return lambda: part

    for taken, result in enumerate(in_order(submit, range(parts), ahead)):
        assert result == taken
        assert len(begun) <= taken + 1 + ahead
    assert begun == list(range(parts))


def test_as_many_parts_as_cores_are_worked_on_at_once() -> None:
    """Two parts that wait for each other end."""
    meeting = threading.Barrier(2, timeout=20)
    assert len(list(LocalEngine(2).map(lambda _: meeting.wait(), [0, 1]))) == 2


def test_an_exception_of_a_part_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(LocalEngine(2).map(lambda part: 1 // part, [1, 0]))
