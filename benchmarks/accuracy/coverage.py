"""Measure how often intervals of answers cover: python -m benchmarks.accuracy.coverage [--releases …] [--write].

Tables that we have are released again and again, by our default and as k-tuples, and random questions are asked of each
release, whose answers are compared with the table. Figures are in coverage.jsonl as soon as they are there, a line a release; a
release that is there is not made again. With --write a section of docs/inference.md is rendered. Release i of a table has the
seed i.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.coverage_page import write_section
from benchmarks.accuracy.figures import Cell
from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.methods import DEFAULT, configuration
from benchmarks.accuracy.runs import CORES, fresh
from benchmarks.accuracy.tables import TABLES, Table, delta, table
from marginweave.answers.codes import ValueRange
from marginweave.answers.intervals import Reach, count_interval_of
from marginweave.answers.least_squares import NotMeasuredError
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.quantities import mean_of, quantile_of
from marginweave.configuration.load import parse_configuration
from marginweave.domain.labels import Domain
from marginweave.inference.answers import read_answers

FIGURES = Path(__file__).with_name("coverage.jsonl")
EPSILONS, METHODS, LEVEL = (0.3, 1.0, 3.0, 10.0), (DEFAULT, "tuples-3"), 0.95
INSIDE, NUMBERS = 400, 40
"""Questions a release: inside measured sets, and of each kind about numbers."""
_SIZES = (0.01, 0.1)
"""Shares of the rows between which questions are one stratum."""
_LITTLE = {"components": 2, "fits": 1, "iterations": 1, "max_records": 100}
"""A model and records that nobody asks."""
Factors = list[tuple[int, np.ndarray]]


class Tally:
    """Of strata of questions: how many, covered, sums of interval scores, of squared errors and of stated deviations."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 5)

    def add(
        self, kind: str, truth: float, answer: tuple[float | None, float, float], sd: float = 0.0
    ) -> None:
        """Count an answer: estimate, low and high."""
        self.add_all(kind, np.array([truth]), np.array([answer], np.float64), sd)

    def add_all(self, kind: str, truths: np.ndarray, answers: np.ndarray, sd: float = 0.0) -> None:
        """Count answers, shape (answers, 3). The score is that of Gneiting and Raftery 2007 (equation 43)."""
        estimate, low, high = answers.T
        sizes = sum((truths / self._rows >= share).astype(np.int64) for share in _SIZES)
        scores = (
            high
            - low
            + 2 / (1 - LEVEL) * (np.maximum(low - truths, 0) + np.maximum(truths - high, 0))
        )
        errors = np.nan_to_num(estimate - truths) ** 2
        covered = (low - 1e-9 <= truths) & (truths <= high + 1e-9)
        each = np.array([np.ones(len(truths)), covered, scores, errors, np.full(len(truths), sd)])
        strata = ("below 1 %", "1 to 10 %", "above 10 %") if kind.startswith("inside") else ("",)
        for size, stratum in enumerate(strata):
            own = each[:, sizes == size] if stratum else each
            name = f"{kind}, {stratum}" if stratum else kind
            if own.size:
                self.sums[name] = [
                    a + b for a, b in zip(self.sums[name], own.sum(axis=1).tolist(), strict=True)
                ]


