"""Measure small tables beside peers: python -m benchmarks.accuracy.small [--rows …] [--methods …] [--write].

Samples of public tables, three of each size, are released by our default with `rows:` declared, by single columns alone, with
DPSyn's settings, and by dpmm's MST and AIM. Figures are in small.jsonl as soon as they are there; a cell that is there is not
run again. With --write docs/small-tables.md is rendered from all figures.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.accuracy.figures import Cell, append, current, is_done, read
from benchmarks.accuracy.in_process import InProcess
from benchmarks.accuracy.methods import DEFAULT, DPSYN, INDEPENDENT, settings
from benchmarks.accuracy.runs import CORES
from benchmarks.accuracy.small_measures import MEASURES, measure_small
from benchmarks.accuracy.small_page import SAMPLES, render
from benchmarks.accuracy.tables import SAMPLED, sample_name, table
from benchmarks.scale.watch import Limits
from tests.support.places import REPOSITORY

FIGURES = Path(__file__).with_name("small.jsonl")
PAGE = REPOSITORY / "docs" / "small-tables.md"
SIZES, EPSILONS = (1000, 500, 2000, 5000), (1.0, 0.5, 3.0)
METHODS = (DEFAULT, INDEPENDENT, "dpmm-mst", DPSYN, "dpmm-aim")
ALL = argparse.Namespace(methods=METHODS, rows=SIZES, epsilons=EPSILONS, tables=SAMPLED)


def main() -> None:
    """Measure, print and write."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    # leaves nothing behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    limits = Limits(megabytes=8000, cpu=options.seconds, seconds=20 * options.seconds)
    folder = user_cache_path("marginweave-benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        InProcess(Path(place), folder, limits, measure_small) as runner,
    ):
        for cell in cells(options):
            kept = current(read(FIGURES), settings)
            if is_done(cell, kept):
                continue
            figure = runner.run(cell)
            append(FIGURES, figure)
            errors = ", ".join(
                f"{label} {figure[key]:.3f}"
                for key, label in MEASURES.items()
                if key in figure.numbers
            )
            sys.stdout.write(
                f"{cell.table} {cell.epsilon:g} {cell.method}: {figure.failed}{errors} ({figure['cpu']:.0f} s)\n"
            )
            sys.stdout.flush()
    if options.write:
        figures = current(read(FIGURES), settings).values()
        PAGE.write_text(render(figures, len(cells(ALL))), encoding="utf-8")


def cells(asked: argparse.Namespace) -> tuple[Cell, ...]:
    """The cells of what is asked for; of a table that has no more rows than a size, that is of all of them, once."""
    product = itertools.product(
        asked.methods, asked.rows, asked.epsilons, range(SAMPLES), asked.tables
    )
    return tuple(
        Cell(table=sample_name(name, rows, sample), epsilon=epsilon, method=method, seed=sample)
        for method, rows, epsilon, sample, name in product
        if len(table(name).rows) > rows
        or rows == min(size for size in SIZES if size >= len(table(name).rows))
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.small", description=(__doc__ or "")[:60]
    )
    parser.add_argument("--tables", nargs="*", choices=SAMPLED, default=SAMPLED)
    parser.add_argument("--rows", nargs="*", type=int, choices=SIZES, default=SIZES)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument(
        "--seconds", type=float, default=120, help="CPU seconds after which a cell is stopped; 120"
    )
    parser.add_argument("--write", action="store_true", help="write docs/small-tables.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
