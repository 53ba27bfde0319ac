"""What an engine does, and the one that needs nothing: threads of this process."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

_BATCHES = 8  # of many parts, for each core: so many that all end at about the same time
T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS lacks it


class Engine(Protocol):
    """Applies pure functions to parts of a table.

    What comes out is the same whatever the engine is: a function of the parts and nothing else, each part's result once and in
    order. A function that is mapped, and what it holds, can be pickled; it may be called more than once for a part.
    """

    @property
    def cores(self) -> int:
        """How many parts are worked on at once: a fact about machines, not about the table."""
        ...

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """`function` of each of the `parts`, in order; only a few results wait to be taken."""
        ...


@dataclass(frozen=True)
class LocalEngine:
    """Threads, for functions that release the interpreter's lock: numba, numpy and pyarrow do."""

    cores: int = field(default_factory=available_cores)

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """See `Engine`; at most one part a core is under way or waits to be taken, so that few results are in memory."""
        if min(self.cores, len(parts)) == 1:  # a thread would be started and waited for, and nothing else
            yield from map(function, parts)
            return
        with ThreadPoolExecutor(self.cores) as pool:
            yield from in_order(lambda part: pool.submit(function, part).result, parts, self.cores)

    def map_many(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """The same for many parts of little work: threads are given some of them at a time, not each by itself."""
        batch = -(-len(parts) // (_BATCHES * self.cores)) or 1
        batches = [parts[first : first + batch] for first in range(0, len(parts), batch)]
        for results in self.map(lambda some: [function(part) for part in some], batches):
            yield from results


def in_order(submit: Callable[[T], Callable[[], R]], parts: Sequence[T], ahead: int) -> Iterator[R]:
    """What is submitted for each of the parts, in their order, at most `ahead` of them before they are taken.

    `submit` begins the work on a part and returns how to wait for it.
    """
    waiting: deque[Callable[[], R]] = deque()
    for part in parts:
        if len(waiting) == ahead:
            yield waiting.popleft()()
        waiting.append(submit(part))
    while waiting:
        yield waiting.popleft()()
