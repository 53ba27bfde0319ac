"""Results in order, few of them waiting, once each."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.parallel import LocalEngine, in_order


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_many_parts_come_once_and_in_order(parts: list[int], cores: int) -> None:
    assert list(LocalEngine(cores).map_many(lambda part: part + 1, parts)) == [
        part + 1 for part in parts
    ]


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
    meeting = threading.Barrier(2, timeout=120)
    assert len(list(LocalEngine(2).map(lambda _: meeting.wait(), [0, 1]))) == 2
    assert len(list(LocalEngine(2).map_many(lambda _: meeting.wait(), [0, 1]))) == 2


def test_batches_are_few_and_end_at_about_the_same_time() -> None:
    """A thousand parts of two cores are 16 batches of 63 at most, each worked on by one thread at a stretch."""
    seen: list[tuple[int, int]] = []
    list(
        LocalEngine(2).map_many(
            lambda part: seen.append((part, threading.get_ident())), range(1000)
        )
    )
    by_batch = {
        batch: {thread for part, thread in seen if part // 63 == batch} for batch in range(16)
    }
    assert sorted(part for part, _ in seen) == list(range(1000))
    assert all(len(threads) == 1 for threads in by_batch.values())


@pytest.mark.parametrize(("cores", "parts"), [(1, [1, 2, 3]), (4, [1])])
def test_what_nothing_else_runs_beside_needs_no_thread(cores: int, parts: list[int]) -> None:
    threads = set(LocalEngine(cores).map(lambda _: threading.get_ident(), parts))
    assert threads == {threading.get_ident()}
