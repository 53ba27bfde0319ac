"""Whole releases by the program, each in a home and with a ledger of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.scale.figures import Figure, figure
from benchmarks.scale.tables import Table, adult, coded, seeded, valued, wide, wider
from benchmarks.scale.watch import watch
from tests.support.command_line import CommandLine
from tests.support.production import documented_server, free_port

# What a process holds that has done nothing but import all modules of the program and what these import when it is needed.
IMPORTS = """
import importlib, pkgutil
import opendp.measurements, pandera.pandas, scipy.stats
from marginweave import flows, schemas, tasks
for package in (flows, schemas, tasks):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
from benchmarks.scale.peer import memory
print(memory("VmRSS"))
"""
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table, released at several numbers of rows; no more than `most`, whatever the command line asks for.

    `sections` of the configuration are those of `seeded` where none are given.
    """

    table: Callable[[], Table]
    length: int
    rows: tuple[int, ...]
    most: int
    is_csv: bool = False
    sections: Mapping[str, Any] = field(default_factory=dict)

    def source(self, folder: Path, rows: int) -> Path:
        """The table in `folder`, written if it is not there."""
        table = self.table()
        path = folder / f"{self.table.__name__}-{rows}{'.csv' if self.is_csv else ''}"
        if not path.exists():
            (table.write_csv if self.is_csv else table.write_parquet)(path, rows)
        return path


MILLION = 1_000_000
_FEW = 1000


def _by_mixture(counted: str, length: int, table: Callable[[], Table] = adult) -> Case:
    """A table counted by a method of `aggregate`, in combinations of up to `length`; records by `mixture`."""
    sections = {"aggregate": {"method": counted}, "synthesize": {"method": "mixture"}}
    return Case(table=table, length=length, rows=(MILLION,), most=20 * MILLION, sections=sections)


CASES = {
    "adult": Case(
        table=adult,
        length=3,
        rows=(10_000, 50_000, 200_000, MILLION, 5 * MILLION, 20 * MILLION),
        most=10**9,
    ),
    "adult-4": Case(table=adult, length=4, rows=(50_000, MILLION), most=MILLION),
    "adult-csv": Case(table=adult, length=3, rows=(MILLION,), most=20 * MILLION, is_csv=True),
    "adult-mixture": _by_mixture("k-tuples", 3),
    "adult-marginals": _by_mixture("marginals", 2),
    "adult-auto": Case(
        table=adult,
        length=3,
        rows=(MILLION, 20 * MILLION),
        most=10**9,
        sections={"aggregate": {"method": "auto"}},
    ),
    "wide": Case(table=wide, length=2, rows=(MILLION,), most=MILLION),
    "wider": _by_mixture("marginals", 2, wider),
    "coded": _by_mixture("marginals", 2, coded),
    "values": Case(table=valued, length=2, rows=(MILLION,), most=MILLION),
}


def release(name: str, case: Case, rows: int, folder: Path, url: str) -> Figure:
    """One release from outside, beside a server that stands, with the number of what it released; its home is removed again."""
    table, home = case.table(), folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    cli = CommandLine(home, {"PREFECT_API_URL": url, "PREFECT_HOME": str(home / "prefect")})
    try:
        opened = cli("ledger", "open", "scale", "--epsilon", "10", "--delta", "1e-3")
        if opened.returncode != 0:
            raise SystemExit(opened.stderr)
        path = home / "scale.yaml"  # JSON is YAML, too
        made = table.configuration(
            case.source(folder, rows), rows, case.sections or seeded(case.length)
        )
        path.write_text(json.dumps(made), "utf-8")
        seen = watch(cli.command("run", path, "--run", "scale"), cli.variables, home)
        numbers = {"imports": imports(), **released(home / "runs" / "scale" / "release")}
        return figure(name, rows, len(table.labels), case.length, **seen.facts(), **numbers)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def released(place: Path) -> dict[str, int]:
    """How many combinations and records a release holds; nothing if it failed."""
    named = {"combinations": "aggregates.parquet", "records": "synthetic.parquet"}
    return {
        what: pq.ParquetFile(place / file).metadata.num_rows
        for what, file in named.items()
        if (place / file).is_file()
    }


@cache
def imports() -> float:
    """Megabytes of a process that has imported every module of the program."""
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measured(names: list[str], rows: tuple[int, ...] | None, folder: Path) -> Iterator[Figure]:
    """The releases of the cases that are named, at `rows` or at their own numbers of rows.

    One that nobody sees comes first: the code that an installation compiles once is compiled then.
    """
    if not names:
        return
    with documented_server(folder / "server", free_port()) as url:
        release(names[0], CASES[names[0]], _FEW, folder, url)
        for name in names:
            for number in rows or CASES[name].rows:
                if number <= CASES[name].most:
                    yield release(name, CASES[name], number, folder, url)
