"""The model of cost of docs/scale.md, fitted and tried: python -m benchmarks.scale.workers [--rows 1000000].

Seconds of the counting pass, F + n s / m + 8 c m / B, with n records, m workers and c cells. One worker gives F, s and B; what
two take is then beside what the model says. Workers are processes of this machine, over loopback, of an outside cluster. The
least of three times counts.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from distributed import LocalCluster

from benchmarks.adult import every_combination
from benchmarks.scale.tables import adult
from marginweave.base.parallel import Engine, LocalEngine
from marginweave.checkpoints.spill import set_aside
from marginweave.configuration.execution import EngineSettings, Execution
from marginweave.counts.bounded_counts import bounded_counts
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.cluster import dask_engine
from marginweave.counts.count_runs import MemoryBudget
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.codes import EncodedBlocks, EncodedTable, pack_blocks

FEW, BLOCK, REPEATS = 1000, 1 << 18, 3
WORDS = KeyedBits(key=bytes(32), purpose="workers")


@dataclass(frozen=True, kw_only=True)
class Model:
    """seconds = fixed + records * a_record / workers + 8 * cells * workers / bytes_a_second."""

    fixed: float
    a_record: float
    bytes_a_second: float

    def seconds(self, records: int, workers: int, cells: int) -> float:
        """What the model says."""
        return (
            self.fixed
            + records * self.a_record / workers
            + 8 * cells * workers / self.bytes_a_second
        )


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of one worker: few records and few cells, few and many, many and many."""

    few: float
    cells: float
    records: float


def fit(times: Times, records: int, few_cells: int, cells: int) -> Model:
    """The model through three times of one worker, of `FEW` and of `records` records; no term is below 0."""
    a_record = max(0.0, (times.records - times.cells) / (records - FEW))
    a_byte = max(1e-12, (times.cells - times.few) / (8 * (cells - few_cells)))
    fixed = max(0.0, times.few - FEW * a_record - 8 * few_cells * a_byte)
    return Model(fixed=fixed, a_record=a_record, bytes_a_second=1 / a_byte)


def encoded(records: int, folder: Path) -> EncodedBlocks:
    """So many rows of adult in a checkpoint."""
    table, rng = adult(), np.random.default_rng(records)
    labels = tuple(tuple(values) for values in table.labels.values())

    def blocks() -> Iterator[EncodedTable]:
        for first in range(0, records, BLOCK):
            yield EncodedTable(
                codes=tuple(table.draw(rng, min(BLOCK, records - first))), labels=labels
            )

    return EncodedBlocks(set_aside(folder, bytes(32), pack_blocks(blocks())))


@contextmanager
def workers(number: int, folder: Path) -> Iterator[Engine]:
    """A cluster of so many processes of this machine, which is there already when the clock starts."""
    cluster = LocalCluster(
        n_workers=number,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,  # pyright: ignore[reportArgumentType] - a str by its default alone; None is documented
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        memory_limit=0,
        local_directory=str(folder),
    )
    with cluster, dask_engine(EngineSettings(dask=cluster.scheduler_address), (), folder) as engine:
        yield engine


def seconds(blocks: EncodedBlocks, candidates: CandidateSet, engine: Engine, folder: Path) -> float:
    """The least time of the counting pass with a bound that some records exceed."""
    room = MemoryBudget(Execution().memory, folder)
    bound = math.comb(len(candidates.sizes), candidates.length) * 9 // 10
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        bounded_counts(blocks, candidates, bound, WORDS, engine, room)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def cells_of(candidates: CandidateSet) -> int:
    """Cells of all sets of columns, missing values included."""
    return sum(math.prod(candidates.shape(columns)) for columns in candidates.column_sets())


def measure(records: int, folder: Path) -> Iterator[str]:
    """Lines about threads, one worker, the model, and two workers."""
    few, many = encoded(FEW, folder), encoded(records, folder)
    pairs, triples = (every_combination(few.sizes, length) for length in (2, 3))
    yield f"{records:,} records, {cells_of(triples):,} cells of all triples; seconds of the counting pass"
    for cores in (1, 2):
        seconds(few, triples, LocalEngine(cores), folder)
        yield f"{cores} threads: {seconds(many, triples, LocalEngine(cores), folder):.2f}"
    with workers(1, folder) as engine:
        seconds(few, pairs, engine, folder)  # its code is loaded
        times = Times(
            few=seconds(few, pairs, engine, folder),
            cells=seconds(few, triples, engine, folder),
            records=seconds(many, triples, engine, folder),
        )
    yield f"1 worker: {times.records:.2f}"
    model = fit(times, records, cells_of(pairs), cells_of(triples))
    yield (
        f"model: F = {model.fixed:.3f} s, s = {1e6 * model.a_record:.3f} µs a record, "
        f"B = {model.bytes_a_second / 1e6:,.0f} MB a second"
    )
    with workers(2, folder) as engine:
        seconds(few, triples, engine, folder)
        measured = seconds(many, triples, engine, folder)
    yield f"2 workers: {measured:.2f}, by the model {model.seconds(records, 2, cells_of(triples)):.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.workers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="records of the long table")
    rows = parser.parse_args().rows
    if rows <= FEW:
        parser.error(f"rows ({rows}) must be more than {FEW}")
    with tempfile.TemporaryDirectory() as folder:
        for line in measure(rows, Path(folder)):
            print(line, flush=True)  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
