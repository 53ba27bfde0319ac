"""How right the grades of pairs are: python -m benchmarks.accuracy.verdicts --keep FOLDER [--seeds 2].

Every table and sample is released by the default at every epsilon, into a folder of FOLDER; what is there is not released
again. What is printed are the two errors of a grade, a line a table: pairs below good whose records are at most .05 (TVD) away
from the rows, and good ones that are farther; and by epsilon the score of each release beside the same formula with the true
distances. The laws in src/marginweave/evaluate/distances.py were chosen by the tables of
`TUNED`; the others are for validation.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.figures import Cell
from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.methods import DEFAULT, configuration
from benchmarks.accuracy.runs import fresh, rows_of
from benchmarks.accuracy.tables import delta, sample_name, table
from marginweave.evaluate.association import distance_from_independence
from marginweave.evaluate.score import quality_score
from marginweave.released.evaluation import Evaluation
from marginweave.released.verdict import GOOD

TUNED = ("affairs", "drug_deaths_cat", "adult")
VALIDATED = ("ma2019_cat", "adult_cat", "anes96")
EPSILONS, SAMPLED_ROWS = (1.0, 3.0, 0.3), (5000, 1000)
KEPT = ("evaluation.json", "privacy.json", "synthetic.csv")
_LARGE, _SMALL = ("adult", "adult_cat"), ("anes96",)


@dataclass(frozen=True, kw_only=True)
class Graded:
    """A pair of columns of a release: its grade, whether it has counts, and how far its records are from the rows.

    `dependence` is how far the rows are from independent columns.
    """

    table: str
    pair: tuple[str, ...]
    grade: str
    is_measured: bool
    true: float
    dependence: float


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The score of a release, and that by the true distances of its records and of its rows from independent columns."""

    epsilon: float
    stated: int
    true: int


def main() -> None:
    """Release what is missing in the folder, and print a line a table."""
    options, found, scores = _options(), list[Graded](), list[Scored]()
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells(options.seeds):
            place = options.keep / f"{cell.table.replace('/', '-')}-{cell.epsilon:g}-{cell.seed}"
            if not place.is_dir():
                release_into(place, cell, Path(folder) / "home")
            pairs = list(graded(place, cell))
            found += pairs
            stated = Evaluation.from_json((place / "evaluation.json").read_bytes()).verdict.score
            true = quality_score(
                {one.pair: one.true for one in pairs}, {one.pair: one.dependence for one in pairs}
            )
            if stated is not None and true is not None:
                scores.append(Scored(epsilon=cell.epsilon, stated=stated, true=true))
    for line in (*summary(found), *score_summary(scores)):
        sys.stdout.write(line + "\n")


def cells(seeds: int) -> Iterator[Cell]:
    """The releases: of every table samples, and all of its rows."""
    sizes = (*SAMPLED_ROWS, None)
    for seed, epsilon, rows, name in itertools.product(
        range(seeds), EPSILONS, sizes, (*TUNED, *VALIDATED)
    ):
        if rows is None:
            called = name
        elif name == "adult" or (name in _SMALL and rows > min(SAMPLED_ROWS)):
            continue
        else:
            called = sample_name(name, rows, seed)
        if seed == 0 or name not in _LARGE or rows is not None:
            yield Cell(table=called, epsilon=epsilon, method=DEFAULT, seed=seed)


def release_into(place: Path, cell: Cell, home: Path) -> None:
    """Release a table in an empty home, and keep what the grades are compared by."""
    own = configuration(cell, str(fresh(home) / "table.csv"))
    release_here(home, own, table(cell.table), (cell.epsilon, delta(cell.table)))
    place.mkdir(parents=True)
    for name in KEPT:
        shutil.copy(home / "runs" / "cell" / "release" / name, place / name)


def graded(place: Path, cell: Cell) -> Iterator[Graded]:
    """Every pair of columns of a release."""
    source, own = table(cell.table), Evaluation.from_json((place / "evaluation.json").read_bytes())
    rows, records = (
        source.codes(source.rows),
        source.codes(rows_of(place / "synthetic.csv", cell.table)),
    )
    position = {name: i for i, name in enumerate(source.header)}
    for one in own.verdict.sets if own.verdict else ():
        if len(one.attributes) == 2:
            pair = [position[name] for name in one.attributes]
            true = distance(rows[:, pair], records[:, pair])
            name = cell.table.split("/", maxsplit=1)[0]
            yield Graded(
                table=name,
                pair=tuple(sorted(one.attributes)),
                grade=one.grade,
                is_measured=one.unmeasured is None,
                true=true,
                dependence=dependence_of(rows[:, pair]),
            )


def distance(rows: NDArray[np.int64], records: NDArray[np.int64]) -> float:
    """The TVD of two tables of two columns of codes."""
    size = int(max(rows[:, 1].max(), records[:, 1].max())) + 1
    cells_of_both = size * (int(max(rows[:, 0].max(), records[:, 0].max())) + 1)
    tables = [
        np.bincount(codes[:, 0] * size + codes[:, 1], minlength=cells_of_both)
        for codes in (rows, records)
    ]
    first, second = (counts / counts.sum() for counts in tables)
    return float(np.abs(first - second).sum() / 2)


def dependence_of(rows: NDArray[np.int64]) -> float:
    """The TVD of two columns of codes from independent ones."""
    cells, counts = np.unique(rows, axis=0, return_counts=True)
    return distance_from_independence(cells[:, 0], cells[:, 1], counts.astype(float)) or 0.0


def score_summary(scores: Sequence[Scored]) -> Iterator[str]:
    """A line an epsilon: the mean of the scores, of those by true distances, and how far apart both are."""
    for epsilon in EPSILONS:
        those = [one for one in scores if one.epsilon == epsilon]
        if those:
            stated = np.array([one.stated for one in those])
            true = np.array([one.true for one in those])
            apart = np.abs(stated - true)
            yield (
                f"score at epsilon {epsilon:g}: {len(those)} releases, mean {stated.mean():.0f} (by true distances "
                f"{true.mean():.0f}), apart {apart.mean():.1f} on average, {apart.max()} at most"
            )


def summary(found: Sequence[Graded]) -> Iterator[str]:
    """Both errors, of every table, and of those for tuning and for validation together, of measured pairs and of others."""
    names = {name: (name,) for name in (*TUNED, *VALIDATED)} | {
        "tuned": TUNED,
        "validated": VALIDATED,
    }
    for (called, chosen), is_measured in itertools.product(names.items(), (True, False)):
        those = [one for one in found if one.table in chosen and one.is_measured is is_measured]
        good = [one.true for one in those if one.grade == "good"]
        below = [one.true for one in those if one.grade != "good"]
        near, far = sum(true <= GOOD for true in below), sum(true > GOOD for true in good)
        which = "measured" if is_measured else "not measured"
        yield (
            f"{called:16s} {which:12s} good {len(good):5d}, of which above .05 {far:4d} "
            f"({100 * far / max(len(good), 1):.0f} %); below good {len(below):5d}, of which at most .05 {near:4d} "
            f"({100 * near / max(len(below), 1):.0f} %)"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.verdicts")
    parser.add_argument(
        "--keep", type=Path, required=True, help="a folder; what is there is not released again"
    )
    parser.add_argument("--seeds", type=int, default=1, help="how many repetitions; 1")
    return parser.parse_args()


if __name__ == "__main__":
    main()
