"""The notebook interface runs the same flow under the same ledger."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from marginweave.flows import Synthesizer
from marginweave.schemas.errors import BudgetError, InputError
from tests.support.configurations import quick, raw
from tests.system.conftest import CommandLine

pytestmark = pytest.mark.system


@pytest.fixture
def ledgered(marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """This process with the environment of the command line."""
    for name, value in marginweave.variables.items():
        if name.startswith(("PREFECT_", "MARGINWEAVE_")):
            monkeypatch.setenv(name, value)
    return marginweave


def frame(rows: int = 200) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "grade": [i % 7 + 1 for i in range(rows)],
            "sex": ["f", "m"] * (rows // 2),
            "region": pd.Categorical((["north", "south", "west", None, "north"] * rows)[:rows]),
            "age": [float(i % 90) for i in range(rows)],
            "ignored": range(rows),
        }
    )


def test_fit_and_sample(ledgered: CommandLine) -> None:
    """fit charges once; sample is free, has the declared columns, and leaves no copy of the frame behind."""
    with pytest.raises(BudgetError, match="marginweave ledger open people"):
        Synthesizer(quick(raw())).fit(frame())
    ledgered("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6")
    model = Synthesizer(quick(raw())).fit(frame())
    sample = model.sample(50, seed=3)
    assert list(sample.columns) == ["sex", "region", "age", "grade"]
    assert len(sample) == 50
    assert set(sample["sex"].dropna()) <= {"f", "m"}
    assert sample.equals(model.sample(50, seed=3))
    assert len(model.sample()) == model.release.aggregates.record_count
    Synthesizer(quick(raw())).fit(frame())
    assert "1 release(s)" in ledgered("ledger", "list").stdout
    assert not list(Path(os.environ["MARGINWEAVE_HOME"]).rglob("frame.parquet"))


def test_what_cannot_be_fitted(ledgered: CommandLine) -> None:
    with pytest.raises(InputError, match="fit must be called"):
        Synthesizer(raw()).sample(1)
    with pytest.raises(InputError, match="lacks the declared column 'grade'"):
        Synthesizer(raw()).fit(frame().drop(columns="grade"))
    with pytest.raises(InputError, match=r"privacy.epsilon \(0\) must be positive"):
        Synthesizer(raw(privacy__epsilon=0))