@dataclass(frozen=True, kw_only=True)
class Examiner:
    """Asks a release of marginals about the rows that it was made of, in codes, shape (rows, attributes)."""

    answers: MarginalAnswers
    rows: np.ndarray
    rng: np.random.Generator
    tally: Tally

    def inside(self) -> None:
        """Counts of random values of columns of one measured set; alone as they come, and as they are shown."""
        tables = self.answers.squares.measured.tables
        lengths = sorted({len(one.parts) for one in tables})
        by_length = {
            length: [one for one in tables if len(one.parts) == length] for length in lengths
        }
        for number in range(INSIDE):
            some = by_length[lengths[number % len(lengths)]]
            chosen = some[self.rng.integers(len(some))].parts
            factors = [self.factor(part) for part in chosen]
            solved = self.answers.solve([factors])
            estimate, sd = (
                float(solved.values[0]),
                math.sqrt(max(float(solved.covariance[0, 0]), 0.0)),
            )
            truth, reach = self.truth(factors), Reach(level=LEVEL)
            raw = (estimate, estimate - reach.of(sd), estimate + reach.of(sd))
            self.tally.add(
                "unclipped, sd at least 12" if sd >= 12 else "unclipped, less noise", truth, raw, sd
            )
            shown = count_interval_of(estimate, sd**2, reach)
            self.tally.add("inside", truth, (shown.estimate, shown.low, shown.high), sd)

    def numbers(self, ranges: Sequence[ValueRange]) -> None:
        """Means, medians and .9 quantiles of numbers, of records with a random value of one other column."""
        tables = [one for one in self.answers.squares.measured.tables if len(one.parts) > 1]
        for one, number in itertools.product(ranges, range(NUMBERS)):
            near = [t.parts for t in tables if one.place in (self._axis(p) for p in t.parts)]
            if not near:
                continue
            others = [p for p in near[self.rng.integers(len(near))] if self._axis(p) != one.place]
            factors = [self.factor(others[self.rng.integers(len(others))])] if number % 2 else []
            chosen = self._chosen(factors)[:, one.place]
            chosen = chosen[np.isfinite(one.low)[chosen]]
            values = ((one.low + one.high) / 2)[chosen]
            if len(values) < 1:
                continue
            reach = Reach(level=LEVEL)
            try:
                mean, _ = mean_of(self.answers.solve, factors, one, reach, sampled=False)
                self.tally.add("mean", float(values.mean()), (mean.estimate, mean.low, mean.high))
                for q in (0.5, 0.9):
                    found, _ = quantile_of(
                        self.answers.solve, factors, one, reach, q, sampled=False
                    )
                    truth = float(np.quantile(values, q, method="inverted_cdf"))
                    self.tally.add("quantile", truth, (found.estimate, found.low, found.high))
            except NotMeasuredError:
                continue

    def _axis(self, part: int) -> int:
        return self.answers.squares.measured.parts[part].axis

    def part(self, axis: int) -> int:
        """The coarsest division of a column that a measured set has."""
        found = [
            (part.size, n)
            for n, part in enumerate(self.answers.squares.measured.parts)
            if part.axis == axis
        ]
        return min(found)[1]

    def factor(self, number: int) -> tuple[int, np.ndarray]:
        """Random values of a column, none of which was merged with one that is not asked for; neither none nor all."""
        part = self.answers.squares.measured.parts[number]
        if part.size == 1:
            return part.axis, np.ones(len(part.blocks))
        mine = self.rng.random(part.size) < self.rng.uniform(0.1, 0.9)
        mine[self.rng.integers(part.size)] = True
        if mine.all():
            mine[self.rng.integers(part.size)] = False
        return part.axis, mine[part.blocks].astype(np.float64)

    def _chosen(self, factors: Factors) -> np.ndarray:
        kept = np.ones(len(self.rows), np.bool_)
        for place, weights in factors:
            kept &= weights[self.rows[:, place]] > 0
        return self.rows[kept]

    def truth(self, factors: Factors) -> float:
        return float(len(self._chosen(factors)))


def codes(source: Table, sizes: Sequence[int]) -> np.ndarray:
    """The rows in the codes of a release: values in declared order, the missing one last."""
    texts = [
        {v: code for code, v in enumerate(v for v in source.domain[n] if v)} for n in source.header
    ]
    columns = zip(*source.rows, strict=True)
    found = [
        [own.get(v, size - 1) for v in column]
        for own, column, size in zip(texts, columns, sizes, strict=True)
    ]
    return np.array(found, np.int64).T


