"""`marginweave synthesize --sets` on finished releases: sets that differ as their target says, and refusals; no server."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from marginweave.inference import read_sets
from marginweave.schemas.ledger.accounts import Account
from marginweave.tasks.ledger import Ledger
from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
SETS, ROWS = 20, 400


def release(
    alone: CommandLine, monkeypatch: pytest.MonkeyPatch, table: Callable[..., Path], unit: Any, **changes: Any
) -> Path:
    """A finished release `r`, made in this process."""
    ledger = Path(alone.variables["MARGINWEAVE_LEDGER"])
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(ledger))
    account = Account(dataset="people", epsilon=Decimal(9), delta=Decimal("1e-5"), unit=unit, neighbors="add-remove")
    Ledger.create(ledger).accounts.open(account, actor="steward")
    return run_plainly(alone.home, table(alone.home, privacy__epsilon=8.0, **changes), "r") / "release"


def refusal(alone: CommandLine, *arguments: str | Path) -> str:
    """The one line that a refused command says."""
    refused = alone("synthesize", "r", *arguments)
    assert refused.returncode == 2, refused.stderr
    assert "Traceback" not in refused.stderr
    return " ".join(refused.stderr.split())


def spread(sets: list[pd.DataFrame]) -> float:
    """The mean variance of the shares of all values between sets, beside that of a sample of `ROWS` rows."""
    found = []
    for name in ("sex", "region", "grade"):
        for value in sets[0][name].dropna().unique():
            shares = np.array([np.mean(one[name] == value) for one in sets])
            found.append(shares.var(ddof=1) / (shares.mean() * (1 - shares.mean()) / ROWS))
    return float(np.mean(found))


def test_sets_of_a_release(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ by records and noise, .2 and a little, and for the population also by the sample, 1 of the variance of that.

    The sums have at least 19 * 9 degrees of freedom: outside of [.15, .5] and [.7, 2.2] is less likely than 1e-6.
    """
    place = release(alone, monkeypatch, people, "row", aggregate={"method": "marginals"})
    ledger = Path(alone.variables["MARGINWEAVE_LEDGER"]).read_bytes()
    made = alone("synthesize", "r", "--sets", str(SETS))
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("Written to ")
    assert (place / "sets-0" / "privacy.json").exists()
    population = read_sets(place / "sets-0")
    assert len(population) == SETS
    (records,) = {len(one) for one in population}
    assert abs(records - 5 * ROWS) < 200
    assert len(pd.read_csv(place / "sets-0" / "set-20" / "synthetic.csv")) == records
    table = alone.home / "table"
    made = alone("synthesize", "r", "--sets", str(SETS), "--of", "table", "--records", "2000", "--to", table)
    assert made.returncode == 0, made.stderr
    assert 0.15 < spread(read_sets(table)) < 0.5
    assert 0.7 < spread(population) < 2.2
    again = alone("synthesize", "r", "--sets", "2", "--seed", "0", "--to", alone.home / "again")
    assert again.returncode == 0, again.stderr
    for name in ("set-01/synthetic.csv", "set-02/synthetic.parquet"):
        assert (alone.home / "again" / name).read_bytes() == (place / "sets-0" / name).read_bytes()
    assert Path(alone.variables["MARGINWEAVE_LEDGER"]).read_bytes() == ledger
    assert "is not an empty folder" in refusal(alone, "--sets", "2")
    assert "give --sets" in refusal(alone, "--of", "table")
    assert "--of (nation) must be" in refusal(alone, "--sets", "2", "--of", "nation")
    assert "greater than or equal to 2" in refusal(alone, "--sets", "1")


def test_no_sets_without_a_model(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    place = release(alone, monkeypatch, people, "row", synthesize__method="aggregate-seeded")
    assert "made by aggregate-seeded" in refusal(alone, "--sets", "2")
    assert not (place / "sets-0").exists()
