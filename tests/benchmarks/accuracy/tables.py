"""The tables of the benchmark: categorical, as text, with the public values of every column."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml
from numpy.typing import NDArray

from tests.support.places import DATA, EXAMPLES

# what the published numbers for adult.csv are for; every other table has 1 / (n ln n)
_ADULT_DELTA = 1e-9


@dataclass(frozen=True, kw_only=True)
class Table:
    """A categorical table as text, and the public values of its columns; "" is a missing value."""

    header: tuple[str, ...]
    rows: list[list[str]]
    domain: dict[str, list[str]]

    @classmethod
    def load(cls, name: str) -> Table:
        """One of the test tables."""
        folder = DATA / name.removesuffix("_cat")
        if not folder.is_dir():
            raise SystemExit("the test tables are not here; MARGINWEAVE_TEST_DATA names their folder")
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        kind = "domain.json" if name == "adult" else f"{name.removesuffix('_cat')}_domain.json"
        declared = json.loads((folder / kind).read_text(encoding="utf-8"))
        domain = {n: [str(v) for v in range(d)] if isinstance(d, int) else sorted(d) for n, d in declared.items()}
        return cls(header=tuple(header), rows=rows, domain=domain)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of public values of each column, "" included where it is one."""
        return tuple(len(self.domain[name]) for name in self.header)

    def codes(self, rows: list[list[str]]) -> NDArray[np.int64]:
        """Codes of `rows`, shape (rows, columns); a "" that the domain does not have is the size of the domain.

        Some programs leave values out where none can be missing.
        """
        numbers = [
            {"": len(self.domain[name])} | {value: code for code, value in enumerate(self.domain[name])}
            for name in self.header
        ]
        columns = zip(*rows, strict=True)
        return np.array([[n[v] for v in c] for n, c in zip(numbers, columns, strict=True)], np.int64).T

    def columns(self) -> dict[str, dict[str, object]]:
        """The section `columns` of a configuration: a column whose domain has no missing value cannot be missing."""
        never: dict[str, object] = {"missing": [], "outside": "error"}
        return {
            name: {"type": "category", "values": [v for v in values if v]} | ({} if "" in values else never)
            for name, values in ((name, self.domain[name]) for name in self.header)
        }

    def missing(self) -> list[str]:
        """The section `missing` of a configuration."""
        return [""] if any("" in values for values in self.domain.values()) else []

    def write(self, path: Path) -> None:
        """The table as CSV."""
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([self.header, *self.rows])


def fair() -> Table:
    """statsmodels' survey of Fair (1978), in the values and bins that deployments/examples/affairs.yaml declares."""
    from statsmodels.datasets import fair as survey

    frame = cast("Any", survey.load_pandas().data)  # a DataFrame, which statsmodels declares as None
    declared = yaml.safe_load((EXAMPLES / "affairs.yaml").read_text(encoding="utf-8"))["columns"]
    domain, columns = {}, []
    for name, column in declared.items():
        numbers = frame[name].to_numpy(float)
        if "bins" in column:
            edges = column["bins"]
            domain[name] = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
            columns.append([domain[name][i] for i in np.digitize(numbers, edges[1:-1])])
        else:
            domain[name] = [f"{value:g}" for value in column["values"]]
            columns.append([f"{number:g}" for number in numbers])
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Table(header=tuple(declared), rows=rows, domain=domain)


_LOADERS: dict[str, Callable[[], Table]] = {
    "affairs": fair,
    **{name: partial(Table.load, name) for name in ("drug_deaths_cat", "ma2019_cat", "adult_cat", "adult")},
}
TABLES = tuple(_LOADERS)  # the small ones first


@cache
def table(name: str) -> Table:
    """One of `TABLES`."""
    return _LOADERS[name]()


def delta(name: str) -> float:
    """The delta of every release of a table, peers' included."""
    rows = len(table(name).rows)
    return _ADULT_DELTA if name == "adult" else 1 / (rows * math.log(rows))
