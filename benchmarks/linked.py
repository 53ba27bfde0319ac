"""Measure synthetic rows of linked tables: python -m benchmarks.linked [--tables …] [--epsilon 1] [--runs 3].

Each run is a release with fresh noise by the defaults. Its records and rows are compared with the tables, beside two random
halves of the real units, and beside independent tables: rows without any dependence, each unit with its right number. `airbnb`
is read from the folder in MARGINWEAVE_TEST_DATA; bounds and code lists count as public. `hospital` is made up.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from marginweave.accounting.accounts import Account
from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.columns import values_of
from marginweave.configuration.columns import Column, MeasuredColumn
from marginweave.configuration.load import load_configuration
from marginweave.configuration.release import Configuration
from marginweave.ledger import Ledger
from tests.support.plain_runs import run_plainly

DELTA = "1e-6"
_MOST_DEPENDENT = 10


class Family(NamedTuple):
    """Two tables, and how they are declared: the id of the source, the linked table's name, that of its id, and its bound."""

    source: pd.DataFrame
    rows: pd.DataFrame
    columns: dict[str, Any]
    row_columns: dict[str, Any]
    keys: tuple[str, str]
    name: str
    at_most: int
    derive: dict[str, Any]
    structure: dict[str, Any]


def _category(cells: pd.Series[Any]) -> dict[str, Any]:
    return {"type": "category", "values": sorted({*cells} - {""})}


def airbnb() -> Family:
    """Return 10,000 users and the sessions of 2,424 of them."""
    folder = Path(os.environ["MARGINWEAVE_TEST_DATA"]) / "airbnb"
    users, sessions = (
        pd.read_csv(folder / file, dtype=str, keep_default_na=False)
        for file in ("users.csv", "sessions.csv")
    )
    quarters = {"type": "date", "bins": "quarter"}
    numbers = {"type": "number", "decimals": 0}
    declared = {
        "date_account_created": {**quarters, "bounds": ["2010-01-01", "2014-06-30"]},
        "date_first_booking": {**quarters, "bounds": ["2010-01-01", "2015-06-30"]},
        "age": {
            **numbers,
            "bounds": [0, 120],
            "bins": [0, 20, 25, 30, 35, 40, 45, 50, 60, 70, 90, 120],
            "outside": "null",
        },
    }
    kept = [name for name in users.columns if name not in ("id", "timestamp_first_active")]
    columns = {name: declared.get(name) or _category(users[name]) for name in kept}
    columns["sessions"] = {
        **numbers,
        "bounds": [0, 50],
        "bins": [0, 1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 50],
    }
    row_columns = {name: _category(sessions[name]) for name in sessions.columns[1:-1]}
    row_columns["secs_elapsed"] = {
        **numbers,
        "bounds": [0, 2_000_000],
        "bins": [0, 1, 10, 50, 200, 1000, 5000, 20_000, 100_000, 500_000, 2_000_000],
    }
    derive = {"sessions": "count"}
    return Family(
        users, sessions, columns, row_columns, ("id", "user_id"), "sessions", 50, derive, {}
    )


def hospital(patients: int = 20_000) -> Family:
    """Return patients and three stays of each in the mean; old patients come more often, longer, and as emergencies."""
    rng = np.random.default_rng(7)
    age = rng.integers(0, 95, patients)
    sex = rng.choice(["f", "m"], patients)
    number = rng.poisson(0.6 + age / 95 * 4.8)
    owner = np.repeat(np.arange(patients), np.minimum(number, 30))
    of_stay = age[owner]
    emergency = rng.random(len(owner)) < 0.15 + 0.5 * of_stay / 95
    days = np.minimum(1 + rng.poisson(1 + of_stay / 12 + 4 * emergency), 59)
    wards = np.array(["surgery", "inner", "children", "birth"])
    adult = np.where(rng.random(len(owner)) < 0.35 + 0.3 * emergency, "inner", "surgery")
    is_birth = (
        (sex[owner] == "f") & (of_stay > 18) & (of_stay < 45) & (rng.random(len(owner)) < 0.4)
    )
    ward = np.where(of_stay < 16, "children", np.where(is_birth, "birth", adult))
    admitted = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, len(owner)), "D")
    stays = pd.DataFrame(
        {
            "patient": owner,
            "kind": np.where(emergency, "emergency", "planned"),
            "ward": ward,
            "days": days,
            "admitted": admitted.strftime("%Y-%m-%d"),
            "discharged": (admitted + pd.to_timedelta(days, "D")).strftime("%Y-%m-%d"),
        }
    ).astype(str)
    source = pd.DataFrame({"patient": np.arange(patients), "sex": sex, "age": age}).astype(str)
    dates = {"type": "date", "bounds": ["2023-01-01", "2025-03-31"], "bins": "quarter"}
    number_of = {"type": "number", "decimals": 0}
    columns = {
        "sex": {"type": "category", "values": ["f", "m"]},
        "age": {**number_of, "bounds": [0, 100], "bins": 10},
        "stays": {**number_of, "bounds": [0, 30], "bins": [0, 1, 2, 3, 4, 6, 9, 30]},
        "emergency": {"type": "boolean"},
        "longest": {**number_of, "bounds": [0, 60], "bins": [0, 5, 10, 20, 60], "missing": [""]},
        "readmitted": {"type": "boolean"},
    }
    row_columns = {
        "kind": {"type": "category", "values": ["planned", "emergency"]},
        "ward": {"type": "category", "values": wards.tolist()},
        "days": {**number_of, "bounds": [0, 60], "bins": [0, 3, 5, 8, 10, 15, 20, 60]},
        "admitted": dates,
        "discharged": dates,
    }
    derive = {
        "stays": "count",
        "emergency": {"any": {"kind": "emergency"}},
        "longest": {"largest": "days"},
        "readmitted": {"within": "30 days", "from": "discharged", "to": "admitted"},
    }
    structure = {"structure": {"ordered": [{"columns": ["admitted", "discharged"]}]}}
    return Family(
        source,
        stays,
        columns,
        row_columns,
        ("patient", "patient"),
        "stays",
        30,
        derive,
        structure,
    )


