"""Releases of a table with a new code, or with decimal commas, in a column that does not always apply; no server."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from marginweave import Release
from marginweave.accounting.accounts import Account
from marginweave.ledger import Ledger
from tests.support.command_line import CommandLine
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
ROWS = 600
# records: 20 standard deviations of the noise of a count, and a third of what would be made up
NEAR = 40
COLUMNS: dict[str, dict[str, Any]] = {
    "sector": {"type": "category", "values": ["s", "t"], "missing": ["N"]},
    "hours": {"type": "number", "bins": [0, 20, 40, 80], "decimals": 1, "missing": ["N"]},
}
SPOILED = {"sector": "x", "hours": "38,5"}
READ = {"sector": ["s", "t"], "hours": ["10.5", "38.5"]}


def _table(name: str) -> pd.DataFrame:
    """In 270 of 420 records to which the column applies it can be read, in 150 it cannot."""
    cells = [*READ[name][:1] * 90, *READ[name][1:] * 180, *[SPOILED[name]] * 150, *["N"] * 180]
    return pd.DataFrame(
        {"work": ["yes"] * 420 + ["no"] * 180, name: cells, "sex": ["f", "m"] * (ROWS // 2)}
    )


def _release(alone: CommandLine, name: str, aggregate: dict[str, Any]) -> Release:
    configuration = {
        "dataset": "people",
        "source": "people.csv",
        "privacy": {"epsilon": 8.0, "delta": 1e-5, "unit": "row"},
        "columns": {
            "work": {"type": "category", "values": ["yes", "no"]},
            name: COLUMNS[name],
            "sex": {"type": "category", "values": ["f", "m"]},
        },
        "structure": {"applies": [{"columns": [name], "where": {"work": "yes"}, "otherwise": "N"}]},
        "aggregate": aggregate,
        "synthesize": {"method": "aggregate-seeded"},
    }
    _table(name).to_csv(alone.home / "people.csv", index=False)
    path = alone.home / "people.yaml"
    path.write_text(yaml.safe_dump(configuration, sort_keys=False))
    return Release(run_plainly(alone.home, path, "r") / "release")


@pytest.fixture
def account(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Path(alone.variables["MARGINWEAVE_LEDGER"])
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(ledger))
    opened = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(ledger).accounts.open(opened, actor="steward")


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("method", ["marginals", "k-tuples"])
@pytest.mark.parametrize("name", COLUMNS)
def test_what_cannot_be_read_is_counted_as_such_where_the_column_applies(
    alone: CommandLine, name: str, method: str
) -> None:
    """Its values have as many records as they had, also in the records that are made; the verdict says how many are lost."""
    aggregate = {"method": method} | ({"cliques": {"all": 2}} if method == "marginals" else {})
    release = _release(alone, name, aggregate)
    stated = json.loads((Path(release.place) / "privacy.json").read_text())
    (cells,) = (one for one in stated["undeclared"] if one["attribute"] == name)
    assert cells["found"]
    assert cells["kept"]
    assert abs(cells["count"] - 150) < NEAR
    assert stated["verdict"]["publication"] == "not for publication"
    if method == "marginals" and name == "hours":
        (flag,) = release.query(mean="hours")["flag"]
        share, _, following = cells["words"].partition(" were not among the declared values.")
        assert following
        note = f"in all that was counted {share.lower()} were not among the declared values, and are left out"
        assert flag.endswith(f"{note}; of hours, numbers below 0 count as 0, and above 80 as 80")
    (said,) = (
        text
        for text in stated["verdict"]["says"]
        if f"of {name} were not among the declared values" in text
    )
    assert (
        "A cell that is missing where a rule between columns wants a value is one of these." in said
    )
    counts = release.query(by=["work", name]).set_index(["work", name]).estimate
    values = {str(label): float(number) for label, number in counts.loc["yes"].items()}
    truth = {"s": 90, "t": 180, "[0, 20)": 90, "[20, 40)": 180, "[40, 80]": 0}
    assert all(
        abs(number - truth[label]) < NEAR
        for label, number in values.items()
        if label in truth and number >= 0
    )
    if method == "marginals":
        assert values["(missing)"] == 0, "the rule says so"
        assert abs(values["(not as declared)"] - 150) < NEAR
        assert abs(counts["no", "(missing)"] - 180) < NEAR
    made = release.synthetic
    empty = made[name].isna().groupby(made.work).sum()
    assert np.allclose(empty[["yes", "no"]] * ROWS / len(made), [150, 180], atol=NEAR)
    written = pd.read_csv(Path(release.place) / "synthetic.csv", keep_default_na=False)
    assert (written[name] == "").sum() == empty.sum(), (
        "the text for the missing value is not true of all of these"
    )


@pytest.mark.usefixtures("account")
def test_what_is_missing_and_what_is_not_as_declared_can_be_asked_for(alone: CommandLine) -> None:
    """Each by itself, and both together as all that is not a value."""
    release = _release(alone, "sector", {"method": "marginals", "cliques": {"all": 2}})
    counts = release.query(where={"sector": "(not as declared)"}).estimate
    beside = release.query(where={"sector": "N"}).estimate
    others = release.query(where={"sector": {"but": ["s"]}}).estimate
    assert abs(float(counts.iloc[0]) - 150) < NEAR
    assert abs(float(beside.iloc[0]) - 180) < NEAR
    assert abs(float(others.iloc[0]) - 510) < NEAR
