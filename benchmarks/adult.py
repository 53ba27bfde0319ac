"""CPU seconds and memory of the pure stages on adult_cat.csv (48842 x 14), epsilon 4: python -m benchmarks.adult.

Each stage stands beside a yardstick of the same process: one pass of numpy's bincount over all 364 triples of columns, which
is the least that counting them can cost. Imports, the reading of the file and compiling the kernels are apart. Counting alone
is measured again on a million records drawn from the table, for R = 3 and 4.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from marginweave.base.parallel import LocalEngine
from marginweave.configuration.execution import Execution
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.counts.bounded_counts import BoundedCounts, bounded_counts, contribution_histogram
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.count_runs import MemoryBudget
from marginweave.estimate.normalize import normalize
from marginweave.measurements.levels import draw_level, level_noise, plan_level
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.gaussian import add_noise, count_sigma, noise_sigma, select_percentile
from marginweave.mechanisms.randomness import KeyedBits, fresh_bits
from marginweave.observations.combinations import Aggregates
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedBlocks, EncodedTable, encode_table, pack_blocks
from marginweave.sources.source import TableSource
from tests.support.noisy_counts import collect
from tests.support.places import DATA
from tests.support.synthesized import synthesize_records

T = TypeVar("T")


def adult_configuration() -> Configuration:
    """adult_cat.csv with the public domain that stands beside it."""
    if not (DATA / "adult").is_dir():
        raise SystemExit(
            "the adult table is not here; MARGINWEAVE_TEST_DATA names the folder of the test tables"
        )
    domain = json.loads((DATA / "adult" / "adult_domain.json").read_text(encoding="utf-8"))
    columns = {
        n: {"type": "category", "values": [v for v in values if v]} for n, values in domain.items()
    }
    privacy = {"epsilon": 4.0, "delta": 1.9e-6, "unit": "row"}
    return parse_configuration(
        {
            "dataset": "adult",
            "source": "adult_cat.csv",
            "privacy": privacy,
            "missing": [""],
            "columns": columns,
            "synthesize": {"method": "aggregate-seeded"},
        }
    )


def aggregate(table: EncodedTable, configuration: Configuration) -> Aggregates:
    """All draws of a release, without ledger and checkpoints."""
    plan = plan_budget(configuration)
    candidates = CandidateSet(length=1, sizes=table.sizes)
    levels, noises = [], []
    blocks, engine, room = in_blocks(table), LocalEngine(), ample()
    for k in range(1, configuration.reporting_length + 1):
        cap = configuration.contribution_cap(k)
        histogram = contribution_histogram(blocks, candidates, cap, engine, room)
        epsilon = plan.by_name[f"percentile-{k}"].parameter
        bound = select_percentile(histogram, 99.0, epsilon, configuration.stability, fresh_bits())
        mechanism = plan_level(
            configuration,
            candidates=candidates,
            survivors_before=len(levels[-1]) if levels else 0,
            contribution_bound=bound,
            sigma=noise_sigma(plan.by_name[f"level-{k}"].parameter, bound, configuration.stability),
            delta_threshold=plan.delta_threshold,
        )
        words = KeyedBits(key=os.urandom(32), purpose=f"level-{k}")
        bounded = bounded_counts(blocks, candidates, bound, words, engine, room)
        levels.append(draw_level(bounded, candidates, mechanism, fresh_bits()))
        noises.append(level_noise(mechanism, candidates))
        candidates = CandidateSet.above(levels[-1], table.sizes)
    sd = count_sigma(plan.by_name["count"].parameter, configuration.stability)
    count = int(add_noise(np.array([table.records], np.int64), sd, fresh_bits())[0])
    return collect(configuration.names, table.labels, count, float(sd), levels, noises)


def in_blocks(table: EncodedTable) -> EncodedBlocks:
    """The table as one block in memory."""
    return EncodedBlocks(list(pack_blocks([table])))


def ample() -> MemoryBudget:
    """The memory that a release has if nothing else is asked for."""
    return MemoryBudget(Execution().memory, Path(tempfile.gettempdir()))


def count(blocks: EncodedBlocks, length: int) -> BoundedCounts:
    """Both passes over all combinations of a length, with a bound that one record in a hundred exceeds."""
    candidates = every_combination(blocks.sizes, length)
    cap = math.comb(len(blocks.sizes), length)
    histogram = contribution_histogram(blocks, candidates, cap, LocalEngine(), ample())
    bound = int(np.searchsorted(np.cumsum(histogram), 0.99 * histogram.sum()))
    words = KeyedBits(key=bytes(32), purpose="count")
    return bounded_counts(blocks, candidates, min(bound, cap - 1), words, LocalEngine(), ample())


def every_combination(sizes: tuple[int, ...], length: int) -> CandidateSet:
    """All combinations of a length as candidates."""
    below = {}
    for columns in itertools.combinations(range(len(sizes)), length - 1):
        mask = np.ones([sizes[j] + 1 for j in columns], np.bool_)
        for axis in range(length - 1):
            mask[(slice(None),) * axis + (-1,)] = False
        below[columns] = np.flatnonzero(mask)
    return CandidateSet(length=length, sizes=sizes, survivors=below)


def yardstick(table: EncodedTable) -> None:
    """Count every triple of columns once."""
    for columns in itertools.combinations(range(len(table.codes)), 3):
        flat = np.zeros(table.records, np.int64)
        size = 1
        for j in columns:
            flat = flat * (table.sizes[j] + 1) + table.codes[j]
            size *= table.sizes[j] + 1
        np.bincount(flat, minlength=size)


def measured(name: str, work: Callable[[], T], unit: float | None) -> tuple[T, float]:
    """Run `work` and print its CPU seconds, beside `unit` if given, and the growth of the peak memory."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    result = work()
    seconds = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    ratio = f"{seconds / unit:8.1f} x" if unit else ""
    print(f"{name:<24}{seconds:8.2f} CPU s {grown:8.0f} MB more{ratio}")  # noqa: T201 - a benchmark prints
    return result, seconds


def main() -> None:
    """Print the table."""
    configuration = adult_configuration()
    raw = TableSource(str(DATA / "adult" / "adult_cat.csv"), configuration.source).table(
        configuration.names
    )
    table = encode_table(clean_table(raw, configuration), configuration)
    # compiles
    aggregate(
        EncodedTable(codes=tuple(c[:1000] for c in table.codes), labels=table.labels), configuration
    )
    _, unit = measured("yardstick: 364 triples", lambda: yardstick(table), None)
    aggregates, _ = measured("aggregate", lambda: aggregate(table, configuration), unit)
    normalized, _ = measured("normalize", lambda: normalize(aggregates), unit)
    records, _ = measured(
        "synthesize", lambda: synthesize_records(normalized, configuration.synthesize), unit
    )
    numbers = ", ".join(str(len(level)) for level in normalized.levels)
    print(f"{numbers} combinations of length 1, 2, 3; {len(records)} records")  # noqa: T201

    rows = np.random.default_rng(1).integers(0, table.records, 1_000_000)
    large = EncodedTable(codes=tuple(codes[rows] for codes in table.codes), labels=table.labels)
    blocks = in_blocks(large)
    _, unit = measured("1M: yardstick, triples", lambda: yardstick(large), None)
    measured("1M: count triples", lambda: count(blocks, 3), unit)
    measured("1M: count quadruples", lambda: count(blocks, 4), unit)
    measured("1M: aggregate, R = 3", lambda: aggregate(large, configuration), unit)


if __name__ == "__main__":
    main()
