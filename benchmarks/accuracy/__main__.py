"""Measure how accurate synthetic records are: python -m benchmarks.accuracy [--tables …] [--methods …] [--write].

Every table x epsilon x method x seed is a cell; each is a figure in figures.jsonl as soon as it is there, and a cell that is
there is not run again. So the benchmark can be stopped and started as one likes; without peers it takes hours, with all
of them a day. With --write docs/accuracy.md is rendered anew after each cell, from all figures.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.accuracy import beyond_page, decomposition, forecast
from benchmarks.accuracy.figures import Cell, Figure, append, current, is_done, is_hopeless, read
from benchmarks.accuracy.measures import MEASURES
from benchmarks.accuracy.methods import DEFAULT, METHODS, PEERS, default_method, refusal, settings
from benchmarks.accuracy.page import render
from benchmarks.accuracy.runs import CORES, Runner
from benchmarks.accuracy.tables import TABLES
from benchmarks.scale.watch import Limits
from tests.support.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "accuracy.md"
FIGURES = Path(__file__).with_name("figures.jsonl")
SECTIONS = (beyond_page.section, decomposition.section, forecast.section)
EPSILONS = (0.3, 1.0, 3.0, 10.0)
SEEDS = 3
# times its CPU seconds: a busy machine is no reason to stop, a program that waits for ever is
HANGS = 20


def main() -> None:
    """Measure, print and write."""
    options = _options()
    # of this process and all that it starts
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    # a run that is stopped leaves nothing behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    limits = Limits(
        megabytes=options.megabytes, cpu=options.seconds, seconds=HANGS * options.seconds
    )
    options.cache.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Runner(Path(folder), options.cache, limits) as runner,
    ):
        cells = possible(options, runner)
        for number, cell in missing(cells, options.figures, options.again):
            runner.warm(cell.method)
            figure = runner.run(cell)
            append(options.figures, figure)
            _print(f"[{number}/{len(cells)}] {_described(figure)}")
            if options.write:
                _write(options.figures)
    if options.write:
        _write(options.figures)


def possible(options: argparse.Namespace, runner: Runner) -> Sequence[Cell]:
    """All cells that were asked for, all tables before the next repetition; says which methods have to be left out, and why."""
    left_out = dict(_left_out(options, runner)) if options.seeds else {}
    for method, reason in left_out.items():
        _print(f"{method} is left out: {reason}")
    methods: list[str] = [m for m in options.methods if m not in left_out]
    tables: Sequence[str] = options.tables
    epsilons: Sequence[float] = options.epsilons
    product = itertools.product(range(options.seeds), tables, epsilons, methods)
    cells = (Cell(table=t, epsilon=e, method=_named(m, t, e), seed=s) for s, t, e, m in product)
    return tuple(dict.fromkeys(cells))


def missing(
    cells: Sequence[Cell], figures: Path, again: Sequence[str]
) -> Iterator[tuple[int, Cell]]:
    """Number and cell of what has no figure yet, or is measured again, by what the file holds when the turn comes."""
    for number, cell in enumerate(cells, 1):
        kept = current(read(figures), settings)
        if cell.method in again or not (is_done(cell, kept) or is_hopeless(cell, kept.values())):
            yield number, cell


def _left_out(options: argparse.Namespace, runner: Runner) -> Iterator[tuple[str, str]]:
    for method in options.methods:
        if method in PEERS:
            if runner.peer(method) is None:
                yield (
                    method,
                    f"pip cannot install {PEERS[method].package} in an environment of its own",
                )
        elif reason := refusal(method, options.tables[0], options.epsilons[0]):
            yield method, reason


def _named(method: str, table: str, epsilon: float) -> str:
    """The default is measured as the method of the registry that it is."""
    return default_method(table, epsilon) if method == DEFAULT else method


def _described(figure: Figure) -> str:
    cell = figure.cell
    name = f"{cell.table}, epsilon {cell.epsilon:g}, {cell.method}, seed {cell.seed}"
    cost = f"{figure['cpu']:.0f} CPU s, {figure['wall']:.0f} s, {figure['peak']:.0f} MB"
    if figure.failed:
        return f"{name}: {figure.failed} ({cost})"
    errors = ", ".join(f"{label} {figure[key]:.4f}" for key, label in MEASURES.items())
    return f"{name}: {errors} ({cost})"


def _write(figures: Path) -> None:
    kept = current(read(figures), settings)
    PAGE.write_text(render(kept.values(), default_method, *SECTIONS), encoding="utf-8")


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a benchmark prints


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy", description=(__doc__ or "").splitlines()[0]
    )
    some = "some, as a,b, of"
    parser.add_argument(
        "--tables", type=_of(TABLES), default=TABLES, help=f"{some} {', '.join(TABLES)}"
    )
    parser.add_argument(
        "--methods", type=_of(METHODS), default=METHODS, help=f"{some} {', '.join(METHODS)}"
    )
    parser.add_argument("--epsilons", type=_epsilons, default=EPSILONS, help="as 0.3,1")
    parser.add_argument(
        "--seeds",
        type=_whole,
        default=SEEDS,
        help=f"how many repetitions; {SEEDS}; 0 for --write alone",
    )
    parser.add_argument(
        "--again",
        type=_of(METHODS),
        default=(),
        help="methods to measure again, though they are there",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=1800,
        help="a cell is stopped after so many CPU seconds; 1800",
    )
    parser.add_argument(
        "--megabytes", type=float, default=8000, help="or where it holds so many; 8000"
    )
    parser.add_argument(
        "--figures",
        type=Path,
        default=FIGURES,
        help="the file of figures; figures.jsonl beside the code",
    )
    folder = user_cache_path("marginweave-benchmarks")
    parser.add_argument(
        "--cache", type=_folder, default=folder, help="where environments of peers are kept"
    )
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


def _of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def names(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        unknown = [name for name in given if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"({', '.join(unknown)}) must be of {', '.join(known)}"
            )
        return given

    return names


def _epsilons(text: str) -> tuple[float, ...]:
    try:
        epsilons = tuple(float(part) for part in text.split(","))
    except ValueError:
        epsilons = ()
    if not epsilons or not all(0 < epsilon < math.inf for epsilon in epsilons):
        raise argparse.ArgumentTypeError(f"epsilons ({text}) must be positive numbers")
    return epsilons


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"seeds ({text}) must be a whole number")
    return int(text)


def _folder(text: str) -> Path:
    return Path(text).resolve()


if __name__ == "__main__":
    main()