def measure(cell: Cell, place: Path) -> dict[str, Any]:
    """Release a table, and ask."""
    home, source, own = fresh(place / "home"), table(cell.table), delta(cell.table)
    asked = configuration(cell, str(home / "table.csv"))
    # what is measured is the same
    asked["synthesize"] = {"method": "mixture", "seed": cell.seed} | _LITTLE
    release_here(home, asked, source, (cell.epsilon, own))
    release, tally = home / "runs" / "cell" / "release", Tally(len(source.rows))
    answers = read_answers(release)
    rows = codes(source, answers.codes.sizes)
    if isinstance(answers, MarginalAnswers):
        examiner = Examiner(
            answers=answers, rows=rows, rng=np.random.default_rng(cell.seed), tally=tally
        )
        examiner.inside()
        examiner.numbers([answers.codes.numbers(name) for name in source.numbers])
    published(pd.read_parquet(release / "aggregates.parquet"), answers.codes.domain, rows, tally)
    return {**vars(cell), "settings": _settings(cell), "rows": len(rows), "sums": dict(tally.sums)}


def published(lines: pd.DataFrame, domain: Domain, rows: np.ndarray, tally: Tally) -> None:
    """Every interval of aggregates.parquet, which is of the count as it was measured."""
    kinds = [key for key in map(str, lines) if key.startswith("column_")]
    codes_of = [{label: code for code, label in enumerate(labels)} for labels in domain.labels]
    for columns, some in lines.groupby(kinds, dropna=False, sort=False):
        places = [domain.names.index(name) for name in columns if isinstance(name, str)]
        if not places:
            continue
        cells = [len(domain.labels[place]) + 1 for place in places]
        exact = np.bincount(
            np.ravel_multi_index(tuple(rows[:, p] for p in places), cells),
            minlength=math.prod(cells),
        )
        found = [
            # missing is last
            [codes_of[place].get(v, len(codes_of[place])) for v in some[f"value_{n}"].tolist()]
            for n, place in enumerate(places, start=1)
        ]
        truths = exact[np.ravel_multi_index(tuple(np.array(found)), cells)].astype(np.float64)
        tally.add_all(
            f"published, {len(places)}", truths, some[["count", "low", "high"]].to_numpy(np.float64)
        )


def _settings(cell: Cell) -> dict[str, Any]:
    made = parse_configuration(configuration(replace(cell, seed=0), "table.csv"))
    return {"aggregate": made.aggregate.model_dump(mode="json"), "questions": [INSIDE, NUMBERS]}


def read(figures: Path = FIGURES) -> dict[Cell, dict[str, Any]]:
    """Return all figures in a file; of the same release the last one."""
    lines = figures.read_text(encoding="utf-8").splitlines() if figures.is_file() else []
    found = [json.loads(line) for line in lines]
    return {
        Cell(table=f["table"], epsilon=f["epsilon"], method=f["method"], seed=f["seed"]): f
        for f in found
    }


def measure_missing(
    cells: Iterable[Cell], measure_cell: Callable[[Cell, Path], dict[str, Any]], figures: Path
) -> None:
    """Measure the releases that a file has no figure of, each in turn, and append theirs."""
    there = read(figures)
    with tempfile.TemporaryDirectory() as place:
        for cell in cells:
            if cell in there:
                continue
            figure = measure_cell(cell, Path(place))
            with figures.open("a", encoding="utf-8") as file:
                file.write(json.dumps(figure) + "\n")
            sys.stdout.write(f"{cell.table} {cell.epsilon:g} {cell.method} {cell.seed}\n")
            sys.stdout.flush()


def main() -> None:
    """Measure, print and write."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    chosen = itertools.product(
        range(options.releases), options.tables, options.epsilons, options.methods
    )
    cells = [
        Cell(table=str(name), epsilon=float(epsilon), method=str(method), seed=int(seed))
        for seed, name, epsilon, method in chosen
    ]
    measure_missing(cells, measure, FIGURES)
    if options.write:
        write_section(read().values())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.coverage", description=(__doc__ or "")[:51]
    )
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument(
        "--releases", type=int, default=50, help="how many of each; 50; 0 for --write alone"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the section of docs/inference.md"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
