"""Defines engines, which apply functions to parts of a table, and one that needs no library: threads of this process."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

# batches of many parts for each core: enough that all cores end at about the same time
_BATCHES = 8
T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # macOS lacks it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Engine(Protocol):
    """Applies pure functions to parts of a table.

    The results are the same for every engine: a function of the parts and nothing else, each part's result once and in
    order. A function that is mapped can be pickled with its data; it may be called more than once for a part.
    """

    @property
    def cores(self) -> int:
        """Number of parts that are worked on at once: a fact about machines, not about the table."""
        ...

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """Yield `function` of each of the `parts`, in order; only a few results wait in memory."""
        ...


@dataclass(frozen=True)
class LocalEngine:
    """An engine of threads, for functions that release the interpreter's lock: numba, numpy and pyarrow do."""

    cores: int = field(default_factory=available_cores)

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """Yield `function` of each part, as `Engine.map`; at most one part or result a core is in memory."""
        if min(self.cores, len(parts)) == 1:  # a single thread would gain nothing
            yield from map(function, parts)
            return
        with ThreadPoolExecutor(self.cores) as pool:
            yield from in_order(lambda part: pool.submit(function, part).result, parts, self.cores)

    def map_many(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """Yield `function` of each of many small parts; a thread takes a batch of them at a time."""
        size = -(-len(parts) // (_BATCHES * self.cores)) or 1
        batches = [parts[first : first + size] for first in range(0, len(parts), size)]
        for results in self.map(lambda batch: list(map(function, batch)), batches):
            yield from results


def in_order(submit: Callable[[T], Callable[[], R]], parts: Sequence[T], ahead: int) -> Iterator[R]:
    """Yield the result of each of the parts, in their order; at most `ahead` of them are submitted before they are taken.

    `submit` begins the work on a part and returns a function that waits for its result.
    """
    waiting: deque[Callable[[], R]] = deque()
    for part in parts:
        if len(waiting) == ahead:
            yield waiting.popleft()()
        waiting.append(submit(part))
    while waiting:
        yield waiting.popleft()()