FAMILIES: dict[str, Callable[[], Family]] = {"airbnb": airbnb, "hospital": hospital}


@dataclass(frozen=True)
class Coded:
    """Codes of both tables: of columns of units, of columns of rows, and the place of the unit of each row."""

    units: dict[str, Integers]
    rows: dict[str, Integers]
    owners: Integers
    number: int

    @cached_property
    def counts(self) -> Integers:
        """Number of rows of each unit."""
        return np.bincount(self.owners, minlength=self.number)

    def some(self, chosen: Flags) -> Coded:
        """Return some units with their rows."""
        places = np.cumsum(chosen, dtype=np.int64) - 1
        kept = chosen[self.owners]
        return Coded(
            {name: codes[chosen] for name, codes in self.units.items()},
            {name: codes[kept] for name, codes in self.rows.items()},
            np.asarray(places[self.owners[kept]], np.int64),
            int(chosen.sum()),
        )

    def independent(self) -> Coded:
        """Return the tables with each column of rows in an order of chance, in which rows of one unit weigh as they did."""
        rng = np.random.default_rng(0)
        weights = 1 / self.counts[self.owners]
        rows = {
            name: codes[rng.choice(len(codes), len(codes), p=weights / weights.sum())]
            for name, codes in self.rows.items()
        }
        return Coded(self.units, rows, self.owners, self.number)


def coded(
    units: pd.DataFrame, rows: pd.DataFrame, keys: tuple[str, str], config: Configuration, name: str
) -> Coded:
    """Return the codes of two tables, as the configuration has them."""
    places = {key: place for place, key in enumerate(units[keys[0]])}
    declared = {each: column for each, column in config.columns.items() if each in units}
    of_rows = config.of_rows(name)
    return Coded(
        _codes(units, declared, config),
        _codes(rows, of_rows.columns, of_rows),
        np.asarray(rows[keys[1]].map(places), np.int64),
        len(units),
    )


def _codes(
    frame: pd.DataFrame, columns: Mapping[str, Column], config: Configuration
) -> dict[str, Integers]:
    codes = {}
    for name, column in columns.items():
        assert isinstance(column, MeasuredColumn)
        kind = values_of(column, (*config.missing_texts(name), ""))
        cells = pa.array(frame[name].astype(str), pa.string()).dictionary_encode()
        codes[name] = kind.encode(kind.clean(cells), None).astype(np.int64)
    return codes


class Figures(NamedTuple):
    """Mean TVDs: of the number of rows; by units, of columns of both tables in pairs, the most dependent and all; siblings.

    And of pairs of columns of one row, by units.
    """

    number: float
    dependent: float
    cross: float
    siblings: float
    within: float


Tables = dict[tuple[str, ...], Floats]


def cross_tables(seen: Coded, sizes: Mapping[str, int], *, within: bool = False) -> Tables:
    """Return the shares of units, spread over their rows, by a column of each table, or by two of the rows."""
    weights = 1 / seen.counts[seen.owners]
    firsts = (
        seen.rows if within else {name: codes[seen.owners] for name, codes in seen.units.items()}
    )
    tables: Tables = {}
    for first, codes in firsts.items():
        for second, other in seen.rows.items():
            if within and first >= second:
                continue
            table = np.zeros((sizes[first], sizes[second]))
            np.add.at(table, (codes, other), weights)
            tables[first, second] = table / table.sum()
    return tables


def sibling_tables(seen: Coded, sizes: Mapping[str, int]) -> Tables:
    """Return the shares of two different rows of a unit, ordered, each pair of a unit alike, by a column of each."""
    counts = seen.counts
    pair_weights = np.where(counts > 1, 1 / np.maximum(counts * (counts - 1.0), 1), 0.0)
    tables: Tables = {}
    of_units = {}
    for name, codes in seen.rows.items():
        of_units[name] = np.zeros((seen.number, sizes[name]))
        np.add.at(of_units[name], (seen.owners, codes), 1.0)
    for first, codes in seen.rows.items():
        for second, other in seen.rows.items():
            if first > second:
                continue
            table = (of_units[first] * pair_weights[:, None]).T @ of_units[second]
            np.subtract.at(table, (codes, other), pair_weights[seen.owners])
            tables[first, second] = table / table.sum()
    return tables


