"""How right the grades of pairs are: python -m benchmarks.accuracy.verdicts --figures FILE [--seeds 2].

Every table and sample is released by the default at every epsilon. Of each pair of columns the file has the grade, the
expected distance and the true one (TVD of the records from the rows); a release that is there is not made again. What is
printed are the two errors of a grade: pairs below good that are at most .05 away, and good ones that are farther. The laws in
src/marginweave/evaluate/verdict.py were chosen by the tables of `TUNED`; the others are for validation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.figures import Cell
from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.methods import DEFAULT, configuration
from benchmarks.accuracy.runs import fresh, rows_of
from benchmarks.accuracy.tables import delta, sample_name, table
from marginweave.released.verdict import GOOD

TUNED = ("affairs", "drug_deaths_cat", "adult")
VALIDATED = ("ma2019_cat", "adult_cat", "anes96")
EPSILONS, SAMPLED_ROWS = (0.3, 1.0, 3.0), (1000, 5000)
_LARGE = ("adult", "adult_cat")
_EVALUATED = ("distance", "noise", "deviation")


def main() -> None:
    """Release what is missing in the file, and print a line a table."""
    options = _options()
    done = {_key(line): line for line in _lines(options.figures)}
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells(options.seeds):
            key = (cell.table, cell.epsilon, cell.seed)
            if key not in done:
                done[key] = measured(cell, Path(folder) / "home")
                with options.figures.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[key]) + "\n")
    for line in summary(list(done.values())):
        sys.stdout.write(line + "\n")


def cells(seeds: int) -> Iterator[Cell]:
    """The releases: of every table its rows, unless it is large, and samples."""
    for seed, rows, name, epsilon in itertools.product(
        range(seeds), (*SAMPLED_ROWS, None), (*TUNED, *VALIDATED), EPSILONS
    ):
        if rows is None and name in _LARGE and seed > 0:
            continue
        called = name if rows is None else sample_name(name, rows, seed)
        if name != "adult" or rows is None:  # the samples are of the tables that the others take
            yield Cell(table=called, epsilon=epsilon, method=DEFAULT, seed=seed)


def measured(cell: Cell, home: Path) -> dict[str, Any]:
    """A release, and of each of its pairs the true distance beside what evaluation.json says of it."""
    own = configuration(cell, str(fresh(home) / "table.csv"))
    source = table(cell.table)
    watched = release_here(home, own, source, (cell.epsilon, delta(cell.table)))
    release = home / "runs" / "cell" / "release"
    evaluation = json.loads((release / "evaluation.json").read_text(encoding="utf-8"))
    rows, records = source.codes(source.rows), source.codes(rows_of(release / "synthetic.csv", cell.table))
    bounds = {tuple(sorted(row["attributes"])): row for row in evaluation["bounds"]["marginals"]}
    graded = {tuple(sorted(row["attributes"])): row for row in evaluation["verdict"]["sets"]}
    pairs = []
    for first, second in itertools.combinations(range(len(source.header)), 2):
        name = tuple(sorted((source.header[first], source.header[second])))
        true = distance(rows[:, [first, second]], records[:, [first, second]])
        of_pair = {key: bounds[name][key] for key in _EVALUATED} if name in bounds else {}
        cells_of_pair = (len(source.domain[source.header[first]]), len(source.domain[source.header[second]]))
        judged = {"grade": graded[name]["grade"], "error": graded[name]["error"]}
        pairs.append({"pair": name, "true": round(true, 5), "cells": cells_of_pair, **judged, **of_pair})
    single = {name[0]: graded[name]["error"] for name in graded if len(name) == 1}
    where = {"table": cell.table, "epsilon": cell.epsilon, "seed": cell.seed, "rows": len(rows)}
    method = [evaluation.get("model") is not None, len(records)]
    return {**where, "cpu": round(watched.cpu, 1), "method": method, "single": single, "pairs": pairs}


def distance(rows: np.ndarray, records: np.ndarray) -> float:
    """The TVD of two columns of codes."""
    size = int(max(rows[:, 1].max(), records[:, 1].max())) + 1
    tables = [np.bincount(codes[:, 0] * size + codes[:, 1], minlength=1) for codes in (rows, records)]
    cells_of_both = max(map(len, tables))
    shares = [np.pad(counts, (0, cells_of_both - len(counts))) / counts.sum() for counts in tables]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def summary(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Both errors, of every table, and of those for tuning and for validation together."""
    names = {name: (name,) for name in (*TUNED, *VALIDATED)}
    for called, chosen in (names | {"tuned": TUNED, "validated": VALIDATED}).items():
        pairs = [pair for line in lines if line["table"].split("/")[0] in chosen for pair in line["pairs"]]
        good = [pair["true"] for pair in pairs if pair["grade"] == "good"]
        below = [pair["true"] for pair in pairs if pair["grade"] != "good"]
        near, far = sum(true <= GOOD for true in below), sum(true > GOOD for true in good)
        yield (
            f"{called:16s} {len(pairs):6d} pairs, good {len(good):5d}, of which above .05 {far:4d} "
            f"({100 * far / max(len(good), 1):.0f} %); below good {len(below):5d}, of which at most .05 {near:4d} "
            f"({100 * near / max(len(below), 1):.0f} %)"
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _key(line: Mapping[str, Any]) -> tuple[str, float, int]:
    return line["table"], line["epsilon"], line["seed"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.verdicts")
    parser.add_argument("--figures", type=Path, required=True, help="JSON lines; what is there is not measured again")
    parser.add_argument("--seeds", type=int, default=1, help="how many repetitions; 1")
    return parser.parse_args()


if __name__ == "__main__":
    main()
