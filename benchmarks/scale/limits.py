"""How near the parts of a usual release are to what the machine can do: python -m benchmarks.scale.limits [--check].

All three-column marginals of a made-up table of 14 columns at epsilon 1, counted, measured, made consistent, fitted and
sampled by the shipped functions, in one process. Each part stands beside numpy's `bincount` of the same marginals, which is
what counting them costs without this project, and counting also beside a plain copy of the codes that it reads. CPU seconds on
one core, the least of a few times: where two cores share their units, two threads spend more CPU seconds on the same work than
one, and `bincount` has one. With `--check` a ratio of the least seconds of three measurements, one after another, that is half
as much again as `RATIOS` ends it with exit code 1: what else the machine does passes, a slower part stays.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.figures import Figure, figure
from marginweave.base.budget import Stability
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.domain.masks import Clique
from marginweave.estimate.consistency import make_consistent
from marginweave.measurements.marginals import measure_marginals
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.observations.tables import Observation
from marginweave.records.release import EstimationInput, sampler
from marginweave.records.shards import RecordSampler
from tests.support.synthesized import every_record

T = TypeVar("T")
NAME, ROWS, CLASSES, SLOWER, TRIES = "limits", 100_000, 12, 1.5, 3
SIZES = (9, 8, 16, 12, 7, 14, 6, 5, 2, 7, 6, 9, 30, 2)
# CPU seconds over those of numpy's bincount of the same marginals, as measured on 2026-11-26.
RATIOS = {"counts": 0.25, "noise": 0.25, "consistent counts": 4.6, "fit": 13.0, "records": 2.6}


def table(rows: int = ROWS) -> list[NDArray[np.uint8]]:
    """Codes of each column, of rows that fall into a few classes, each with a distribution of its own in every column."""
    rng = np.random.default_rng(14)
    group = rng.integers(0, CLASSES, rows)
    cumulated = [np.cumsum(rng.dirichlet(np.full(size, 0.4), CLASSES), axis=1) for size in SIZES]
    return [(rng.random((rows, 1)) > c[group, :-1]).sum(axis=1).astype(np.uint8) for c in cumulated]


def spent(work: Callable[[], T], times: int = 3) -> tuple[T, float]:
    """The last result, and the least CPU seconds."""
    least = math.inf
    while True:
        begun = time.process_time()
        result = work()
        least, times = min(least, time.process_time() - begun), times - 1
        if not times:
            return result, least


def bincounts(codes: Sequence[NDArray[np.uint8]], cliques: Sequence[Clique]) -> None:
    """Count each marginal with numpy alone."""
    for clique in cliques:
        shape = tuple(SIZES[a] for a in clique)
        np.bincount(
            np.ravel_multi_index([codes[a] for a in clique], shape), minlength=math.prod(shape)
        )


def copies(codes: Sequence[NDArray[np.uint8]], cliques: Sequence[Clique]) -> None:
    """Copy the codes of each marginal, once."""
    for clique in cliques:
        for a in clique:
            codes[a].copy()


def fitted(drawn: Sequence[Observation], rows: int) -> RecordSampler:
    """The usual mixture."""
    known = EstimationInput(
        measured=lambda: (drawn, 1.0), consistent=lambda: drawn, sizes=SIZES, total=rows, masks=()
    )
    return sampler(known, MixtureSynthesis(method="mixture", seed=1))


@contextmanager
def one_core() -> Iterator[None]:
    """Inside, this process has one of its cores; whoever asks how many there are hears of one."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@one_core()
def measured(rows: int = ROWS) -> Figure:
    """CPU seconds of each part."""
    codes, cliques = table(rows), all_cliques(SIZES, 3)
    noise = RoundedGaussian(Stability(records=1, neighbors="add-remove"))
    parts = noise.parts(1 / 0.3, [1 / len(cliques)] * len(cliques))

    def draw(counts: Sequence[NDArray[np.int64]]) -> list[Observation]:
        return list(measure_marginals(noise, counts, cliques, parts, fresh_bits()))

    few = count_marginals([[column[:1000] for column in codes]], SIZES, cliques)
    every_record(fitted(draw(few), 1000))  # compiled code is loaded
    seconds: dict[str, float] = {}
    _, seconds["copy of the codes"] = spent(lambda: copies(codes, cliques))
    _, seconds["numpy's bincount"] = spent(lambda: bincounts(codes, cliques))
    counts, seconds["counts"] = spent(lambda: count_marginals([codes], SIZES, cliques))
    drawn, seconds["noise"] = spent(lambda: draw(counts))
    _, seconds["consistent counts"] = spent(lambda: make_consistent(drawn))
    maker, seconds["fit"] = spent(lambda: fitted(drawn, rows), times=1)
    _, seconds["records"] = spent(lambda: every_record(maker))
    return figure(NAME, rows, len(SIZES), 3, seconds=seconds)


def ratios(found: Figure) -> dict[str, float]:
    """CPU seconds of each part over those of numpy's bincount."""
    return beside_bincount(found["seconds"])


def beside_bincount(seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each part over those of numpy's bincount."""
    return {name: value / seconds["numpy's bincount"] for name, value in seconds.items()}


def slower(seconds: Mapping[str, float]) -> list[str]:
    """The parts whose ratio has grown by half."""
    beside = beside_bincount(seconds)
    return [
        f"{name}: {beside[name]:.2f}, was {was}"
        for name, was in RATIOS.items()
        if beside[name] > SLOWER * was
    ]


def main() -> None:
    """Measure, print, and end with 1 where a ratio has grown."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale.limits", description=__doc__)
    parser.add_argument("--check", action="store_true")
    check, least = parser.parse_args().check, dict[str, float]()
    for _ in range(TRIES):
        found = measured()
        for name, ratio in ratios(found).items():
            print(f"{name:20} {found['seconds'][name]:7.3f} s CPU ({ratio:6.2f} x bincount)")  # noqa: T201 - a benchmark prints
        least = {name: min(s, least.get(name, s)) for name, s in found["seconds"].items()}
        if not check or not slower(least):
            return
    sys.exit("slower than before: " + "; ".join(slower(least)))


if __name__ == "__main__":
    main()
