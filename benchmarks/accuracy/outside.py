"""Measure how often answers of one to four columns cover: python -m benchmarks.accuracy.outside [--tables …] [--write].

Tables that we have, and made ones of sixteen binary columns (`binary`), are released by the default, and random questions are
asked of random columns, measured together or not. Figures are in outside.jsonl as soon as they are there, a line a release; a
release that is there is not made again. With --write a section of docs/inference.md is rendered.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import binary
from benchmarks.accuracy.coverage import (
    EPSILONS,
    LEVEL,
    Examiner,
    Factors,
    Tally,
    codes,
    measure_missing,
    read,
)
from benchmarks.accuracy.figures import Cell
from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.methods import DEFAULT, configuration
from benchmarks.accuracy.outside_page import write_section
from benchmarks.accuracy.runs import CORES, fresh
from benchmarks.accuracy.tables import TABLES, delta, table
from marginweave.answers.marginals import MarginalAnswers
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.question import Question
from marginweave.inference.answers import read_answers

FIGURES = Path(__file__).with_name("outside.jsonl")
QUESTIONS, LENGTHS = 75, (1, 2, 3, 4)
SIZES = (100, 1_000, 10_000)
"""Records between which true counts are one stratum."""
_LITTLE = {"components": 2, "fits": 1, "iterations": 1, "max_records": 100}
"""A model and records: enough where no interval asks the model, as sets are not chosen."""
_MADE = tuple(name for name in binary.TABLES if name.endswith("-2"))


def ask(answers: MarginalAnswers, rows: np.ndarray, seed: int) -> dict[str, list[float]]:
    """By number of columns, kind of answer and stratum: questions, claimed, of these covered, usable, widths over rows."""
    examiner = Examiner(
        answers=answers, rows=rows, rng=np.random.default_rng(seed), tally=Tally(len(rows))
    )
    sums, axes = (
        defaultdict[str, list[float]](lambda: [0.0] * 5),
        sorted(answers.squares.measured.sizes),
    )
    question = Question(level=LEVEL)
    for length, _ in itertools.product(LENGTHS, range(QUESTIONS)):
        chosen = sorted(examiner.rng.choice(axes, min(length, len(axes)), replace=False).tolist())
        factors: Factors = [examiner.factor(examiner.part(axis)) for axis in chosen]
        answer, truth = answers.answer_group(question, factors, [], None), examiner.truth(factors)
        if answer.interval is None:
            raise SystemExit(f"refused: {'; '.join(note.words for note in answer.notes)}")
        stratum = sum(truth >= size for size in SIZES)
        covered = answer.claimed and answer.interval.low <= truth <= answer.interval.high
        usable = answer.claimed and not any(note.unusable for note in answer.notes)
        width = (answer.interval.high - answer.interval.low) / len(rows)
        each = (1.0, float(answer.claimed), float(covered), float(usable), width)
        name = f"{length}|{answer.how}|{stratum}"
        sums[name] = [before + more for before, more in zip(sums[name], each, strict=True)]
    return dict(sums)


def measure(cell: Cell, place: Path) -> dict[str, Any]:
    """Release a table, and ask."""
    return figure(cell, release_into(fresh(place / "home"), cell))


def release_into(home: Path, cell: Cell) -> Path:
    """Release a table in an empty home; the folder of the release."""
    asked = configuration(cell, str(home / "table.csv"))
    made = parse_configuration(asked)
    if made.marginals is not None and not made.marginals.selects(len(made.attributes)):
        asked["synthesize"] = {"method": "mixture", "seed": cell.seed} | _LITTLE
    release_here(home, asked, table(cell.table), (cell.epsilon, delta(cell.table)))
    return home / "runs" / "cell" / "release"


def figure(cell: Cell, release: Path) -> dict[str, Any]:
    """The figure of a release that is there."""
    answers, began, source = read_answers(release), time.process_time(), table(cell.table)
    if not isinstance(answers, MarginalAnswers):
        raise SystemExit(f"{cell.table} at epsilon {cell.epsilon:g} is no release of marginals")
    sums = ask(answers, codes(source, answers.codes.sizes), cell.seed)
    cpu = time.process_time() - began
    return {**vars(cell), "rows": len(source.rows), "cpu": round(cpu, 1), "sums": sums}


def main() -> None:
    """Measure, print and write."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    chosen = itertools.product(range(options.releases), options.epsilons, options.tables)
    cells = [
        Cell(table=str(name), epsilon=float(epsilon), method=DEFAULT, seed=int(seed))
        for seed, epsilon, name in chosen
    ]
    measure_missing(cells, measure, FIGURES)
    if options.write:
        write_section(list(read(FIGURES).values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.outside", description=(__doc__ or "")[:61]
    )
    every = (*_MADE, *TABLES)
    parser.add_argument("--tables", nargs="*", choices=(*binary.TABLES, *TABLES), default=every)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument(
        "--releases", type=int, default=1, help="how many of each; 1; 0 for --write alone"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the section of docs/inference.md"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
