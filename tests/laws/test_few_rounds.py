"""Rounds that had no share left for most pairs: intervals and grades of these do not say that they are as near as noise."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import yaml

from marginweave import Release
from marginweave.accounting.accounts import Account
from marginweave.ledger import Ledger
from tests.support.plain_runs import run_plainly

ROWS, COLUMNS = 4_000, [f"c{number}" for number in range(8)]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Release]:
    """Eight columns of two values that depend on two numbers, and a release of one round at an epsilon of little noise."""
    home, rng = tmp_path_factory.mktemp("home"), np.random.default_rng(3)
    numbers = rng.normal(size=(ROWS, 2)) @ rng.normal(size=(2, 8)) + rng.normal(size=(ROWS, 8))
    table = pd.DataFrame(np.where(numbers > 0, "yes", "no"), columns=COLUMNS)
    table.to_csv(home / "table.csv", index=False)
    config = {
        "dataset": "table",
        "source": "table.csv",
        "privacy": {"epsilon": 20, "delta": 1e-6, "unit": "row"},
        "columns": {name: {"type": "category", "values": ["no", "yes"]} for name in COLUMNS},
        "aggregate": {"method": "marginals", "cliques": {"adaptive": 2, "rounds": 1}},
        "synthesize": {"method": "mixture", "components": 50, "fits": 1, "iterations": 100},
    }
    (home / "table.yaml").write_text(yaml.safe_dump(config))
    place = home / "ledger" / "ledger.sqlite"
    account = Account(dataset="table", epsilon=Decimal(20), delta=Decimal("1e-6"), unit="row", neighbors="add-remove")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        Ledger.create(place).accounts.open(account, actor="steward")
        folder = run_plainly(home, home / "table.yaml", "r") / "release"
    return table, Release.open(folder)


def test_intervals_of_pairs_that_no_round_chose_cover(released: tuple[pd.DataFrame, Release]) -> None:
    """Noise moves a count by 3 records, and what is not known by 100: no draw makes it less than nine of ten."""
    table, release = released
    covered = list[bool]()
    for pair in itertools.combinations(COLUMNS, 2):
        answers = release.query(by=list(pair))
        counts = table.groupby(list(pair)).size()
        modelled = answers[(answers["how"] == "model") & answers["level"].notna()]
        covered += [
            bool(line["low"] <= counts[line[pair[0]], line[pair[1]]] <= line["high"]) for _, line in modelled.iterrows()
        ]
    assert len(covered) > 60
    assert np.mean(covered) >= 0.9


def test_pairs_that_no_round_chose_are_not_called_good(released: tuple[pd.DataFrame, Release]) -> None:
    """Half of them are farther than .05 from the table."""
    _, release = released
    grades = [one.grade for one in release.evaluation.verdict.sets if one.unmeasured == "not chosen"]
    assert len(grades) > 20
    assert "good" not in grades
