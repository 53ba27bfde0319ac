"""`marginweave.inference.regression` on finished releases: what values count, and refusals; no server."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marginweave.inference import regression
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger.accounts import Account
from marginweave.schemas.released.statement import PrivacyStatement
from marginweave.tasks.ledger import Ledger
from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
CLIQUES = [["sex", "region", "grade"], ["sex", "age"]]


def _release(alone: CommandLine, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    ledger = Path(alone.variables["MARGINWEAVE_LEDGER"])
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(ledger))
    account = Account(dataset="people", epsilon=Decimal(9), delta=Decimal("1e-5"), unit="row", neighbors="add-remove")
    Ledger.create(ledger).accounts.open(account, actor="steward")
    return run_plainly(alone.home, people(alone.home, privacy__epsilon=8.0, **changes), "r") / "release"


def test_regressions_of_a_release(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody lacks a region: it has no such value, whose indicator the noise decides on.
    measured = {"method": "marginals", "cliques": CLIQUES}
    place = _release(alone, monkeypatch, aggregate=measured, columns__region__missing=[])
    with pytest.raises(InputError, match=r"'grade' has values without a number.*\(missing\)"):
        regression(place, "grade", ["region"])
    scores = {
        "sex": {"f": 0.0, "m": 1.0, "(missing)": 0.0},
        "grade": {f"{n}": n for n in range(1, 8)} | {"(missing)": 4},
    }
    scores["age"] = dict.fromkeys(PrivacyStatement.from_json((place / "privacy.json").read_bytes()).domain["age"], 1.0)
    scores["age"]["(missing)"] = 0.0
    found = regression(place, "sex", ["region", "grade"], kind="logistic", values=scores)
    assert [*found.table.columns] == ["estimate", "low", "high", "sd"]
    assert found.names[0] == "intercept"
    assert "region=south" in found.names
    assert "region=north" not in found.names
    assert (found.low < found.estimate).all()
    assert (found.estimate < found.high).all()
    rows = regression(str(place), "sex", ["region", "grade"], kind="logistic", of="table", values=scores, level=0.95)
    assert np.array_equal(rows.estimate, found.estimate)
    assert (rows.table["sd"] < found.table["sd"]).all()
    for asked, message in (
        (("town", ["grade"]), "'town' is no column that was counted by itself; there are"),
        (("region", ["sex"]), "'region' has values without a number; say in `values`"),
        (("sex", ["region", "region"]), "named twice"),
        (
            ("sex", ["grade", "age"]),
            "no measured set together; leave one out. Measured are: sex, region, grade; sex, age",
        ),
    ):
        with pytest.raises(InputError, match=message):
            regression(place, *asked, values=scores)
    given: dict[str, Any] = {"kind": "logistic", "values": scores}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kind": "logit"}, r"^kind \(logit\) must be linear or logistic$"),
        ({"of": "rows"}, r"^of \(rows\) must be population or table$"),
        ({"level": 95}, r"^level \(95\) must be between 0 and 1"),
        ({"level": 0}, r"^level \(0\) must be between 0 and 1"),
        ({"values": {**scores, "town": {"a": 1}}}, "'town' is no column that was counted by itself"),
        ({"values": {"sex": {**scores["sex"], "x": 1}}}, "values of 'sex' names x, which it has not"),
        ({"values": {"sex": {**scores["sex"], "f": math.nan}}}, "values of sex must be finite numbers"),
    ]
    for wrong, message in cases:
        with pytest.raises(InputError, match=message):
            regression(place, "sex", ["region"], **{**given, **wrong})
    with pytest.raises(InputError, match="count 0 or 1"):
        regression(place, "sex", ["region"], kind="logistic", values={"sex": {"f": 1, "m": 2, "(missing)": 0}})
    with pytest.raises(InputError, match="complete release"):
        regression(alone.home, "sex", ["region"])


def test_no_regression_without_a_model(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    place = _release(alone, monkeypatch, synthesize__method="aggregate-seeded")
    with pytest.raises(InputError, match=r"has no model\.parquet"):
        regression(place, "sex", ["region"])
