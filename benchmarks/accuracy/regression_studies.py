"""What regressions are asked of which tables: populations that are known, so that their coefficients are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS

from benchmarks.accuracy.tables import Table, table
from marginweave.inference.normal_regression import Kind

Rows = list[list[str]]
Unit = str | float | None
"""A column counts as the number in its text, in such units; as whether it has this text; or as its values but the first."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A regression of `target` on `columns`; a target with a text counts as whether it has another value than that."""

    kind: Kind
    target: str
    no: str | None
    columns: Mapping[str, Unit]

    @property
    def measured(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return (*self.columns, self.target)

    def values(self, domain: Mapping[str, Iterable[str]]) -> dict[str, dict[str, float]]:
        """What each value of a released domain counts; nothing of a column that counts as its values."""
        found = {
            column: {text: score(text, unit) for text in domain[column]}
            for column, unit in self.columns.items()
            if unit is not None
        }
        return {**found, self.target: {text: self.of_target(text) for text in domain[self.target]}}

    def of_target(self, text: str) -> float:
        """What a value of the target counts."""
        return score(text, 1.0) if self.no is None else float(text != self.no)

    def names(self, domain: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        """The names of the coefficients."""
        found = ["intercept"]
        for column, unit in self.columns.items():
            found += (
                [column]
                if unit is not None
                else [f"{column}={text}" for text in [*domain[column]][1:]]
            )
        return tuple(found)

    def design(
        self, header: tuple[str, ...], rows: Rows, domain: Mapping[str, Iterable[str]]
    ) -> Any:
        """The target and the design of rows, with an intercept."""
        texts = dict(zip(header, map(np.array, zip(*rows, strict=True)), strict=True))
        parts = [np.ones(len(rows))]
        for column, unit in self.columns.items():
            if unit is None:
                parts += [(texts[column] == text).astype(float) for text in [*domain[column]][1:]]
            else:
                parts.append(
                    _counted(texts[column], {text: score(text, unit) for text in domain[column]})
                )
        target = _counted(
            texts[self.target], {text: self.of_target(text) for text in domain[self.target]}
        )
        return target, np.stack(parts, axis=1)

    def fit(self, target: np.ndarray, design: np.ndarray, persons: np.ndarray | None = None) -> Any:
        """The regression as statsmodels has it; a linear one with robust errors, rows of one of `persons` kept together."""
        errors: dict[str, Any] = {} if self.kind == "logistic" else {"cov_type": "HC0"}
        if persons is not None:
            errors = {"cov_type": "cluster", "cov_kwds": {"groups": persons}}
        if self.kind == "logistic":
            return Logit(target, design).fit(disp=0, **errors)
        return OLS(target, design).fit(**errors)


@dataclass(frozen=True, kw_only=True)
class Population:
    """A table of which samples of `rows` rows are released, and `aggregate` of the configuration, the default where empty.

    Where a column says whose row it is, `person`, whole persons are drawn, who have at most `most` rows.
    """

    table: str
    rows: int
    columns: tuple[str, ...]
    aggregate: Mapping[str, Any]
    studies: Mapping[str, Study]
    person: str = ""
    most: int = 1

    @property
    def whole(self) -> Table:
        """All rows."""
        return _whole(self.table, self.columns)

    def sample(self, number: int) -> Table:
        """Sample `number`, drawn with replacement; a person who is drawn twice is two persons."""
        rng = np.random.default_rng([self.rows, number])
        if self.person:
            return replace(self.whole, rows=self._rows_of_persons(rng))
        chosen = rng.integers(len(self.whole.rows), size=self.rows)
        return replace(self.whole, rows=[self.whole.rows[i] for i in chosen])

    def _rows_of_persons(self, rng: np.random.Generator) -> Rows:
        place, persons = self.whole.header.index(self.person), dict[str, Rows]()
        for row in self.whole.rows:
            persons.setdefault(row[place], []).append(row)
        every = list(persons.values())
        drawn = rng.integers(len(every), size=round(self.rows * len(every) / len(self.whole.rows)))
        return [
            [*row[:place], f"{number}", *row[place + 1 :]]
            for number, who in enumerate(drawn)
            for row in every[who]
        ]

    @property
    def unit(self) -> str | dict[str, Any]:
        """The unit of privacy."""
        return {"column": self.person, "max_records": self.most} if self.person else "row"

    def declared(self, sample: Table) -> dict[str, Any]:
        """The section `columns` of a configuration."""
        found: dict[str, Any] = dict(sample.columns())
        return found | {self.person: {"type": "identifier"}} if self.person else found

    def persons(self, sample: Table) -> np.ndarray | None:
        """Whose each row of a sample is; None where each is of another person."""
        if not self.person:
            return None
        place = sample.header.index(self.person)
        return np.array([row[place] for row in sample.rows])


def score(text: str, unit: str | float) -> float:
    """The first number in a text, in units of `unit`; or whether it is the text `unit`."""
    if isinstance(unit, str):
        return float(text == unit)
    found = re.search(r"[\d.]+", text)
    assert found is not None
    return (float(found[0]) - text.startswith("<")) / unit


def merged_design(
    study: Study, design: np.ndarray, names: Sequence[str], domain: Mapping[str, Iterable[str]]
) -> np.ndarray:
    """A design with the columns of these names, of which one may be for several values of a column: "ward=a or b"."""
    every, parts = study.names(domain), []
    for name in names:
        column, _, texts = name.partition("=")
        own = [f"{column}={text}" for text in texts.split(" or ")] if texts else [column]
        parts.append(sum(design[:, every.index(one)] for one in own))
    return np.stack(parts, axis=1)


def _counted(texts: np.ndarray, values: Mapping[str, float]) -> np.ndarray:
    names, places = np.unique(texts, return_inverse=True)
    return np.array([values[str(name)] for name in names])[places]


@cache
def _whole(name: str, columns: tuple[str, ...]) -> Table:
    whole = _MADE[name]() if name in _MADE else table(name)
    places = [whole.header.index(column) for column in columns]
    return Table(
        header=columns,
        rows=[[row[place] for place in places] for row in whole.rows],
        domain={column: whole.domain[column] for column in columns},
    )


_WARDS = {"internal": 0.34, "surgery": 0.24, "cardiology": 0.14, "neurology": 0.1, "oncology": 0.08, "maternity": 0.06,
          "intensive": 0.03, "burns": 0.01}  # fmt: skip
_COSTS = (0.3, 0.8, 1.2, 1.8, 2.5, 3.5, 5.0, 7.5, 12.0, 20.0, 45.0)


def _stays() -> Table:
    """A made table of 100,000 stays: columns that depend on each other, long tails, values that few have."""
    rng, rows = np.random.default_rng(20), 100_000
    ward = rng.choice(len(_WARDS), rows, p=[*_WARDS.values()])
    age = (
        np.clip(rng.normal(6.2 - 3.5 * (ward == 5), 2.0 - 1.2 * (ward == 5), rows), 0, 9).round()
        + 0.0
    )
    severity = np.clip((1 + rng.exponential(0.8, rows) + 0.15 * age + (ward >= 6)).round(), 1, 5)
    days = np.clip(rng.gamma(1.6, 0.6 + 0.6 * severity + (ward == 4)).round(), 1, 14)
    night = rng.random(rows) < 0.2 + 0.08 * severity
    log_cost = (
        -0.2 + 0.9 * np.log(days) + 0.15 * severity + 1.1 * (ward == 6) + rng.normal(0, 0.6, rows)
    )
    cost = np.abs(np.exp(log_cost)[:, None] - np.array(_COSTS)).argmin(axis=1)
    died = rng.random(rows) < 1 / (
        1 + np.exp(7.0 - 0.35 * age - 0.7 * severity - (ward == 6) + 0.05 * days)
    )
    unknown = rng.random(rows) < 0.02 + 0.03 * (ward == 7)
    columns = {
        "ward": np.array([*_WARDS])[ward].tolist(),
        "age": [f"{10 * a:.0f} to {10 * a + 9:.0f}" for a in age],
        "severity": [f"{s:.0f}" for s in severity],
        "days": [f"{d:.0f}" for d in days],
        "night": np.where(night, "yes", "no").tolist(),
        "cost": [f"{_COSTS[c]:g}" for c in cost],
        "died": np.where(died, "yes", "no").tolist(),
        "unknown": np.where(unknown, "yes", "no").tolist(),
    }
    domain = {
        name: sorted(set(own), key=lambda text: (len(text), text)) for name, own in columns.items()
    }
    domain["ward"], domain["cost"] = [*_WARDS], [f"{cost:g}" for cost in _COSTS]
    return Table(
        header=tuple(columns), rows=[*map(list, zip(*columns.values(), strict=True))], domain=domain
    )


def _visits() -> Table:
    """A made table of 20,000 persons with one to three visits each, which are alike in what the person is like."""
    rng, persons = np.random.default_rng(21), 20_000
    person = np.repeat(np.arange(persons), rng.integers(1, 4, persons))
    rows, frail = len(person), rng.normal(size=persons)[person]
    age = np.clip(rng.normal(5, 2, persons), 0, 9).round()[person] + 0.0
    smokes = (rng.random(persons) < 0.3)[person]
    severity = np.clip(
        (2.0 + 0.15 * age + 0.5 * smokes + 0.8 * frail + 0.6 * rng.normal(size=rows)).round(), 1, 5
    )
    days = np.clip((1 + 1.2 * severity + 1.5 * frail + rng.exponential(1.5, rows)).round(), 1, 14)
    again = rng.random(rows) < 1 / (1 + np.exp(2.5 - 0.4 * severity - 1.5 * frail))
    columns = {
        "person": person.astype(str).tolist(),
        "age": [f"{10 * a:.0f} to {10 * a + 9:.0f}" for a in age],
        "smokes": np.where(smokes, "yes", "no").tolist(),
        "severity": [f"{s:.0f}" for s in severity],
        "days": [f"{d:.0f}" for d in days],
        "again": np.where(again, "yes", "no").tolist(),
    }
    domain = {
        name: sorted(set(own), key=lambda text: (len(text), text)) for name, own in columns.items()
    }
    return Table(
        header=tuple(columns), rows=[*map(list, zip(*columns.values(), strict=True))], domain=domain
    )


_MADE = {"stays": _stays, "visits": _visits}
_AFFAIRS: dict[str, Unit] = {
    "rate_marriage": 1.0,
    "age": 10.0,
    "yrs_married": 10.0,
    "religious": 1.0,
}
_ADULT: dict[str, Unit] = {
    "education-num": 1.0, "age": 10.0, "hours-per-week": 10.0, "sex": "Male", "marital-status": "Married-civ-spouse",
}  # fmt: skip
POPULATIONS = {
    "affairs": Population(
        table="affairs", rows=2000, columns=(*_AFFAIRS, "affairs"), aggregate={},
        studies={
            "had an affair": Study(kind="linear", target="affairs", no="0 to 0.001", columns=_AFFAIRS),
            "had an affair, logistic": Study(kind="logistic", target="affairs", no="0 to 0.001", columns=_AFFAIRS),
        },
    ),
    "adult": Population(
        table="adult_cat", rows=5000, columns=(*_ADULT, "income"), aggregate={},
        studies={
            "income above 50K": Study(kind="linear", target="income", no="<=50K", columns=_ADULT),
            "income above 50K, logistic": Study(kind="logistic", target="income", no="<=50K", columns=_ADULT),
        },
    ),
    "stays": Population(
        table="stays", rows=4000, columns=("ward", "age", "severity", "days", "night", "cost", "died", "unknown"),
        aggregate={"method": "marginals", "cliques": {"all": 2}},
        studies={
            "cost by days and age": Study(kind="linear", target="cost", no=None, columns={"days": 1.0, "age": 10.0}),
            "cost by ward and days": Study(kind="linear", target="cost", no=None, columns={"ward": None, "days": 1.0}),
            "days by severity and age": Study(
                kind="linear", target="days", no=None, columns={"severity": 1.0, "age": 10.0}
            ),
            "unknown by ward and age": Study(
                kind="linear", target="unknown", no="no", columns={"ward": None, "age": 10.0}
            ),
            "died, logistic": Study(
                kind="logistic", target="died", no="no", columns={"age": 10.0, "severity": 1.0, "night": "yes"}
            ),
            "died by ward, logistic": Study(
                kind="logistic", target="died", no="no", columns={"ward": None, "age": 10.0}
            ),
        },
    ),
    "visits": Population(
        table="visits", rows=4000, columns=("person", "age", "smokes", "severity", "days", "again"), person="person", most=3,
        aggregate={"method": "marginals", "cliques": {"all": 2}},
        studies={
            "days by age and smoking": Study(kind="linear", target="days", no=None, columns={"age": 10.0, "smokes": "yes"}),
            "days by severity": Study(kind="linear", target="days", no=None, columns={"severity": 1.0, "age": 10.0}),
            "again, logistic": Study(
                kind="logistic", target="again", no="no", columns={"severity": 1.0, "smokes": "yes"}
            ),
        },
    ),
}  # fmt: skip
