"""Cells that are not as declared: python -m benchmarks.accuracy.undeclared [--releases …] [--tables …].

Whether intervals cover where a share of a column is not as declared, spread over the table or in one group of another column.
And what it costs a table whose cells are all as declared that nothing is said of others, beside `outside: error`, by which none
can be. Means in groups of three conditions rest on the model, which has no such cells: how often they cover, and how wide they
are. Figures are in undeclared.jsonl as soon as they are there, a line a release; one that is there is not made again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.runs import fresh
from benchmarks.accuracy.tables import Table, delta, table
from marginweave.answers.marginals import MarginalAnswers
from marginweave.configuration.question import Question
from marginweave.inference.answers import read_answers

FIGURES = Path(__file__).with_name("undeclared.jsonl")
SHARES, EPSILON, ROWS = (0.0, 0.01, 0.1, 0.3), 1.0, 5_000
TABLES = ("affairs", "adult_cat", "ma2019_cat", "drug_deaths_cat", "adult")
_MODEL = {"method": "mixture", "components": 200, "fits": 1, "iterations": 300}
_LITTLE = {"method": "mixture", "components": 2, "fits": 1, "iterations": 1}
_SMALL = {"method": "mixture", "components": 60, "fits": 1, "iterations": 150}
_SHARES_OF_MEANS = (0.0, 0.001, 0.01)
_NUMBERS = ("rate_marriage", "age", "religious", "educ")
_MEANS = 100
"""Half of them of the column, the others of numbers where the column is a condition."""
_COLUMN = "rate_marriage"
_PLACES = {
    "affairs": (_COLUMN, "educ"),
    "adult_cat": ("race", "education"),
    "ma2019_cat": ("SEX", "AGEP"),
}
"""Of a table the column whose cells become undeclared, and the one a group of which has them all."""
_NOT_DECLARED = "77"


def sampled(name: str, rows: int) -> Table:
    """The first rows of a table in a random order that is the same each time."""
    whole = table(name)
    order = np.random.default_rng(0).permutation(len(whole.rows))[:rows]
    return replace(whole, rows=[whole.rows[i] for i in order])


def with_undeclared(whole: Table, name: str, share: float, *, together: bool) -> Table:
    """The table with a share of a column not as declared: of all rows alike, or of the first rows by another column."""
    place, other = map(whole.header.index, _PLACES[name])
    order = np.random.default_rng(1).permutation(len(whole.rows))
    if together:
        order = np.array(sorted(order, key=lambda i: whole.rows[i][other]))
    rows = [list(row) for row in whole.rows]
    for i in order[: round(share * len(rows))]:
        rows[i][place] = _NOT_DECLARED
    return replace(whole, rows=rows)


def configured(
    whole: Table, name: str, source: str, making: dict[str, Any], *, outside: str | None
) -> dict[str, Any]:
    """A release by the default counts; `outside` is said of every column that has no missing value."""
    columns = {
        n: {k: v for k, v in column.items() if k != "outside"}
        for n, column in whole.columns().items()
    }
    said = {} if outside is None else {"outside": outside}
    columns = {
        n: column | said if column.get("missing") == [] else column for n, column in columns.items()
    }
    privacy = {"epsilon": EPSILON, "delta": delta(name), "unit": "row"}
    return {
        "dataset": "accuracy",
        "source": source,
        "privacy": privacy,
        "missing": whole.missing(),
        "rows": len(whole.rows),
        "columns": columns,
        "synthesize": making,
    } | whole.more()


def covered(release: Path, whole: Table, column: str) -> dict[str, list[int]]:
    """Of counts of one and of two columns, with and without the column, how many were asked and how many covered.

    Asked are counts twice as far from 0 as noise reaches: whether one is asked for does not depend on the draw.
    """
    counts, rows = (
        pd.read_csv(release / "aggregates.csv", dtype=str),
        pd.DataFrame(whole.rows, columns=whole.header),
    )
    found: dict[str, list[int]] = {}
    for length in (1, 2):
        names, values = (
            [f"{kind}_{i}" for i in range(1, length + 1)] for kind in ("column", "value")
        )
        own = counts[
            (counts["length"] == str(length)) & counts["count"].notna() & counts["high"].notna()
        ]
        for columns, group in own.groupby(names):
            truth = rows.groupby(list(columns)).size().to_dict()
            far = 2 * int((group["high"].astype(int) - group["count"].astype(int)).max())
            sums = found.setdefault(
                f"{length}, {'with' if column in columns else 'without'} the column", [0, 0]
            )
            for line in group.to_dict("records"):
                key = tuple(line[value] for value in values)
                count, low, high = (
                    truth.get(key if length > 1 else key[0], 0),
                    int(line["low"]),
                    int(line["high"]),
                )
                if count >= far:
                    sums[0] += 1
                    sums[1] += low <= count <= high
    return found


def means(release: Path, whole: Table, seed: int) -> dict[str, list[float]]:
    """Of means in groups of three conditions, widened for cells that the model ignores or not: answered, covered, widths."""
    answers, rng = read_answers(release), np.random.default_rng(seed)
    assert isinstance(answers, MarginalAnswers)
    model = answers.model()
    assert model is not None
    not_widened = replace(model, ignored={})
    kinds = {"widened": answers, "not widened": replace(answers, model=lambda: not_widened)}
    rows, sums = pd.DataFrame(whole.rows, columns=whole.header), dict[str, list[float]]()
    for number in range(_MEANS):
        asked, where = random_mean(whole, rng, is_of_column=number % 2 == 0)
        inside = rows[
            np.logical_and.reduce([rows[name].isin(values) for name, values in where.items()])
        ]
        truth = inside[asked][inside[asked] != _NOT_DECLARED].astype(float).mean()
        for kind, opened in kinds.items():
            (answer,) = opened.ask(Question.model_validate({"mean": asked, "where": where}))
            if (
                answer.estimate is None
                or answer.low is None
                or answer.high is None
                or np.isnan(truth)
            ):
                continue
            own = sums.setdefault(
                f"{kind}, {'of' if asked == _COLUMN else 'by'} the column", [0, 0, 0.0]
            )
            own[0] += 1
            own[1] += int(answer.low - 1e-9 <= truth <= answer.high + 1e-9)
            own[2] += answer.high - answer.low
    return sums


def random_mean(
    whole: Table, rng: np.random.Generator, *, is_of_column: bool
) -> tuple[str, dict[str, list[str]]]:
    """A number, and three conditions on other columns; one of the two is of the column that has such cells."""
    others = [name for name in whole.header if name != _COLUMN]
    asked = (
        _COLUMN if is_of_column else str(rng.choice([name for name in _NUMBERS if name != _COLUMN]))
    )
    free = [name for name in others if name != asked]
    chosen = [str(name) for name in rng.choice(free, 3 if is_of_column else 2, replace=False)]
    where = dict[str, list[str]]()
    for name in chosen if is_of_column else [_COLUMN, *chosen]:
        values = whole.domain[name]
        some = rng.choice(len(values), int(rng.integers(1, len(values))), replace=False)
        where[name] = [values[i] for i in sorted(some.tolist())]
    return asked, where


def mean_tvd(release: Path, whole: Table) -> float:
    """Of all pairs of columns the mean distance of the records from the table."""
    made, rows = (
        pd.read_csv(release / "synthetic.csv", dtype=str, keep_default_na=False),
        pd.DataFrame(whole.rows, columns=whole.header),
    )
    found = []
    for pair in itertools.combinations(whole.header, 2):
        one, other = (frame.groupby(list(pair)).size() / len(frame) for frame in (made, rows))
        found.append(one.sub(other, fill_value=0).abs().sum() / 2)
    return float(np.mean(found))


def planned(releases: int, tables: list[str]) -> Iterator[dict[str, Any]]:
    """What is to be measured, coverage first."""
    for number in range(releases):
        for share in SHARES:
            for together in (False, True) if share else (False,):
                for name in (name for name in tables if name in _PLACES):
                    yield {
                        "part": "coverage",
                        "table": name,
                        "share": share,
                        "together": together,
                        "number": number,
                    }
        for share in _SHARES_OF_MEANS:
            for together in (False, True) if share else (False,):
                yield {"part": "means", "share": share, "together": together, "number": number}
        for name in tables:
            for outside in (None, "error"):
                yield {"part": "clean", "table": name, "outside": outside, "number": number}


def measured(cell: dict[str, Any], home: Path) -> dict[str, Any]:
    """The figures of a release."""
    name = cell.get("table", "affairs")
    whole, making, outside = sampled(name, ROWS), _MODEL, cell.get("outside")
    if cell["part"] in ("coverage", "means"):
        whole = with_undeclared(whole, name, cell["share"], together=cell["together"])
        making = _LITTLE if cell["part"] == "coverage" else _SMALL
    config = configured(whole, name, str(home / "table.csv"), making, outside=outside)
    release_here(home, config, whole, (EPSILON, delta(name)))
    release = home / "runs" / "cell" / "release"
    statement = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
    cells_of = {cells["attribute"]: cells for cells in statement.get("undeclared", [])}
    figures: dict[str, Any] = {"kept": [name for name, cells in cells_of.items() if cells["kept"]]}
    if cell["part"] == "coverage":
        figures |= {
            "covered": covered(release, whole, _PLACES[name][0]),
            "told": [cells_of[_PLACES[name][0]][key] for key in ("count", "low", "high")],
        }
    elif cell["part"] == "means":
        figures["means"] = means(release, whole, cell["number"])
    else:
        figures["tvd"] = mean_tvd(release, whole)
    return {**cell, "rows": len(whole.rows), **figures}


def main() -> None:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=1)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--parts", nargs="*", default=["coverage", "means", "clean"])
    asked = parser.parse_args()
    lines = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.exists() else []
    there = [json.loads(line) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        for cell in planned(asked.releases, asked.tables):
            if cell["part"] not in asked.parts or any(cell.items() <= one.items() for one in there):
                continue
            found = measured(cell, fresh(Path(folder) / "home"))
            with FIGURES.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
