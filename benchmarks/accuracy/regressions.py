"""Measure how often intervals of regressions cover: python -m benchmarks.accuracy.regressions [--samples …] [--write].

A table that we have is the population, so its coefficients are known. Samples of it, drawn with replacement, are released by
our default, and a linear and a logistic regression are asked of each release. Figures are in regressions.jsonl as soon as they
are there; a sample that is there is not measured again. With --write a section of docs/inference.md is rendered.
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS

from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.regressions_page import write_section
from benchmarks.accuracy.runs import CORES, fresh
from benchmarks.accuracy.tables import Table, table
from marginweave.inference import analyse, regression
from marginweave.released.statement import PrivacyStatement

FIGURES = Path(__file__).with_name("regressions.jsonl")
EPSILONS, DELTA = (1.0, 10.0), 1e-6
KINDS: tuple[Literal["linear"], Literal["logistic"]] = ("linear", "logistic")
Rows = list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A regression: whether `target` has another value than `no`, on `columns`, of samples of `rows` rows.

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

    def values(self, domain: Mapping[str, Iterable[str]]) -> dict[str, dict[str, float]]:
        """What each value of a released domain counts."""
        found = {column: {text: _score(text, kind) for text in domain[column]} for column, kind in self.columns.items()}
        return {**found, self.target: {text: float(text != self.no) for text in domain[self.target]}}

    def fit(self, kind: str, header: tuple[str, ...], rows: Rows) -> Any:
        """The regression of rows, as statsmodels has it; that of a linear one with robust errors."""
        texts = dict(zip(header, map(np.array, zip(*rows, strict=True)), strict=True))
        parts = [np.ones(len(rows))]
        for name, unit in self.columns.items():
            values, places = np.unique(texts[name], return_inverse=True)
            parts.append(np.array([_score(str(value), unit) for value in values])[places])
        target, design = (texts[self.target] != self.no).astype(float), np.stack(parts, axis=1)
        return Logit(target, design).fit(disp=0) if kind == "logistic" else OLS(target, design).fit(cov_type="HC0")


def _score(text: str, kind: str | float) -> float:
    """The first number in a text, in units of `kind`; or whether it is the text `kind`."""
    if isinstance(kind, str):
        return float(text == kind)
    found = re.search(r"[\d.]+", text)
    assert found is not None
    return (float(found[0]) - text.startswith("<")) / kind


def _hospital() -> Table:
    """A made table of 100,000 visits, whose columns depend on each other."""
    rng, rows = np.random.default_rng(20), 100_000
    age = np.clip(rng.normal(6.2, 2.0, rows).round(), 0, 9)
    severity = np.clip((1 + rng.exponential(0.8, rows) + 0.15 * age).round(), 1, 5)
    days = np.clip(rng.gamma(2.0, 0.6 + 0.5 * severity).round(), 1, 14)
    night = rng.random(rows) < 0.2 + 0.08 * severity
    died = rng.random(rows) < 1 / (1 + np.exp(6.5 - 0.35 * age - 0.7 * severity - 0.6 * night + 0.05 * days))
    columns = {
        "age": [f"{10 * a:.0f} to {10 * a + 9:.0f}" for a in age],
        "severity": [f"{s:.0f}" for s in severity],
        "days": [f"{d:.0f}" for d in days],
        "night": np.where(night, "yes", "no").tolist(),
        "died": np.where(died, "yes", "no").tolist(),
    }
    domain = {name: sorted(set(own), key=lambda text: (len(text), text)) for name, own in columns.items()}
    return Table(header=tuple(columns), rows=[*map(list, zip(*columns.values(), strict=True))], domain=domain)


@cache
def _population(name: str, columns: tuple[str, ...]) -> Table:
    whole = _hospital() if name == "hospital" else table(name)
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
    "hospital": Study(
        table="hospital", rows=4000, target="died", no="no",
        columns={"age": 10.0, "severity": 1.0, "days": 7.0, "night": "yes"},
    ),
}  # fmt: skip


def measure(name: str, epsilon: float, number: int, place: Path) -> Iterator[dict[str, Any]]:
    """Estimates and intervals of one sample: from the release, from its synthetic records, and from the rows themselves."""
    study, home = STUDIES[name], fresh(place / "home")
    sample = study.sample(number)
    config = {
        "dataset": "accuracy",
        "source": str(home / "table.csv"),
        "rows": study.rows,
        "privacy": {"epsilon": epsilon, "delta": DELTA, "unit": "row"},
        "missing": [],
        "columns": sample.columns(),
        "synthesize": {"seed": number},
    }
    release_here(home, config, sample, (epsilon, DELTA))
    yield from figures(name, epsilon, number, home / "runs" / "cell" / "release")


def figures(name: str, epsilon: float, number: int, release: Path) -> Iterator[dict[str, Any]]:
    """The same of a release of sample `number` that is in a folder."""
    study, sample = STUDIES[name], STUDIES[name].sample(number)
    statement = PrivacyStatement.from_json((release / "privacy.json").read_bytes())
    made = pd.read_parquet(release / "synthetic.parquet")[list(sample.header)].astype(str).to_numpy().tolist()
    values = study.values(dict(statement.domain))
    for kind in KINDS:
        began = time.process_time()
        found = regression(release, study.target, [*study.columns], kind=kind, values=values)
        cpu = round(time.process_time() - began, 2)
        yield {
            "study": name,
            "kind": kind,
            "epsilon": epsilon,
            "sample": number,
            "settings": _settings(study),
            "truth": _truth(name, kind),
            "release": [found.estimate.tolist(), found.low.tolist(), found.high.tolist()],
            "sets": _sets(study, kind, release, values),
            "records": _ends(study.fit(kind, sample.header, made)),
            "rows": _ends(study.fit(kind, sample.header, sample.rows)),
            "cpu": cpu,
        }


@cache
def _truth(name: str, kind: str) -> list[float]:
    whole = STUDIES[name].population
    return [float(one) for one in STUDIES[name].fit(kind, whole.header, whole.rows).params]


def _ends(result: Any) -> list[list[float]]:
    """Estimates and 95 % intervals of one table, as if it were real."""
    low, high = np.asarray(result.conf_int()).T
    return [np.asarray(result.params).tolist(), low.tolist(), high.tolist()]


def _sets(study: Study, kind: str, release: Path, values: Mapping[str, Mapping[str, float]]) -> list[list[float]]:
    """Estimates and 95 % intervals of several synthetic tables."""
    columns = (*study.columns, study.target)

    def fit(made: pd.DataFrame) -> Any:
        parts = [np.ones(len(made)), *(_counted(made[name], values[name]) for name in columns)]
        target, design = parts.pop(), np.stack(parts, axis=1)
        return Logit(target, design).fit(disp=0) if kind == "logistic" else OLS(target, design).fit(cov_type="HC0")

    found = analyse(release, columns, fit)
    return [found.estimate.tolist(), found.low.tolist(), found.high.tolist()]


def _counted(column: pd.Series, values: Mapping[str, float]) -> np.ndarray:
    """What the values of a set count: a text by itself; a number by the text that is this number, or between two of these."""
    if column.dtype.kind != "f":
        return column.map(values).to_numpy(np.float64)
    known = sorted((float(text), own) for text, own in values.items())
    return np.interp(column.to_numpy(), [number for number, _ in known], [own for _, own in known])


def _settings(study: Study) -> dict[str, Any]:
    return {"rows": study.rows, "columns": dict(study.columns), "delta": DELTA}


def read() -> dict[tuple[str, float, int, str], dict[str, Any]]:
    """All figures of studies that are still what they were; of the same sample the last one."""
    lines = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.is_file() else []
    found = [json.loads(line) for line in lines]
    return {
        (f["study"], f["epsilon"], f["sample"], f["kind"]): f
        for f in found
        if f["settings"] == _settings(STUDIES[f["study"]])
    }


def main() -> None:
    """Measure, print and write."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    samples = itertools.product(range(options.samples), options.studies, options.epsilons)
    there = read()
    with tempfile.TemporaryDirectory() as place:
        for number, name, epsilon in samples:
            if all((name, epsilon, number, kind) in there for kind in KINDS):
                continue
            found = [json.dumps(one) + "\n" for one in measure(str(name), float(epsilon), int(number), Path(place))]
            with FIGURES.open("a", encoding="utf-8") as file:
                file.writelines(found)
            sys.stdout.write(f"{name} {epsilon:g} sample {number}\n")
            sys.stdout.flush()
    if options.write:
        names = {name: ("intercept", *study.columns) for name, study in STUDIES.items()}
        write_section(read().values(), names)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.regressions", description=(__doc__ or "")[:57])
    parser.add_argument("--studies", nargs="*", choices=STUDIES, default=tuple(STUDIES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--samples", type=int, default=60, help="how many of each; 60; 0 for --write alone")
    parser.add_argument("--write", action="store_true", help="write the section of docs/inference.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
