"""Regressions beside NAPSU-MQ of twinify, on its authors' example: python -m benchmarks.accuracy.napsu [--write].

Raisa, Jalko, Kaski and Honkela 2023, section 5.1: 2,000 rows, two fair coins and y, drawn by a logistic regression on them with
the coefficients 0, 1 and 0. Each sample goes to both, which measure the table of all three columns with the same guarantee
(replaced rows). Figures are in napsu.jsonl as soon as they are there; with --write a section of docs/inference.md is rendered.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from benchmarks.accuracy.environments import PLACE, environment
from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.regressions_page import write_between
from benchmarks.accuracy.runs import fresh
from benchmarks.accuracy.tables import Table
from benchmarks.scale.page import header
from marginweave.inference import regression

FIGURES = Path(__file__).with_name("napsu.jsonl")
ROWS, DELTA, TABLES, LEVEL = 2000, 2.5e-7, 100, 0.95
COLUMNS, TRUTH, EPSILONS = ("a", "b", "y"), (0.0, 1.0, 0.0), (0.3, 1.0)
NAMES = ("intercept", "a", "b")
BEGIN, END = "<!-- napsu: begin -->\n", "<!-- napsu: end -->\n"


def sample(number: int) -> list[list[int]]:
    """The rows of a sample."""
    rng = np.random.default_rng([ROWS, number])
    coins = rng.integers(2, size=(ROWS, 2))
    share = 1 / (1 + np.exp(-(TRUTH[0] + coins @ TRUTH[1:])))
    rows: list[list[int]] = np.column_stack([coins, rng.random(ROWS) < share]).astype(int).tolist()
    return rows


def ours(number: int, epsilon: float, place: Path) -> dict[str, Any]:
    """Intervals from a release."""
    texts = [[str(value) for value in row] for row in sample(number)]
    source, home = (
        Table(header=COLUMNS, rows=texts, domain={name: ["0", "1"] for name in COLUMNS}),
        fresh(place / "home"),
    )
    config = {
        "dataset": "accuracy",
        "source": str(home / "table.csv"),
        "rows": ROWS,
        "privacy": {"epsilon": epsilon, "delta": DELTA, "unit": "row", "neighbors": "replace-one"},
        "missing": [],
        "columns": source.columns(),
        "aggregate": {"method": "marginals", "cliques": [list(COLUMNS)]},
        "synthesize": {"method": "mixture", "seed": number},
    }
    began = time.process_time()
    release_here(home, config, source, (epsilon, DELTA))
    values = {name: {"0": 0.0, "1": 1.0} for name in COLUMNS}
    found = regression(
        home / "runs" / "cell" / "release", "y", ["a", "b"], kind="logistic", values=values
    )
    ends = np.stack([found.low, found.high], axis=1).tolist()
    return {"ends": ends, "cpu": time.process_time() - began}


def theirs(number: int, epsilon: float, place: Path) -> dict[str, Any]:
    """Intervals from twinify, in an environment of its own."""
    python = environment("twinify", user_cache_path("marginweave-benchmarks"))
    if python is None:
        raise SystemExit("pip cannot install twinify in an environment of its own")
    task = {
        "columns": COLUMNS,
        "samples": [sample(number)],
        "epsilon": epsilon,
        "delta": DELTA,
        "tables": TABLES,
        "level": LEVEL,
        "output": str(place / "found.json"),
    }
    (place / "task.json").write_text(json.dumps(task), encoding="utf-8")
    command = [python, PLACE / "programs" / "napsu_mq.py", place / "task.json"]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = json.loads((place / "found.json").read_text(encoding="utf-8"))
    return dict(found)


SYSTEMS = {"marginweave": ours, "twinify": theirs}


def read() -> dict[tuple[str, float, int], dict[str, Any]]:
    """All figures."""
    lines = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.is_file() else []
    return {(f["system"], f["epsilon"], f["sample"]): f for f in map(json.loads, lines)}


def section(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line a system and epsilon."""
    yield from header(
        f"system|epsilon|samples|{'|'.join(f'{name}: covered, width' for name in NAMES)}|CPU s a sample"
    )
    for system, epsilon in sorted({(f["system"], f["epsilon"]) for f in figures}):
        some = [f for f in figures if (f["system"], f["epsilon"]) == (system, epsilon)]
        shown = []
        for place, truth in enumerate(TRUTH):
            ends = [f["ends"][place] for f in some]
            covered = statistics.fmean(low <= truth <= high for low, high in ends)
            shown.append(
                f"{100 * covered:.0f} %, {statistics.median(high - low for low, high in ends):.2f}"
            )
        cpu = statistics.fmean(f["cpu"] for f in some)
        yield f"| {system} | {epsilon:g} | {len(some)} | {' | '.join(shown)} | {cpu:.1f} |"


def main() -> None:
    """Measure what is missing, and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.napsu", description=(__doc__ or "")[:72]
    )
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=tuple(SYSTEMS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument(
        "--samples", type=int, default=60, help="how many of each; 60; 0 for --write alone"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the section of docs/inference.md"
    )
    options = parser.parse_args()
    there = read()
    cells = (
        (s, e, n) for n in range(options.samples) for e in options.epsilons for s in options.systems
    )
    with tempfile.TemporaryDirectory() as place:
        for system, epsilon, number in cells:
            if (system, epsilon, number) not in there:
                found = SYSTEMS[system](number, epsilon, Path(place))
                with FIGURES.open("a", encoding="utf-8") as file:
                    file.write(
                        json.dumps(
                            {"system": system, "epsilon": epsilon, "sample": number, **found}
                        )
                        + "\n"
                    )
    if options.write:
        write_between(BEGIN, END, section(list(read().values())))


if __name__ == "__main__":
    main()
