"""Measure whole releases and the ratio to pac-synth: python -m benchmarks.scale [--rows …] [--only …] [--write].

Every figure is printed, appended to FOLDER/figures.jsonl and, with --write, entered into docs/benchmarks.md at once:
what is cut short keeps what it had. All of it takes about an hour; `--rows 10000` takes five minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from benchmarks import start
from benchmarks.scale import limits, ratio
from benchmarks.scale.checks import CHECKS, checked
from benchmarks.scale.figures import Figure, append, read
from benchmarks.scale.page import (
    check_lines,
    limit_lines,
    ratio_lines,
    render,
    run_lines,
    stage_lines,
    start_lines,
)
from benchmarks.scale.releases import CASES, measured
from tests.support.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "benchmarks.md"
ALONE: dict[str, Callable[[], Figure]] = {
    limits.NAME: limits.measured,
    start.NAME: start.figure_of_all,
}
NAMES = (*CASES, *CHECKS, ratio.NAME, *ALONE)


def main() -> None:
    """Measure, print and write."""
    options = _options()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        _measure(options, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        _measure(options, Path(folder))


def _measure(options: argparse.Namespace, folder: Path) -> None:
    names = [name for name in options.only if name in CASES]
    runs = measured(names, options.rows, folder)
    checks = checked([name for name in options.only if name in CHECKS], options.rows, folder)
    ratios: Iterator[Figure] = (
        ratio.compared(options.rows, folder) if ratio.NAME in options.only else iter(())
    )
    alone = (measure() for name, measure in ALONE.items() if name in options.only)
    kept = folder / "figures.jsonl"
    for figure in chain(runs, checks, ratios, alone):
        append(kept, figure)
        _print(figure)
        if options.write:
            figures = read(kept)
            PAGE.write_text(render(figures, _covered(figures, options.rows)), encoding="utf-8")


def _covered(figures: Sequence[Figure], rows: Sequence[int] | None) -> str:
    """What of the command made these figures, which may be of several runs with one folder."""
    names = tuple(name for name in NAMES if any(figure.name == name for figure in figures))
    said = [f"--rows {','.join(map(str, rows))}"] if rows else []
    said += [f"--only {','.join(names)}"] if names != NAMES else []
    return "with `" + " ".join(said) + "`" if said else "all of it"


def _print(figure: Figure) -> None:
    lines_of = {ratio.NAME: ratio_lines, limits.NAME: limit_lines, start.NAME: start_lines}
    lines_of |= dict.fromkeys(CHECKS, check_lines)
    lines = list(lines_of.get(figure.name, run_lines)([figure]))
    if figure.name in CASES and not figure.failed:
        lines += ["", *stage_lines(figure)]
    print("\n".join(lines), end="\n\n", flush=True)  # noqa: T201 - a benchmark prints


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--rows", type=_numbers, help="numbers of rows, as 10000,50000, instead of each table's own"
    )
    parser.add_argument("--only", type=_names, default=NAMES, help=f"which of {', '.join(NAMES)}")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    text = "keeps tables, environment and figures for the next time; a temporary one, removed at the end, if not given"
    parser.add_argument("--folder", type=lambda text: Path(text).resolve(), help=text)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if not all(number >= 100 for number in numbers):
        raise argparse.ArgumentTypeError(f"rows ({text}) must be at least 100")
    return numbers


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"only ({', '.join(unknown)}) must be of {', '.join(NAMES)}"
        )
    return names


if __name__ == "__main__":
    main()
