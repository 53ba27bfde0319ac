"""Work on all cores, with the results in the order of the work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int = os.cpu_count() or 1
) -> Iterator[Result]:
    """What `function` makes of each item, in the order of the items, however many threads there are.

    At most one item a worker is under way or waits to be taken, so that few results are held at once. `function` should
    leave the interpreter's lock where it works long (compiled code, numpy, pyarrow). What it raises is raised here.
    """
    left = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        under_way = deque(pool.submit(function, item) for item in islice(left, workers))
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(pool.submit(function, item) for item in islice(left, 1))
            yield result
