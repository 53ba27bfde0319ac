"""Measure how often intervals of regressions cover: python -m tests.benchmarks.accuracy.regressions [--samples …] [--write].

A table that we have is the population, so its coefficients are known. Samples of it, drawn with replacement, are released by
our default, and a logistic regression is asked of several synthetic tables of each release. Figures are in regressions.jsonl as
soon as they are there; a sample that is there is not measured again. With --write a section of docs/inference.md is rendered.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from statsmodels.discrete.discrete_model import Logit

from marginweave.flows.postprocess.published import NewRecords, regenerate_records
from marginweave.inference import analyze, read_sets
from marginweave.tasks.publish.reader import PublishedRelease
from tests.benchmarks.accuracy.in_process import release_here
from tests.benchmarks.accuracy.regressions_page import write_section
from tests.benchmarks.accuracy.runs import CORES, fresh
from tests.benchmarks.accuracy.tables import Table, table

FIGURES = Path(__file__).with_name("regressions.jsonl")
EPSILONS, SETS, DELTA = (1.0, 10.0), 20, 1e-6
Rows = list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A logistic regression: whether `target` has another value than `no`, on `columns`, of samples of `rows` rows.

    A column counts as the number in its text; one with a text here as whether it has this value.
    """

    table: str
    rows: int
    target: str
    no: str
    columns: Mapping[str, str | float]

    @property
    def population(self) -> Table:
        """All rows, of the columns that the regression has."""
        return _population(self.table, (*self.columns, self.target))

    def sample(self, number: int) -> Table:
        """Sample `number`, drawn with replacement."""
        whole = self.population
        chosen = np.random.default_rng([self.rows, number]).integers(len(whole.rows), size=self.rows)
        return replace(whole, rows=[whole.rows[i] for i in chosen])

    def fit(self, header: tuple[str, ...], rows: Rows) -> Any:
        """The regression of rows, as statsmodels has it."""
        texts = dict(zip(header, map(np.array, zip(*rows, strict=True)), strict=True))
        parts = [np.ones(len(rows))]
        for name, kind in self.columns.items():
            values, places = np.unique(texts[name], return_inverse=True)
            parts.append(np.array([_score(str(value), kind) for value in values])[places])
        return Logit(texts[self.target] != self.no, np.stack(parts, axis=1)).fit(disp=0)


def _score(text: str, kind: str | float) -> float:
    """The first number in a text, in units of `kind`; or whether it is the text `kind`."""
    if isinstance(kind, str):
        return float(text == kind)
    found = re.search(r"[\d.]+", text)
    assert found is not None
    return (float(found[0]) - text.startswith("<")) / kind


@cache
def _population(name: str, columns: tuple[str, ...]) -> Table:
    whole = table(name)
    places = [whole.header.index(column) for column in columns]
    return Table(
        header=columns,
        rows=[[row[place] for place in places] for row in whole.rows],
        domain={column: whole.domain[column] for column in columns},
    )


_ADULT: dict[str, str | float] = {"education-num": 1.0, "age": 10.0, "hours-per-week": 10.0}
STUDIES = {
    "affairs": Study(
        table="affairs", rows=2000, target="affairs", no="0 to 0.001",
        columns={"rate_marriage": 1.0, "age": 10.0, "yrs_married": 10.0, "religious": 1.0},
    ),
    "adult": Study(
        table="adult_cat", rows=5000, target="income", no="<=50K",
        columns=_ADULT | {"sex": "Male", "marital-status": "Married-civ-spouse"},
    ),
}  # fmt: skip


def measure(name: str, epsilon: float, number: int, place: Path) -> dict[str, Any]:
    """Estimates and intervals of one sample: from the sets, from the one table of the release, and from the rows themselves."""
    study, home = STUDIES[name], fresh(place / "home")
    sample, began = study.sample(number), time.process_time()
    config = {
        "dataset": "accuracy",
        "source": str(home / "table.csv"),
        "rows": study.rows,
        "privacy": {"epsilon": epsilon, "delta": DELTA, "unit": "row"},
        "missing": [],
        "columns": sample.columns(),
        "synthesize": {"seed": number},
    }
    seen = release_here(home, config, sample, (epsilon, DELTA))
    os.environ["MARGINWEAVE_LEDGER"] = str(home / "ledger" / "ledger.sqlite")
    release = home / "runs" / "cell" / "release"
    sets = read_sets(regenerate_records(home, "cell", NewRecords(sets=SETS)))
    measured = [{*m.attributes} for m in PublishedRelease.read(release).statement.marginals or ()]
    made = pd.read_parquet(release / "synthetic.parquet")

    def fit(table: Any) -> Any:
        rows = table[list(sample.header)].astype(str).to_numpy().tolist() if isinstance(table, pd.DataFrame) else table
        return study.fit(sample.header, rows)

    together = analyze(sets, fit)
    return {
        "study": name,
        "epsilon": epsilon,
        "sample": number,
        "settings": _settings(study),
        "measured": [any({column, study.target} <= m for m in measured) for column in study.columns],
        "truth": np.asarray(fit(study.population.rows).params).tolist(),
        "sets": [together.estimate.tolist(), together.low.tolist(), together.high.tolist(), together.fallback.tolist()],
        "one": _ends(fit(made)),
        "rows": _ends(fit(sample.rows)),
        "release_cpu": round(seen.cpu, 1),
        "cpu": round(time.process_time() - began, 1),
    }


def _ends(result: Any) -> list[list[float]]:
    """Estimates and 95 % intervals of one table, as if it were real."""
    low, high = np.asarray(result.conf_int()).T
    return [np.asarray(result.params).tolist(), low.tolist(), high.tolist()]


def _settings(study: Study) -> dict[str, Any]:
    return {"rows": study.rows, "columns": dict(study.columns), "sets": SETS, "delta": DELTA}


def read() -> dict[tuple[str, float, int], dict[str, Any]]:
    """All figures of studies that are still what they were; of the same sample the last one."""
    lines = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.is_file() else []
    found = [json.loads(line) for line in lines]
    return {
        (f["study"], f["epsilon"], f["sample"]): f for f in found if f["settings"] == _settings(STUDIES[f["study"]])
    }


def main() -> None:
    """Measure, print and write."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    samples = itertools.product(range(options.samples), options.studies, options.epsilons)
    with tempfile.TemporaryDirectory() as place:
        for number, name, epsilon in samples:
            if (name, epsilon, number) in read():
                continue
            found = measure(str(name), float(epsilon), int(number), Path(place))
            with FIGURES.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            sys.stdout.write(f"{name} {epsilon:g} sample {number}: {found['cpu']:.0f} CPU s\n")
            sys.stdout.flush()
    if options.write:
        names = {name: ("intercept", *study.columns) for name, study in STUDIES.items()}
        write_section(read().values(), names)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.accuracy.regressions", description=(__doc__ or "")[:57]
    )
    parser.add_argument("--studies", nargs="*", choices=STUDIES, default=tuple(STUDIES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--samples", type=int, default=60, help="how many of each; 60; 0 for --write alone")
    parser.add_argument("--write", action="store_true", help="write the section of docs/inference.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