def _distance(table: Floats, other: Floats) -> float:
    return float(np.abs(table - other).sum() / 2)


def _mean(tables: Tables, others: Tables, chosen: list[tuple[str, ...]] | None = None) -> float:
    return float(np.mean([_distance(tables[key], others[key]) for key in chosen or [*tables]]))


def compare(real: Coded, other: Coded, sizes: Mapping[str, int]) -> Figures:
    """Return how far tables are from the real ones."""
    crossed = cross_tables(real, sizes)
    dependence = {
        key: _distance(table, np.outer(table.sum(axis=1), table.sum(axis=0)))
        for key, table in crossed.items()
    }
    most = sorted(dependence, key=dependence.__getitem__)[-_MOST_DEPENDENT:]
    top = int(max(real.counts.max(), other.counts.max())) + 1
    numbers = [np.bincount(each.counts, minlength=top) / each.number for each in (real, other)]
    others = cross_tables(other, sizes)
    return Figures(
        number=_distance(*numbers),
        dependent=_mean(crossed, others, most),
        cross=_mean(crossed, others),
        siblings=_mean(sibling_tables(real, sizes), sibling_tables(other, sizes)),
        within=_mean(
            cross_tables(real, sizes, within=True), cross_tables(other, sizes, within=True)
        ),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linked")
    parser.add_argument("--tables", nargs="*", choices=FAMILIES, default=[*FAMILIES])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    _line("table", [name.replace("number", "N") for name in Figures._fields], "note")
    for name in options.tables:
        measure(name, FAMILIES[name](), options.epsilon, options.runs)


def measure(name: str, family: Family, epsilon: float, runs: int) -> None:
    """Print the figures of some releases of a family, of halves, and of independent tables."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        path = _declare(home, family, epsilon, runs)
        config = load_configuration(path)
        real = coded(family.source, family.rows, family.keys, config, family.name)
        of_rows = config.of_rows(family.name)
        sizes = {
            each: len(column.labels) + 1
            for columns in (config.columns, of_rows.columns)
            for each, column in columns.items()
        }
        half = np.random.default_rng(0).random(real.number) < 0.5
        _figures(f"{name}, two halves", compare(real.some(half), real.some(~half), sizes))
        _figures(f"{name}, independent", compare(real, real.independent(), sizes))
        for run in range(runs):
            started = time.process_time()
            place = run_plainly(home, path, f"r{run}") / "release"
            seconds = time.process_time() - started
            units = pd.read_csv(place / "synthetic.csv", dtype=str, keep_default_na=False)
            file = place / f"synthetic-{family.name}.csv"
            rows = pd.read_csv(file, dtype=str, keep_default_na=False)
            made = coded(units, rows, family.keys, config, family.name)
            kept = [*real.units]
            made = Coded(
                {each: made.units[each] for each in kept}, made.rows, made.owners, made.number
            )
            _figures(
                f"{name}, epsilon {epsilon:g}, {run}",
                compare(real, made, sizes),
                f"{seconds:.0f} s of CPU",
            )


def _declare(home: Path, family: Family, epsilon: float, runs: int) -> Path:
    """Write tables and configuration, and open an account for so many releases; return the configuration's path."""
    family.source.to_csv(home / "units.csv", index=False)
    family.rows.to_csv(home / "rows.csv", index=False)
    unit = {"column": family.keys[0], "max_records": 1}
    table = {
        "source": "rows.csv",
        "by": family.keys[1],
        "at_most": family.at_most,
        "columns": family.row_columns,
        "derive": family.derive,
        **family.structure,
    }
    content = {
        "dataset": "family",
        "source": "units.csv",
        "rows": len(family.source),
        "missing": [""],
        "privacy": {"epsilon": epsilon, "delta": DELTA, "unit": unit},
        "columns": family.columns,
        "tables": {family.name: table},
    }
    path = home / "family.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    account = Account(
        dataset="family",
        epsilon=Decimal(str(epsilon)) * 2 * runs,
        delta=Decimal(DELTA),
        unit=f"subject:{family.keys[0]}",
        neighbors="add-remove",
    )
    os.environ["MARGINWEAVE_LEDGER"] = str(home / "ledger" / "ledger.sqlite")
    Ledger.create(home / "ledger" / "ledger.sqlite").accounts.open(account, actor="steward")
    return path


def _figures(name: str, figures: Figures, note: str = "") -> None:
    _line(name, [f"{figure:.3f}" for figure in figures], note)


def _line(name: str, cells: list[str], note: str) -> None:
    sys.stdout.write(f"| {name} | {' | '.join(cells)} | {note} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
