"""Measure how often intervals of regressions cover: python -m benchmarks.accuracy.regressions [--samples …] [--write].

A table that we have is the population, so its coefficients are known. Samples of it, drawn with replacement, are released, and
regressions are asked of each release (`benchmarks/accuracy/regression_studies.py`). Figures are in regressions.jsonl as soon as
they are there; a sample that is there is not measured again. With --write a section of docs/inference.md is rendered.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.in_process import release_here
from benchmarks.accuracy.regression_studies import POPULATIONS, Study, merged_design
from benchmarks.accuracy.regressions_page import write_section
from benchmarks.accuracy.runs import CORES, fresh
from marginweave.base.errors import InputError
from marginweave.inference.analyses import analyse
from marginweave.inference.modelled import open_modelled
from marginweave.inference.regressions import Regression, of_opened
from marginweave.released.statement import PrivacyStatement

FIGURES = Path(__file__).with_name("regressions.jsonl")
EPSILONS, DELTA = (1.0, 10.0), 1e-6


def measure(name: str, epsilon: float, number: int, place: Path) -> Iterator[dict[str, Any]]:
    """The figures of one sample: of the release, of its synthetic records, and of the rows themselves."""
    population, home = POPULATIONS[name], fresh(place / "home")
    sample = population.sample(number)
    config: dict[str, Any] = {
        "dataset": "accuracy",
        "source": str(home / "table.csv"),
        "rows": population.rows,
        "privacy": {"epsilon": epsilon, "delta": DELTA, "unit": population.unit},
        "missing": [],
        "columns": population.declared(sample),
        "synthesize": {"seed": number},
    }
    if population.aggregate:
        config["aggregate"] = dict(population.aggregate)
    release_here(home, config, sample, (epsilon, DELTA))
    yield from figures(name, epsilon, number, home / "runs" / "cell" / "release")


def figures(name: str, epsilon: float, number: int, release: Path) -> Iterator[dict[str, Any]]:
    """The same of a release of sample `number` that is in a folder."""
    population, sample = POPULATIONS[name], POPULATIONS[name].sample(number)
    domain = dict(PrivacyStatement.from_json((release / "privacy.json").read_bytes()).domain)
    synthetic = (
        pd.read_parquet(release / "synthetic.parquet")
        .astype(str)
        .reindex(columns=list(sample.header))
    )
    tables = {
        "records": (synthetic.to_numpy().tolist(), None),
        "sampled": (sample.rows, population.persons(sample)),
    }
    opened = open_modelled(release, "population", "a regression needs")
    for label, study in population.studies.items():
        figure = {
            "population": name,
            "study": label,
            "epsilon": epsilon,
            "sample": number,
            "rows": population.rows,
        }
        asked = Regression(
            target=study.target,
            columns=tuple(study.columns),
            kind=study.kind,
            of="population",
            values=study.values(domain),
            level=0.95,
        )
        began = time.process_time()
        try:
            answer = of_opened(opened, asked)
        except InputError as error:
            yield {**figure, "refused": str(error)}
            continue
        cpu = round(time.process_time() - began, 2)
        names, found = answer.names, answer.estimates.values
        fits = {}
        for source, (rows, persons) in tables.items():
            target, design = study.design(sample.header, rows, population.whole.domain)
            merged = merged_design(study, design, names, population.whole.domain)
            fits[source] = _ends(study, target, merged, persons)
        fits["sets"] = _of_sets(release, study, names, population.whole.domain)
        yield {
            **figure,
            "names": names,
            "truth": _truth(name, label, names),
            "release": [
                end.tolist()
                for end in (found, found - answer.half_widths, found + answer.half_widths)
            ],
            **fits,
            "cpu": cpu,
        }


@cache
def _truth(name: str, label: str, names: tuple[str, ...]) -> list[float]:
    population = POPULATIONS[name]
    study, whole = population.studies[label], population.whole
    target, design = study.design(whole.header, whole.rows, whole.domain)
    return [
        float(one)
        for one in study.fit(target, merged_design(study, design, names, whole.domain)).params
    ]


def _ends(
    study: Study, target: np.ndarray, design: np.ndarray, persons: np.ndarray | None
) -> list[list[float]] | None:
    """Estimates and 95 % intervals of one table, as if it were real; None where it has no solution."""
    try:
        result = study.fit(target, design, persons)
        low, high = np.asarray(result.conf_int()).T
    except np.linalg.LinAlgError:
        return None
    return [np.asarray(result.params).tolist(), low.tolist(), high.tolist()]


def _of_sets(
    release: Path, study: Study, names: tuple[str, ...], domain: Mapping[str, Iterable[str]]
) -> list[list[float]] | None:
    """Estimates and 95 % intervals of several synthetic tables (`analyse`); None where one of them has no solution."""

    def fit(rows: pd.DataFrame) -> Any:
        texts, known = rows.copy(), dict(domain)
        for name in rows.select_dtypes("number"):
            texts[name] = rows[name].map("{:g}".format)
            # the mean of values that were measured together is none of them
            known[str(name)] = texts[name].unique()
        target, design = study.design(tuple(texts.columns), texts.to_numpy().tolist(), known)
        return study.fit(target, merged_design(study, design, names, domain))

    try:
        found = analyse(release, study.measured, fit, seed=0)
    except (InputError, np.linalg.LinAlgError):
        return None
    return [end.tolist() for end in (found.estimate, found.low, found.high)]


def read() -> dict[tuple[str, float, int], list[dict[str, Any]]]:
    """All figures of each release of studies that there are."""
    lines = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.is_file() else []
    found = dict[tuple[str, float, int], list[dict[str, Any]]]()
    for figure in map(json.loads, lines):
        if figure["study"] in POPULATIONS[figure["population"]].studies:
            found.setdefault(
                (figure["population"], figure["epsilon"], figure["sample"]), []
            ).append(figure)
    return found


def main() -> None:
    """Measure, print and write."""
    options = _options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    samples: list[tuple[int, str, float]] = list(
        itertools.product(range(options.samples), options.populations, options.epsilons)
    )
    there = read()
    with tempfile.TemporaryDirectory() as place:
        for number, name, epsilon in samples:
            if (name, epsilon, number) in there:
                continue
            found = [json.dumps(one) + "\n" for one in measure(name, epsilon, number, Path(place))]
            with FIGURES.open("a", encoding="utf-8") as file:
                file.writelines(found)
            sys.stdout.write(f"{name} {epsilon:g} sample {number}\n")
            sys.stdout.flush()
    if options.write:
        write_section([figure for some in read().values() for figure in some])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.regressions", description=(__doc__ or "")[:57]
    )
    parser.add_argument("--populations", nargs="*", choices=POPULATIONS, default=tuple(POPULATIONS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument(
        "--samples", type=int, default=60, help="how many of each; 60; 0 for --write alone"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the section of docs/inference.md"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
