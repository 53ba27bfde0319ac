"""Tables on which a release can look fine and be wrong, followed as a steward does: init, check, run, publish.

docs/traps.md has the twelve traps, where each is tested, and what thirty releases of those gave whose outcome is chance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.command_line import CommandLine
from tests.support.drafts import answered
from tests.support.traps import HIGH, ROWS, costs, survey

pytestmark = pytest.mark.system
# A standard normal variable is beyond 5.2 with probability 2e-7: five looks at one are below 1e-6.
Z = 5.2
QUICK = "synthesize: {method: mixture, components: 20, fits: 1, iterations: 20}\n"


@dataclass(frozen=True)
class Followed:
    """What a steward has who followed the commands to the end."""

    drafted: str
    said: dict[str, Any]
    published: Path

    @property
    def records(self) -> pd.DataFrame:
        return pd.read_parquet(self.published / "synthetic.parquet")

    @property
    def statement(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.published / "privacy.json").read_text())
        return told

    def deviation(self, *attributes: str) -> float:
        """Of the noise of a marginal."""
        found = [m for m in self.statement["marginals"] if set(m["attributes"]) == set(attributes)]
        return float(found[0]["deviation"])


def follow(
    cli: CommandLine, table: pd.DataFrame, edit: Callable[[str], str], unit: str = "row"
) -> Followed:
    """Draft, answer, check, open an account, run and publish; the verdict needs no --even-so."""
    table.to_csv(cli.home / "t.csv", index=False)
    drafted = cli("init", "t.csv")
    assert drafted.returncode == 0, drafted.stderr
    place = cli.home / "t.yaml"
    draft = place.read_text()
    place.write_text(edit(answered(draft, "the questionnaire")))
    looked = cli("check", "t.yaml")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert (
        cli("ledger", "open", "t", "--epsilon", "9", "--delta", "1e-6", "--unit", unit).returncode
        == 0
    )
    done = cli("run", "t.yaml", "--run", "r")
    assert done.returncode == 0, done.stderr
    to = cli.home / "published"
    assert cli("publish", "r", "--to", to).returncode == 0
    return Followed(draft, json.loads(done.stdout.splitlines()[-1]), to)


def test_costs_a_top_code_and_columns_without_gaps(marginweave: CommandLine) -> None:
    """Lognormal costs, and visits of which a third are 501, above five times: epsilon 1, 12,000 rows, two columns.

    The mean is off by what noise does to it, at most sd / n sqrt(sum of squared upper edges), and 3 % for draws inside the bins
    and records of whole numbers; sd is that of single columns, and what is measured of the pair makes it less. The median is
    within a bin: the count below an edge is off by less than Z sd sqrt(12), far less than the bins around it have. The top
    code's count is off by Z sd, and 1 % for the fit. No cell is empty, whatever the noise.
    """
    table = costs()
    table["visits"] = np.where(np.arange(ROWS) % 3 == 0, 501, np.arange(ROWS) * 7 % 120)

    def edit(draft: str) -> str:
        old = "visits: {type: number, bounds: [0, 600], bins: 10,"
        assert old in draft
        new = "visits: {type: number, bounds: [0, 120], bins: 6, codes: {501: above},"
        return draft.replace(old, new) + QUICK

    found = follow(marginweave, table, edit)
    assert (
        f"cost: {{type: number, bounds: [0, {HIGH}], bins: {{log: 12}}, decimals: 2"
        in found.drafted
    )
    records = found.records
    assert int(records.isna().sum().sum()) == 0
    edges = np.geomspace(HIGH / 1e4, HIGH, 12)
    noise = found.deviation("cost") / ROWS * float(np.linalg.norm(edges))
    mean = table["cost"].mean()
    assert Z * noise < 0.6 * mean
    assert abs(records["cost"].mean() - mean) < Z * noise + 0.03 * mean
    place = np.searchsorted(edges, [records["cost"].median(), table["cost"].median()])
    assert abs(place[0] - place[1]) <= 1
    top = records["visits"] == 501
    assert abs(top.mean() - 1 / 3) < Z * found.deviation("visits") / ROWS + 0.01
    assert records["visits"][~top].max() <= 120


def test_one_strong_pair_of_a_small_survey_is_kept(marginweave: CommandLine) -> None:
    """944 voters, epsilon 1, the number of rows published: party by vote.

    L is the share of records in cells that have more than independence gives, less that in others, as far as it differs from
    what independence gives: .79 in the table, 0 where the pair is washed out. It is linear in the 14 counts, so noise of
    deviation sd in each moves it by less than Z sd sqrt(14) / n with probability 2e-7, and what brings noisy counts nearer to
    true ones by less; the fit ends where it is as near as noise allows: .1. The pair is measured: in each of ten rounds its
    score exceeds the next by 229 records, so it is chosen with exp(.038 x 229 / 2) = 77 times the probability of the next,
    and never with (1/4)^10 < 1e-6.
    """
    table = survey()
    found = follow(marginweave, table, lambda draft: f"{draft}rows: 1000\n")
    true, made = (
        pd.crosstab(t["PID"], t["vote"], normalize=True).to_numpy() for t in (table, found.records)
    )
    independent = np.outer(true.sum(axis=1), true.sum(axis=0))
    more = np.sign(true - independent)
    strength = float(np.abs(true - independent).sum())
    bound = Z * found.deviation("PID", "vote") * math.sqrt(true.size) / len(table) + 0.1
    assert bound < 0.8 * strength
    assert float((more * (made - independent)).sum()) > strength - bound


def test_rows_of_patients_are_not_protected_one_by_one(marginweave: CommandLine) -> None:
    """`init` asks whose privacy it is and proposes the patients; `check` says it of `unit: row`; the promise is to patients."""
    cli, rows = marginweave, 900
    table = pd.DataFrame(
        {"patient_id": [f"p{i // 3}" for i in range(rows)], "sex": ["f", "m"] * (rows // 2)}
    )

    def edit(draft: str) -> str:
        (cli.home / "rows.yaml").write_text(
            draft.replace("{column: patient_id, max_records: 3}", "row")
        )
        warned = cli("check", "rows.yaml")
        assert "share their patient_id with another row" in " ".join(warned.stdout.split())
        return draft.replace("epsilon: 1.0", "epsilon: 9.0")

    found = follow(cli, table, edit, unit="subject:patient_id")
    assert "confirm: true  # whose privacy is it?" in found.drafted
    assert "unit: {column: patient_id, max_records: 3}  # 3.0 rows each" in found.drafted
    assert found.statement["guarantee"]["unit"].startswith("subject of column 'patient_id', ")
    assert "patient_id" not in found.records
