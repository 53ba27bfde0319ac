"""Releases of ours in this process: every stage, draw and ledger event of `marginweave run`, without Prefect around them.

A start takes ten times as long as a release of a small table does.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.accuracy.figures import Cell
from benchmarks.accuracy.methods import OTHERS, configuration
from benchmarks.accuracy.runs import Rows, Runner, fresh, rows_of
from benchmarks.accuracy.tables import Table, delta, table
from benchmarks.scale.watch import Watched
from marginweave.accounting.accounts import Account
from marginweave.ledger import Ledger
from tests.support.forked_runs import run_by_stages


@dataclass
class InProcess(Runner):
    """Runs cells of ours here, those of peers as `Runner` does."""

    def our_rows(self, cell: Cell) -> tuple[Watched, Rows]:
        """A release in a home and with a ledger of its own; of a yardstick its share of the rows."""
        if share := OTHERS.get(cell.method, {}).get("share"):
            return _share_of_rows(cell, share)
        home = fresh(self.folder / "home")
        own = delta(cell.table)
        seen = release_here(
            home,
            configuration(cell, str(home / "table.csv")),
            table(cell.table),
            (cell.epsilon, own),
        )
        return seen, rows_of(home / "runs" / "cell" / "release" / "synthetic.csv", cell.table)


def release_here(
    home: Path, config: Mapping[str, Any], source: Table, budget: tuple[float, float]
) -> Watched:
    """Release a table as run `cell` of an empty home, by a configuration whose source is its table.csv."""
    ledger, file = home / "ledger" / "ledger.sqlite", home / "accuracy.yaml"
    epsilon, own = (Decimal(repr(number)) for number in budget)
    neighbors = config["privacy"].get("neighbors", "add-remove")
    unit = config["privacy"]["unit"]
    key = unit if isinstance(unit, str) else f"subject:{unit['column']}"
    account = Account(dataset="accuracy", epsilon=epsilon, delta=own, unit=key, neighbors=neighbors)
    Ledger.create(ledger, environment={}).accounts.open(account, actor="benchmark")
    source.write(home / "table.csv")
    file.write_text(json.dumps(config), encoding="utf-8")
    wall, cpu = time.perf_counter(), time.process_time()
    with (
        (home / "log").open("w", encoding="utf-8") as log,
        redirect_stdout(log),
        mock.patch.dict(os.environ, {"MARGINWEAVE_LEDGER": str(ledger)}),
    ):
        run_by_stages({"config": str(file), "run": "cell", "home": str(home)})
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Watched(
        wall=wall,
        cpu=cpu,
        peak=0.0,
        start=0.0,
        server_cpu=0.0,
        server_peak=0.0,
        stages=(),
        ended="",
    )


def _share_of_rows(cell: Cell, share: float) -> tuple[Watched, Rows]:
    """A random share of the rows; no release."""
    rows, began = table(cell.table).rows, time.process_time()
    chosen = np.random.default_rng(cell.seed).permutation(len(rows))[: int(share * len(rows))]
    cpu = time.process_time() - began
    seen = Watched(
        wall=cpu, cpu=cpu, peak=0.0, start=0.0, server_cpu=0.0, server_peak=0.0, stages=(), ended=""
    )
    return seen, [rows[i] for i in chosen]
