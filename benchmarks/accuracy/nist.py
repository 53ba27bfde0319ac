"""NIST's scores of ma2019, beside a peer: python -m benchmarks.accuracy.nist [--sets …] [--methods …] [--write].

The four feature sets of NIST's Collaborative Research Cycle at epsilon 1 and 10: our default with the rules of the data
dictionary declared, dpmm's MST, and 40 % of the rows as a yardstick, scored by SDNist from PyPI in an environment of its own.
Figures are in nist.jsonl as soon as they are there; a cell that is there is not run again. With --write docs/sdnist.md is
rendered from all figures.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.accuracy.environments import PLACE, environment
from benchmarks.accuracy.figures import Cell, Figure, append, current, is_done, is_hopeless, read
from benchmarks.accuracy.in_process import InProcess
from benchmarks.accuracy.methods import DEFAULT, PEERS, SUBSAMPLE, settings
from benchmarks.accuracy.nist_page import MEASURES, render
from benchmarks.accuracy.nist_tables import BINNED, DICTIONARY, PREFIX, SETS, TABLE, unbinned
from benchmarks.accuracy.runs import CORES, Rows, figure, fresh
from benchmarks.accuracy.tables import table
from benchmarks.scale.watch import Limits, Watched
from tests.support.places import REPOSITORY

FIGURES = Path(__file__).with_name("nist.jsonl")
PAGE = REPOSITORY / "docs" / "sdnist.md"
EPSILONS, SEEDS = (1.0, 10.0), 3
METHODS = (DEFAULT, "dpmm-mst", SUBSAMPLE)
ALL = argparse.Namespace(methods=METHODS, epsilons=EPSILONS, sets=tuple(SETS), seeds=SEEDS)


@dataclass
class Scored(InProcess):
    """Runs cells and has SDNist score their records; a peer that knows of categories alone gets bins."""

    def score(self, cell: Cell, rows: Rows) -> dict[str, float]:
        """What SDNist says of records."""
        place = fresh(self.folder / "scores")
        with (place / "records.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([table(cell.table).header, *rows])
        task = {
            "table": TABLE,
            "dictionary": DICTIONARY,
            "records": "records.csv",
            "output": "scores.json",
        }
        (place / "task.json").write_text(json.dumps(task, default=str), encoding="utf-8")
        python = environment("sdnist", self.cache)
        if python is None:
            raise SystemExit(
                "pip cannot install sdnist in an environment of its own: nothing can be scored"
            )
        command = [python, PLACE / "programs" / "sdnist_scores.py", "task.json"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads((place / "scores.json").read_text(encoding="utf-8"))

    def run(self, cell: Cell) -> Figure:
        """Make the records and score them."""
        seen, rows = self._rows(cell)
        numbers = {"wall": seen.wall, "cpu": seen.cpu, "peak": seen.peak, "records": len(rows)}
        ended = seen.ended or ("" if rows else "no records")
        return figure(cell, numbers | ({} if ended else self.score(cell, rows)) | {"ended": ended})

    def _rows(self, cell: Cell) -> tuple[Watched, Rows]:
        if cell.method not in PEERS:
            return self.our_rows(cell)
        seen, rows = self._peers_rows(replace(cell, table=cell.table + BINNED))
        return seen, unbinned(table(cell.table).header, rows, cell.seed)


def main() -> None:
    """Measure, print and write."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    # leaves nothing behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    limits = Limits(megabytes=8000, cpu=options.seconds, seconds=20 * options.seconds)
    folder = user_cache_path("marginweave-benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, Scored(Path(place), folder, limits) as runner:
        for cell in cells(options):
            kept = current(read(FIGURES), settings)
            if is_done(cell, kept) or is_hopeless(cell, kept.values()):
                continue
            found = runner.run(cell)
            append(FIGURES, found)
            shown = ", ".join(
                f"{label} {found[key]:.4g}"
                for key, label in MEASURES.items()
                if key in found.numbers
            )
            sys.stdout.write(
                f"{cell.table} {cell.epsilon:g} {cell.method}: {found.failed}{shown}\n"
            )
            sys.stdout.flush()
    if options.write:
        PAGE.write_text(
            render(current(read(FIGURES), settings).values(), len(cells(ALL))), encoding="utf-8"
        )


def cells(asked: argparse.Namespace) -> tuple[Cell, ...]:
    """The cells of what is asked for, all sets before the next repetition; a share of the rows knows no epsilon."""
    product = itertools.product(asked.epsilons, asked.sets, asked.methods)
    return tuple(
        Cell(table=f"{PREFIX}{name}", epsilon=epsilon, method=method, seed=seed)
        for seed, (epsilon, name, method) in itertools.product(range(asked.seeds), tuple(product))
        if method != SUBSAMPLE or epsilon == EPSILONS[0]
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.nist", description=(__doc__ or "")[:50]
    )
    parser.add_argument("--sets", nargs="*", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help="how many repetitions; 3; 0 for --write alone"
    )
    parser.add_argument(
        "--seconds", type=float, default=900, help="CPU seconds after which a peer is stopped; 900"
    )
    parser.add_argument("--write", action="store_true", help="write docs/sdnist.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
