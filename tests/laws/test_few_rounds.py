"""Rounds that had no share left for most pairs: intervals and grades of these do not say that they are as near as noise."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from marginweave import Release
from marginweave.accounting.accounts import Account
from marginweave.ledger import Ledger
from tests.support.plain_runs import run_plainly

ROWS = 4_000


def _alike(rng: np.random.Generator) -> pd.DataFrame:
    """Eight columns of two values that depend on two numbers."""
    numbers = rng.normal(size=(ROWS, 2)) @ rng.normal(size=(2, 8)) + rng.normal(size=(ROWS, 8))
    return pd.DataFrame(
        np.where(numbers > 0, "yes", "no"), columns=[f"c{number}" for number in range(8)]
    )


def _one_pair_and_others(rng: np.random.Generator) -> pd.DataFrame:
    """Two columns that are nearly the same, which every triple that is chosen has, and four that depend on one number."""
    first, number = rng.integers(0, 6, ROWS), rng.normal(size=ROWS)
    second = np.where(rng.random(ROWS) < 0.95, first, rng.integers(0, 6, ROWS))
    others = [
        np.clip(np.round(1.5 + 0.8 * number + 0.2 * rng.normal(size=ROWS)), 0, 3).astype(int)
        for _ in range(4)
    ]
    return pd.DataFrame(np.stack([first, second, *others]).T.astype(str), columns=list("uvpqrs"))


def _many_alike(rng: np.random.Generator) -> pd.DataFrame:
    """Thirty columns of two values that depend on one hidden trait, so that every pair is as far from independent."""
    shares = np.where(rng.random((ROWS, 1)) < 0.5, 0.8, 0.3)
    return pd.DataFrame(
        np.where(rng.random((ROWS, 30)) < shares, "yes", "no"),
        columns=[f"c{number}" for number in range(30)],
    )


def _released(home: Path, table: pd.DataFrame, adaptive: int, rounds: int = 1) -> Release:
    """A release of few rounds at an epsilon of little noise."""
    table.to_csv(home / "table.csv", index=False)
    config = {
        "dataset": "table",
        "source": "table.csv",
        "privacy": {"epsilon": 20, "delta": 1e-6, "unit": "row"},
        "columns": {
            name: {"type": "category", "values": sorted(set(table[name]))} for name in table
        },
        "aggregate": {"method": "marginals", "cliques": {"adaptive": adaptive, "rounds": rounds}},
        "synthesize": {"method": "mixture", "components": 50, "fits": 1, "iterations": 100},
    }
    (home / "table.yaml").write_text(yaml.safe_dump(config))
    place = home / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="table",
        epsilon=Decimal(20),
        delta=Decimal("1e-6"),
        unit="row",
        neighbors="add-remove",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        Ledger.create(place).accounts.open(account, actor="steward")
        return Release.open(run_plainly(home, home / "table.yaml", "r") / "release")


@pytest.fixture(
    scope="module", params=[(_alike, 2), (_one_pair_and_others, 3)], ids=["pairs", "triples"]
)
def released(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[pd.DataFrame, Release]:
    """A table and its release."""
    made, adaptive = request.param
    table = made(np.random.default_rng(3))
    return table, _released(tmp_path_factory.mktemp("home"), table, adaptive)


def test_intervals_of_pairs_that_no_round_chose_cover(
    released: tuple[pd.DataFrame, Release],
) -> None:
    """Noise moves a count by 3 records, and what is not known by 100: no draw makes it less than nine of ten."""
    table, release = released
    covered = list[bool]()
    for pair in itertools.combinations(table.columns, 2):
        answers = release.query(by=list(pair))
        counts = table.groupby(list(pair)).size().to_dict()
        modelled = answers[(answers["how"] == "model") & answers["level"].notna()]
        covered += [
            bool(line["low"] <= counts.get((line[pair[0]], line[pair[1]]), 0) <= line["high"])
            for _, line in modelled.iterrows()
        ]
    assert len(covered) > 60
    assert np.mean(covered) >= 0.9


def test_pairs_that_no_round_chose_are_not_called_good(
    released: tuple[pd.DataFrame, Release],
) -> None:
    """Half of the pairs are farther than .05 from the table."""
    _, release = released
    grades = [
        one.grade for one in release.evaluation.verdict.sets if one.unmeasured == "not chosen"
    ]
    assert len(grades) > 5
    assert "good" not in grades
    lines = [
        re.findall(r"Write (aggregate: .*)\.$", advice)
        for advice in release.evaluation.verdict.advice
    ]
    assert any("rounds" in line for line in itertools.chain.from_iterable(lines))


def test_where_all_pairs_are_alike_those_that_were_not_chosen_are_not_called_good(
    tmp_path: Path,
) -> None:
    """The last of eight rounds finds a pair as far from the model as the first, and 427 of 435 pairs have no round.

    Their mean distance is .1, where the few strongest of many would leave the others near.
    """
    table = _many_alike(np.random.default_rng(3))
    release = _released(tmp_path, table, 2, rounds=8)
    records = release.synthetic.astype(str)
    left = [one for one in release.evaluation.verdict.sets if one.unmeasured == "not chosen"]
    distances = []
    for one in left:
        pair = list(one.attributes)
        shares = [rows.groupby(pair).size() / len(rows) for rows in (table, records)]
        distances.append(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)
    assert len(left) > 400
    assert np.mean(distances) > 0.05
    assert "good" not in {one.grade for one in left}
