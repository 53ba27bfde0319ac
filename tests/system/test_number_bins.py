"""Skewed numbers, from a table to its release: log bins keep mean and median."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from marginweave.accounting.accounts import Account
from marginweave.configuration.columns import NumberColumn
from marginweave.ledger import Ledger
from marginweave.publish.reader import PublishedRelease
from marginweave.released.evaluation import Evaluation, InternalEvaluation
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
ROWS, HIGH = 12_000, 400_000


def released(
    home: Path, patch: pytest.MonkeyPatch, bins: Any, **changes: Any
) -> tuple[np.ndarray, Path]:
    """Costs with mean 3,900 and median 1,130, and the run that releases them at epsilon 1."""
    cost = np.minimum(np.random.default_rng(8).lognormal(np.log(1127), 1.58, ROWS), HIGH).round(2)
    (home / "costs.csv").write_text("\n".join(["cost", *map(str, cost)]) + "\n")
    content = {
        "dataset": "costs",
        "source": "costs.csv",
        "missing": [],
        "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row"},
        "columns": {"cost": {"type": "number", "bounds": [0, HIGH], "bins": bins, "decimals": 2}},
        "aggregate": {"method": "marginals"},
        "evaluate": {"internal": True},
        **changes,
    }
    (home / "costs.yaml").write_text(yaml.safe_dump(content))
    place = home / "ledger" / "ledger.sqlite"
    patch.setenv("MARGINWEAVE_LEDGER", str(place))
    account = Account(
        dataset="costs",
        epsilon=Decimal(2),
        delta=Decimal("2e-6"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(place).accounts.open(account, actor="steward")
    return cost, run_plainly(home, home / "costs.yaml", "r")


def test_log_bins_keep_mean_and_median(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean within 2 % and what noise does to it, the median within a bin; both evaluations have them.

    The noise of the mean is at most sigma / n sqrt(sum of squared upper edges); 4.9 of it have probability 1e-6. Of the
    count below an edge it is some 15 records, and a bin has 1,000 and more around the median.
    """
    cost, run = released(tmp_path, monkeypatch, {"log": 12})
    published = PublishedRelease.read(run / "release")
    column = published.configuration.columns["cost"]
    assert isinstance(column, NumberColumn)
    made = (
        pq.read_table(run / "release" / "synthetic.parquet").column("cost").drop_null().to_numpy()
    )
    noise = (
        next(iter(published.statement.marginals or ())).deviation
        / ROWS
        * float(np.linalg.norm(column.edges[1:]))
    )
    assert noise < 0.05 * cost.mean()
    assert abs(made.mean() - cost.mean()) < 0.02 * cost.mean() + 4.9 * noise
    place = np.searchsorted(column.edges, [np.median(made), np.median(cost)])
    assert abs(place[0] - place[1]) <= 1
    told = next(
        iter(Evaluation.from_json((run / "release" / "evaluation.json").read_bytes()).numbers or ())
    )
    mean, median = told.statistics[0], told.statistics[3]
    assert (mean.quantile, median.quantile) == (None, 0.5)
    assert mean.synthetic == pytest.approx(made.mean())
    assert (mean.low or 0) < (mean.released or 0) < (mean.high or 0)
    exact = next(
        iter(
            InternalEvaluation.from_json(
                (run / "internal" / "evaluation.json").read_bytes()
            ).numbers
            or ()
        )
    )
    assert exact.statistics[0].sensitive == pytest.approx(cost.mean())
    assert exact.statistics[3].sensitive == pytest.approx(np.median(cost), rel=0.01)
