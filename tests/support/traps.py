"""Tables on which a release can look fine and be wrong by chance, and how wrong each of their releases is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import yaml

from marginweave.accounting.accounts import Account
from marginweave.ledger import Ledger
from tests.support.known import known
from tests.support.plain_runs import run_plainly

ROWS, HIGH = 12_000, 400_000
PRIVACY = {"epsilon": 1.0, "delta": 1e-6, "unit": "row"}
COST = {"type": "number", "bounds": [0, HIGH], "bins": {"log": 12}, "decimals": 2}
OTHERS: dict[str, dict[str, Any]] = {
    "region": {"type": "category", "values": list("abcde")},
    "sex": {"type": "category", "values": ["f", "m"]},
    "grade": {"type": "category", "values": list(range(1, 8))},
}
SURVEY: dict[str, dict[str, Any]] = {
    **{
        name: {"type": "category", "values": list(range(1, 8))}
        for name in ("selfLR", "ClinLR", "DoleLR", "educ")
    },
    "TVnews": {"type": "category", "values": list(range(8))},
    "PID": {"type": "category", "values": list(range(7))},
    "vote": {"type": "category", "values": [0, 1]},
    "income": {"type": "number", "bounds": [1, 25], "bins": 8, "decimals": 0},
    "age": {"type": "number", "bounds": [18, 98], "bins": 8, "decimals": 0},
    "popul": {"type": "number", "bounds": [0, 10_000], "bins": {"log": 8}, "decimals": 0},
}


def costs(others: int = 0) -> pd.DataFrame:
    """Costs with mean 3,900 and median 1,130; so many other columns follow them loosely."""
    rng = np.random.default_rng(8)
    cost = np.minimum(rng.lognormal(np.log(1127), 1.58, ROWS), HIGH).round(2)
    table, rank = pd.DataFrame({"cost": cost}), cost.argsort().argsort() / ROWS
    for name in list(OTHERS)[:others]:
        values = OTHERS[name]["values"]
        place = np.clip(
            len(values) * (0.6 * rank + 0.4 * rng.random(ROWS)), 0, len(values) - 1
        ).astype(int)
        table[name] = [values[i] for i in place]
    return table


def survey() -> pd.DataFrame:
    """944 voters in ten columns, of which one pair, party by vote, is strong."""
    from statsmodels.datasets import anes96

    found: pd.DataFrame = known(anes96.load_pandas().data)[list(SURVEY)].astype(int)
    return found


def cramers_v(table: pd.DataFrame, one: str, other: str) -> float:
    """Cramér's V of two columns, without correction."""
    from scipy.stats.contingency import association

    return float(association(pd.crosstab(table[one], table[other]).to_numpy(), method="cramer"))


def mean_error(true: pd.DataFrame, made: pd.DataFrame) -> float:
    """By how much the mean cost is off, as a share of it."""
    return float(made["cost"].mean() / true["cost"].mean() - 1)


def kept_strength(true: pd.DataFrame, made: pd.DataFrame) -> float:
    """Cramér's V of party by vote in records, as a share of the true one."""
    return cramers_v(made, "PID", "vote") / cramers_v(true, "PID", "vote")


@dataclass(frozen=True, kw_only=True)
class Trap:
    """A table, its configuration, its public size, and what is measured of the records of a release."""

    table: Callable[[], pd.DataFrame]
    columns: Mapping[str, Any]
    measure: Callable[[pd.DataFrame, pd.DataFrame], float]
    rows: int | None

    def write(self, place: Path) -> Path:
        """The table and its configuration in a folder."""
        self.table().to_csv(place / "t.csv", index=False)
        size = {} if self.rows is None else {"rows": self.rows}
        content = {"dataset": "t", "source": "t.csv", **size, "missing": [], "privacy": PRIVACY}
        (place / "t.yaml").write_text(yaml.safe_dump({**content, "columns": dict(self.columns)}))
        return place / "t.yaml"


COSTS = {
    others: Trap(
        table=partial(costs, others),
        columns={"cost": COST, **dict(list(OTHERS.items())[:others])},
        measure=mean_error,
        rows=10_000,
    )
    for others in (0, 1, 3)
}
STRONG_PAIR = Trap(table=survey, columns=SURVEY, measure=kept_strength, rows=1_000)
UNKNOWN_SIZE = replace(STRONG_PAIR, rows=None)


def released(trap: Trap, home: Path) -> tuple[float, int]:
    """What is measured of the records of one release in a new home, by fresh noise, and how many of their cells are empty."""
    path, place = trap.write(home), home / "ledger" / "ledger.sqlite"
    with mock.patch.dict("os.environ", {"MARGINWEAVE_LEDGER": str(place)}):
        account = Account(
            dataset="t",
            epsilon=Decimal(1),
            delta=Decimal("1e-6"),
            unit="row",
            neighbors="add-remove",
        )
        Ledger.create(place).accounts.open(account, actor="steward")
        run = run_plainly(home, path, "r")
    made = pd.read_parquet(run / "release" / "synthetic.parquet")
    return trap.measure(trap.table(), made), int(made.isna().sum().sum())
