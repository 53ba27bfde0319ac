"""Seconds that Prefect adds to the example release, beyond the start of its server: python -m tests.benchmarks.orchestration.

In one process with a server that is up, the flow runs as it is and, in turn with it, the same code without Prefect: flow and
tasks as plain functions, no events, no artifacts. The difference of the medians is what orchestration costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from marginweave.flows.orchestration.session import prefect_session

EXAMPLE = Path(__file__).resolve().parents[2] / "deployments" / "examples" / "affairs.yaml"
REPEATS = 5


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def without_prefect() -> Iterator[None]:
    """Tasks are the functions that they wrap, and nothing is told to the server."""
    import prefect.artifacts
    from prefect import Task

    from marginweave.flows.run import prefect_records

    def call(task: Task[..., Any], *arguments: Any, **named: Any) -> Any:
        return task.fn(*arguments, **named)

    def nothing(*_: Any, **__: Any) -> None:
        return None

    artifacts = [f"create_{kind}_artifact" for kind in ("link", "markdown", "table")]
    places = [(Task, "__call__", call), (prefect_records, "emit_event", nothing)]
    places += [(prefect.artifacts, name, nothing) for name in artifacts]
    before = [getattr(place, name) for place, name, _ in places]
    for place, name, plain in places:
        setattr(place, name, plain)
    try:
        yield
    finally:
        for (place, name, _), old in zip(places, before, strict=True):
            setattr(place, name, old)


def main() -> None:
    """Print both times and their difference."""
    with TemporaryDirectory() as folder, prefect_session(Path(folder), Path(folder)):
        from marginweave.flows import release

        def run(number: int, flow: Callable[..., object]) -> float:
            # Account after account, so that every release fits its cap and finds a ledger of the same size.
            home = Path(folder) / f"{flow.__class__.__name__}-{number}"
            return seconds(lambda: flow(str(EXAMPLE), home=str(home)))

        run(-1, release)  # imports and compiled kernels
        times: dict[str, list[float]] = {"with": [], "without": []}
        for number in range(REPEATS):
            times["with"].append(run(number, release))
            with without_prefect():
                times["without"].append(run(number, release.fn))
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, value in middle.items():
        print(f"{name:8} Prefect {value:6.2f} s   {' '.join(f'{one:.2f}' for one in times[name])}")  # noqa: T201 - a benchmark prints
    print(f"orchestration   {middle['with'] - middle['without']:6.2f} s")  # noqa: T201


if __name__ == "__main__":
    main()
