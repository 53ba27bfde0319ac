"""Measure tables that are wide for their rows: python -m benchmarks.wide [--tables …] [--seeds 3].

Each table is made up, released once with fresh noise by the defaults, and compared with its records; a minute each. The lines
of docs/methods.md (many columns) are printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import yaml

from marginweave.accounting.accounts import Account
from marginweave.base.arrays import Floats, Integers
from marginweave.ledger import Ledger
from tests.support.plain_runs import run_plainly

DELTA = "1e-6"
_PAIRS = 1_770  # most pairs of columns that are compared


def one_factor(rng: np.random.Generator, rows: int = 2_000) -> Integers:
    """Return 300 binary columns: .73 f + sqrt(1 - .73^2) e is above a threshold of the column, uniform on [-.5, .5]."""
    thresholds = rng.uniform(-0.5, 0.5, 300)
    factor = rng.standard_normal((rows, 1))
    own = rng.standard_normal((rows, 300))
    latent = 0.73 * factor + np.sqrt(1 - 0.73**2) * own
    return (latent > thresholds).astype(np.int64)


def three_factors(rng: np.random.Generator) -> Integers:
    """Return 60 ordinal columns of 5,000 rows: l f + sqrt(1 - l^2) e in five values, cut at -1.2, -.4, .4 and 1.2.

    f is one of three factors, column after column in turn, l is uniform on [.5, .8].
    """
    loadings = np.zeros((60, 3))
    loadings[np.arange(60), np.arange(60) % 3] = rng.uniform(0.5, 0.8, 60)
    factors = rng.standard_normal((5_000, 3))
    own = rng.standard_normal((5_000, 60))
    latent = factors @ loadings.T + own * np.sqrt(1 - (loadings**2).sum(axis=1))
    return np.digitize(latent, [-1.2, -0.4, 0.4, 1.2])


def strong_pairs(rng: np.random.Generator) -> Integers:
    """Return 300 binary columns of 2,000 rows, which are 1 with a share of .3 to .7.

    The first 30 are fifteen pairs of neighbors, of which the second is a copy of the first in four of five rows.
    """
    shares = rng.uniform(0.3, 0.7, 300)
    table = (rng.random((2_000, 300)) < shares).astype(np.int64)
    for column in range(0, 30, 2):
        copied = rng.random(2_000) < 0.8
        table[:, column + 1] = np.where(copied, table[:, column], table[:, column + 1])
    return table


class WideTable(NamedTuple):
    """A table of a generator, and the epsilon of its release."""

    make: Callable[[np.random.Generator], Integers]
    epsilon: float


TABLES = {
    "one factor": WideTable(one_factor, 1.0),
    "one factor, 20,000 rows": WideTable(lambda rng: one_factor(rng, 20_000), 1.0),
    "three factors": WideTable(three_factors, 3.0),
    "fifteen pairs": WideTable(strong_pairs, 1.0),
}


class WideFigures(NamedTuple):
    """Mean correlation of the table and of the records, their RMS difference, mean TVD of columns and of pairs; seconds."""

    correlation: float
    kept: float
    rms: float
    columns: float
    pairs: float
    seconds: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wide")
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=[*TABLES])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.tables:
        for seed in range(options.seeds):
            figures = measure(TABLES[name], seed)
            shown = " | ".join(f"{figure:.3f}" for figure in figures[:-1])
            sys.stdout.write(f"| {name}, {seed} | {shown} | {figures.seconds:.0f} s |\n")
            sys.stdout.flush()


def measure(table: WideTable, seed: int) -> WideFigures:
    """Release a table and compare its records with it."""
    exact = table.make(np.random.default_rng(seed))
    started = time.perf_counter()
    records = _release(exact, table.epsilon)
    seconds = time.perf_counter() - started
    upper = np.triu_indices(exact.shape[1], 1)
    correlations = np.asarray(np.corrcoef(exact, rowvar=False))[upper]
    of_records = np.nan_to_num(np.asarray(np.corrcoef(records, rowvar=False))[upper])
    columns = [(column,) for column in range(exact.shape[1])]
    chosen = np.random.default_rng(0).permutation(len(upper[0]))[:_PAIRS]
    pairs = [(int(upper[0][place]), int(upper[1][place])) for place in chosen]
    return WideFigures(
        correlation=float(correlations.mean()),
        kept=float(of_records.mean()),
        rms=float(np.sqrt(((correlations - of_records) ** 2).mean())),
        columns=float(np.mean([_distance(exact, records, column) for column in columns])),
        pairs=float(np.mean([_distance(exact, records, pair) for pair in pairs])),
        seconds=seconds,
    )


def _release(table: Integers, epsilon: float) -> Integers:
    """Return the records of a release with the defaults and a public number of rows."""
    values = [int(value) for value in np.unique(table)]
    columns = {
        f"q{number}": {"type": "category", "values": values} for number in range(table.shape[1])
    }
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        pd.DataFrame(table, columns=[*columns]).to_csv(home / "t.csv", index=False)
        privacy = {"epsilon": epsilon, "delta": DELTA, "unit": "row", "neighbors": "add-remove"}
        content = {"dataset": "t", "source": "t.csv", "rows": len(table), "privacy": privacy}
        (home / "t.yaml").write_text(yaml.safe_dump({**content, "columns": columns}))
        place = home / "ledger" / "ledger.sqlite"
        account = Account(
            dataset="t",
            epsilon=Decimal(str(epsilon)),
            delta=Decimal(DELTA),
            unit="row",
            neighbors="add-remove",
        )
        with mock.patch.dict("os.environ", {"MARGINWEAVE_LEDGER": str(place)}):
            Ledger.create(place).accounts.open(account, actor="steward")
            run = run_plainly(home, home / "t.yaml", "r")
        records = pd.read_csv(run / "release" / "synthetic.csv")
        return records[[*columns]].to_numpy(np.int64)


def _distance(table: Integers, records: Integers, columns: tuple[int, ...]) -> float:
    """Return the TVD of some columns."""
    sizes = (int(table.max()) + 1,) * len(columns)
    return float(
        np.abs(_shares(table, columns, sizes) - _shares(records, columns, sizes)).sum() / 2
    )


def _shares(table: Integers, columns: tuple[int, ...], sizes: tuple[int, ...]) -> Floats:
    """Return the shares of all cells of some columns, flat."""
    cells = np.ravel_multi_index(tuple(table[:, column] for column in columns), sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))) / len(table)


if __name__ == "__main__":
    main()
