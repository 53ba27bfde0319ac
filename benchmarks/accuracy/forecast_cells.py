"""Measure what forecasts are judged by: python -m benchmarks.accuracy.forecast_cells [--seconds S].

The default is released in this process on whole tables and on samples of them, with the number of rows declared, at epsilon .3
to 10. Figures are in forecast.jsonl as soon as they are there; a cell that is there, or in small.jsonl, is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.accuracy.figures import Cell, append, current, is_done, read
from benchmarks.accuracy.in_process import InProcess
from benchmarks.accuracy.measures import ALL, SAMPLE, mean_l1
from benchmarks.accuracy.methods import DEFAULT, UNTOLD, settings
from benchmarks.accuracy.more_tables import ADDED, PARTS
from benchmarks.accuracy.tables import SAMPLED, sample_name, table
from benchmarks.scale.watch import Limits

FOLDER = Path(__file__).parent
FIGURES = FOLDER / "forecast.jsonl"
FILES = (FOLDER / "figures.jsonl", FOLDER / "small.jsonl", FIGURES)
EPSILONS, ROWS = (1.0, 10.0, 0.3, 3.0), (1_000, 5_000, 20_000, 100_000)
_WHOLE = 10**6
_LEAST, _LARGE = 500, 0.6
_FEW = 1_200
"""Rows of tables of which there are two releases: one is less certain of small tables."""


def names(part: str) -> Iterator[str]:
    """What is released: whole tables, some columns of them, samples, and the fewest rows."""
    some = [f"{name}+{number}" for name, number in PARTS.items()]
    if part == "whole":
        yield from (sample_name(name, len(table(name).rows), 0) for name in (*ADDED, *some))
    elif part == "samples":
        for rows, name in itertools.product(ROWS, (*ADDED, *SAMPLED, *some)):
            if rows <= _LARGE * len(table(name).rows):
                yield sample_name(name, rows, 0)
    elif part == "untold":
        yield from (sample_name(name, 1_000, 0) for name in (*ADDED, *SAMPLED, *some))
    elif part == "least":
        yield from (sample_name(name, _LEAST, 0) for name in (*ADDED, *SAMPLED, *some))
    else:
        every = (*names("whole"), *names("samples"), *names("least"))
        yield from (f"{name[:-1]}1" for name in every if len(table(name).rows) <= _FEW)


def measured(name: str, rows: list[list[str]]) -> dict[str, float]:
    """The mean TVD of one, two and three columns of synthetic rows."""
    of = table(name)
    real, made = of.codes(of.rows), of.codes(rows)
    sizes = tuple(size + 1 for size in of.sizes)
    return {
        f"tvd{k}": mean_l1(real, made, sizes, k, SAMPLE if k > 2 else ALL) / 2 for k in (1, 2, 3)
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.forecast_cells")
    parser.add_argument(
        "--parts",
        nargs="*",
        default=("whole", "samples", "least", "untold", "again"),
        help="which cells",
    )
    options = parser.parse_args()
    folder = user_cache_path("marginweave-benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    limits = Limits(megabytes=8000, cpu=300, seconds=3000)
    with (
        tempfile.TemporaryDirectory() as place,
        InProcess(Path(place), folder, limits, measured) as runner,
    ):
        for part, epsilon in itertools.product(options.parts, EPSILONS):
            for name in names(part):
                method = UNTOLD if part == "untold" else DEFAULT
                cell = Cell(table=name, epsilon=epsilon, method=method, seed=int(name[-1]))
                if any(is_done(cell, current(read(path), settings)) for path in FILES):
                    continue
                figure = runner.run(cell)
                append(FIGURES, figure)
                sys.stdout.write(
                    f"{name} {epsilon:g}: {figure.failed}{figure['tvd2']:.4f} ({figure['cpu']:.0f} s)\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
