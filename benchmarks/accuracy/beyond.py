"""Measure what lies beyond marginals, beside peers: python -m benchmarks.accuracy.beyond [--tables …] [--methods …].

Four fifths of the rows of a table, drawn by a public seed, are released; what is learned from the records is tested on the
rest. Figures are in beyond.jsonl as soon as they are there; a cell that is there is not run again. Their section of
docs/accuracy.md is rendered by python -m benchmarks.accuracy --seeds 0 --write.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.accuracy.beyond_measures import MEASURES, measure_beyond
from benchmarks.accuracy.beyond_page import EPSILONS, FIGURES, METHODS, NAMES, SPLITS, cells
from benchmarks.accuracy.figures import append, current, is_done, read
from benchmarks.accuracy.in_process import InProcess
from benchmarks.accuracy.methods import settings
from benchmarks.accuracy.runs import CORES
from benchmarks.scale.watch import Limits


def main() -> None:
    """Measure and print."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    # leaves nothing behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    limits = Limits(megabytes=8000, cpu=options.seconds, seconds=20 * options.seconds)
    folder = user_cache_path("marginweave-benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        InProcess(Path(place), folder, limits, measure_beyond) as runner,
    ):
        for cell in cells(options):
            if is_done(cell, current(read(FIGURES), settings)):
                continue
            figure = runner.run(cell)
            append(FIGURES, figure)
            shown = ", ".join(
                f"{label} {figure[key]:.3f}"
                for key, label in MEASURES.items()
                if key in figure.numbers
            )
            sys.stdout.write(
                f"{cell.table} {cell.epsilon:g} {cell.method}: {figure.failed}{shown} ({figure['cpu']:.0f} s)\n"
            )
            sys.stdout.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.beyond", description=(__doc__ or "")[:59]
    )
    parser.add_argument("--tables", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument(
        "--splits", type=int, default=SPLITS, help=f"how many repetitions; {SPLITS}"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=1800,
        help="CPU seconds after which a peer is stopped; 1800",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
