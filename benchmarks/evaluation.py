"""Seconds and memory of the evaluation, 1,000,000 x 14 records, all 364 triples: python -m benchmarks.evaluation.

Two tables of unequal domains. The yardstick of the same process is a groupby of pandas over a few triples of both tables,
multiplied up to all of them; the budget is 30 s on two cores and 1 GB.
"""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from marginweave.domain.labels import Domain
from marginweave.evaluate.agreement import (
    bucket_sums,
    combination_sums,
    known_distance,
    total_variation,
)
from marginweave.evaluate.association import association
from marginweave.evaluate.cells import Cells, Comparison, Records
from marginweave.evaluate.metrics import evaluate_internal

ROWS = 1_000_000
SIZES = (2, 2, 3, 5, 6, 7, 9, 14, 16, 16, 42, 75, 100, 1000)
GROUPED = 6
LIMIT, MEMORY = 30.0, 1000.0


def skewed_table(seed: int) -> list[np.ndarray]:
    """Codes of geometric frequencies, a few missing."""
    rng = np.random.default_rng(seed)
    return [
        np.minimum(rng.geometric(3 / (size + 3), ROWS) - 1, size).astype(np.uint16)
        for size in SIZES
    ]


def pandas_seconds(tables: Sequence[list[np.ndarray]]) -> float:
    """Seconds of counting all triples of both tables with pandas, from a sample of them."""
    frames = [pd.DataFrame(dict(enumerate(table))) for table in tables]
    triples = list(itertools.combinations(range(len(SIZES)), 3))
    chosen = triples[:: len(triples) // GROUPED][:GROUPED]
    start = time.perf_counter()
    for triple in chosen:
        for frame in frames:
            frame.groupby(list(triple)).size()
    return (time.perf_counter() - start) / len(chosen) * len(triples)


def peak() -> int:
    """The most memory that the process has held so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def compare(cells: Cells) -> tuple[object, ...]:
    """All that the evaluation makes of a triple."""
    return (
        combination_sums(cells),
        bucket_sums(cells),
        known_distance(cells, ROWS, ROWS),
        total_variation(cells),
    )


def main() -> None:
    """Print the table."""
    tables = skewed_table(1), skewed_table(2)
    domain = Domain(
        names=tuple(f"c{size}.{j}" for j, size in enumerate(SIZES)),
        labels=tuple(tuple(str(v) for v in range(size)) for size in SIZES),
    )
    one, other = ([codes[:1000] for codes in table] for table in tables)
    evaluate_internal(one, other, domain)  # compiles and imports
    before = peak()
    start = time.perf_counter()
    comparison = Comparison(
        reference=Records([tables[0]], domain),
        synthetic=Records([tables[1]], domain),
        sizes=domain.sizes,
    )
    places = range(len(SIZES))
    triples = list(itertools.combinations(places, 3))
    comparison.measure(triples, lambda cells: len(cells.keys))
    counted = time.perf_counter()
    comparison.measure(triples, compare)
    compared = time.perf_counter()
    association(
        comparison,
        domain.names,
        places,
        list(itertools.combinations(places, 2)),
        sigmas={},
        dependent={},
    )
    associated = time.perf_counter()
    grown = (peak() - before) / 1024
    evaluate_internal(*tables, domain)
    evaluated = time.perf_counter()
    whole = peak() / 1024
    unit = pandas_seconds(tables)
    rows = {
        "count 364 triples": counted - start,
        "count and compare them": compared - counted,
        "association of pairs": associated - compared,
        "whole evaluation": evaluated - associated,
        "pandas: count 364 triples": unit,
    }
    for name, seconds in rows.items():
        print(f"{name:<28}{seconds:8.1f} s{seconds / unit:8.3f} x pandas")  # noqa: T201 - a benchmark prints
    verdict = "within" if compared - counted <= LIMIT and grown <= MEMORY else "MORE than"
    print(f"{grown:.0f} MB more; triples are {verdict} {LIMIT:g} s and {MEMORY:g} MB")  # noqa: T201
    print(f"{whole:.0f} MB at most in the process, both tables and the whole evaluation included")  # noqa: T201


if __name__ == "__main__":
    main()
