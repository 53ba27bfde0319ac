"""A release with levels: what is counted at which level is decided before there is a row, and the release can be verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from marginweave.accounting.accounts import Account
from marginweave.configuration.load import load_configuration
from marginweave.configuration.release import Configuration
from marginweave.counts.noise import planned_cliques
from marginweave.flows.cli.app import app
from marginweave.ledger import Ledger
from marginweave.measurements.plan import DrawKind
from tests.audit.findings import refuted
from tests.audit.suite import Effort, audit
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
BAND = {"column": "band", "by": "age", "mapping": {"[0, 18)": "young"}, "default": "old"}
HALF = {"column": "half", "by": "grade", "mapping": {"1": "low", "2": "low", "3": "low"}, "default": "high"}
# Noise that leaves some pairs their finer columns, and others the coarser ones.
CHANGES: dict[str, Any] = {
    "aggregate": {"method": "marginals", "cliques": {"all": 2}, "compress": "none"},
    "columns__band": {"type": "category", "values": ["young", "old"]},
    "columns__half": {"type": "category", "values": ["high", "low"]},
    "structure": {"levels": [BAND, HALF], "forbidden": [{"sex": "f", "grade": "7"}]},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With releases of two tables that have nothing in common: 300 people, and two who are alike."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger" / "ledger.sqlite"))
        account = Account(
            dataset="people", epsilon=Decimal(3), delta=Decimal("1e-5"), unit="row", neighbors="add-remove"
        )
        Ledger.create(home / "ledger" / "ledger.sqlite").accounts.open(account, actor="steward")
        path = people(home, 300, **CHANGES)
        path.write_text(path.read_text() + "rows: 50\n")
        run_plainly(home, path, "many")
        (home / "people.csv").write_text("sex,region,age,grade\nm,,7,7\nm,,7,7\n")
        run_plainly(home, path, "few")
        (home / "people.csv").unlink()
        yield home


@pytest.fixture(scope="module")
def declared(home: Path) -> Configuration:
    """Of a table that is no longer there."""
    return load_configuration(home / "people.yaml")


def test_the_level_of_each_set_of_columns_reads_no_row(home: Path, declared: Configuration) -> None:
    names = [attribute.name for attribute in declared.attributes]
    planned = [[names[a] for a in clique] for clique in planned_cliques(declared, DrawKind.MARGINALS)]
    assert {name for pair in planned for name in pair} > {"age", "band"}
    for run in ("many", "few"):
        told = json.loads((home / "runs" / run / "release" / "privacy.json").read_text())["marginals"]
        assert [m["attributes"] for m in told] == [*([name] for name in names), *planned]


def test_the_counts_say_which_columns_are_levels(home: Path) -> None:
    head = pq.read_table(home / "runs" / "many" / "release" / "aggregates.parquet")["note"][0].as_py()
    assert head.endswith(
        " band has coarser values of age: either counts the same records. half has coarser values of grade: either counts the "
        "same records. Beside other columns the adjusted counts of the two may differ."
    )


def test_it_is_verified_and_a_forged_level_is_refused(home: Path, declared: Configuration) -> None:
    def verified(code: int) -> str:
        result = CliRunner().invoke(app, ["ledger", "verify", "--home", str(home)])
        assert result.exit_code == code, result.output + result.stderr
        return result.output if code == 0 else result.stderr

    assert "every privacy.json and account.json number by number" in " ".join(verified(0).split())
    stated = home / "runs" / "many" / "release" / "privacy.json"
    before = stated.read_text()
    for level, other in (("band", "age"), ("half", "grade")):
        assert f'"{level}"' in before
        stated.write_text(before.replace(f'"{level}"', f'"{other}"'))
        assert "privacy.json" in verified(1)
    stated.write_text(before)
    verified(0)
    little = Effort(trials=4000, selections=10, laplace=10, runs=30, units=1000)
    assert not refuted(list(audit(declared, little)))
