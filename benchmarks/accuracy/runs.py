"""One cell: a whole release by the program, or a peer in its environment, watched from outside and measured."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self

from benchmarks.accuracy.environments import PLACE, environment, pinned
from benchmarks.accuracy.figures import Cell, Figure
from benchmarks.accuracy.measures import measure
from benchmarks.accuracy.methods import PEERS, Settings, configuration, settings
from benchmarks.accuracy.tables import TABLES, delta, table
from benchmarks.scale.machine import machine
from benchmarks.scale.watch import Limits, Watched, watch
from marginweave.flows.prefect.environment import prepare_environment
from marginweave.flows.prefect.servers import prefect_server
from tests.support.command_line import CommandLine
from tests.support.places import REPOSITORY

CORES = 2
_POOLS = ("NUMBA", "OMP", "OPENBLAS", "MKL", "RAYON")
THREADS = {f"{pool}_NUM_THREADS": str(CORES) for pool in _POOLS}
Rows = list[list[str]]


@dataclass
class Runner:
    """Runs cells in `folder`; peers' environments are in `cache`. One Prefect server stands for all releases of ours."""

    folder: Path
    cache: Path
    limits: Limits
    measured: Callable[[str, Rows], Mapping[str, float]] = lambda name, rows: measure(
        table(name), rows
    )
    _stack: ExitStack = field(default_factory=ExitStack)
    _server: str = ""
    _warm: set[str] = field(default_factory=set)
    _peers: dict[str, Path | None] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def peer(self, method: str) -> Path | None:
        """The interpreter of a peer; None if it cannot be installed."""
        package = PEERS[method].package
        if package not in self._peers:
            self._peers[package] = environment(package, self.cache)
        return self._peers[package]

    def warm(self, method: str) -> None:
        """One release that nobody sees, for a method of ours: what an installation compiles once is compiled then."""
        if method not in PEERS and method not in self._warm:
            self._warm.add(method)
            self.our_rows(Cell(table=TABLES[0], epsilon=1.0, method=method, seed=0))

    def run(self, cell: Cell) -> Figure:
        """Make the records and measure them."""
        seen, rows = self._peers_rows(cell) if cell.method in PEERS else self.our_rows(cell)
        numbers: dict[str, Any] = {
            "wall": seen.wall,
            "cpu": seen.cpu,
            "peak": seen.peak,
            "records": len(rows),
        }
        numbers["ended"] = seen.ended or ("" if rows else "no records")
        if not numbers["ended"]:
            numbers |= self.measured(cell.table, rows)
        return figure(cell, numbers)

    def our_rows(self, cell: Cell) -> tuple[Watched, Rows]:
        """`marginweave run` in a home and with a ledger of its own."""
        home = fresh(self.folder / "home")
        cli = CommandLine(
            home, {"PREFECT_API_URL": self._url(), "PREFECT_HOME": str(home / "prefect"), **THREADS}
        )
        epsilon, own = repr(cell.epsilon), repr(delta(cell.table))
        opened = cli("ledger", "open", "accuracy", "--epsilon", epsilon, "--delta", own)
        if opened.returncode != 0:
            raise SystemExit(opened.stderr)
        table(cell.table).write(home / "table.csv")
        path = home / "accuracy.yaml"  # JSON is YAML, too
        path.write_text(json.dumps(configuration(cell, "table.csv")), encoding="utf-8")
        seen = watch(cli.command("run", path, "--run", "cell"), cli.variables, home, self.limits)
        return seen, rows_of(home / "runs" / "cell" / "release" / "synthetic.csv", cell.table)

    def _peers_rows(self, cell: Cell) -> tuple[Watched, Rows]:
        """As many records as the table has rows, by a program that gets the table and its public domain."""
        peer, place = PEERS[cell.method], fresh(self.folder / "peer")
        source = table(cell.table)
        source.write(place / "table.csv")
        task = {
            "table": "table.csv",
            "domain": source.domain,
            "epsilon": cell.epsilon,
            "delta": delta(cell.table),
            "records": len(source.rows),
            "threads": CORES,
            "output": "synthetic.csv",
            **peer.options,
        }
        (place / "task.json").write_text(json.dumps(task), encoding="utf-8")
        command = [str(self.peer(cell.method)), str(PLACE / "programs" / peer.program), "task.json"]
        seen = watch(command, {**os.environ, **THREADS}, place, self.limits)
        return seen, rows_of(place / "synthetic.csv", cell.table)

    def _url(self) -> str:
        if not self._server:
            prepare_environment(fresh(self.folder / "server"))
            self._server = self._stack.enter_context(prefect_server(self.folder / "server.log"))
        return self._server


def figure(cell: Cell, numbers: Mapping[str, Any]) -> Figure:
    """A figure of now."""
    under: Settings | None = settings(cell)
    assert under is not None
    package = PEERS[cell.method].package if cell.method in PEERS else ""
    return Figure(
        cell=cell,
        settings=dict(under),
        system=package or "marginweave",
        version=pinned(package) if package else _commit(),
        delta=delta(cell.table),
        rows=len(table(cell.table).rows),
        columns=len(table(cell.table).header),
        date=datetime.now(UTC).date().isoformat(),
        load=os.getloadavg()[2],
        machine=machine(),
        numbers=dict(numbers),
    )


@cache
def _commit() -> str:
    """The commit that is measured; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.strip()


def fresh(place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def rows_of(path: Path, name: str) -> Rows:
    """Synthetic records in the order of the table's columns; none where none were written."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return [[row[column] for column in table(name).header] for row in reader]
