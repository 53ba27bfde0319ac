"""Releases whose unit is a person with several rows, and whose table is resized or has private bounds."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from marginweave.configuration.load import parse_configuration
from marginweave.measurements.split import plan_budget
from marginweave.measurements.thresholds import private_threshold
from marginweave.mechanisms.gaussian import count_sigma, noise_sigma
from tests.support.command_line import CommandLine
from tests.support.configurations import raw
from tests.support.people_table import visits
from tests.support.release_checks import released

pytestmark = pytest.mark.system
SUBJECT = {"column": "person", "max_records": 3}
UNIFORM = {"distribution": "uniform"}


def test_a_release_for_people_with_several_rows(marginweave: CommandLine, tmp_path: Path) -> None:
    """Ledger, plan, noise, threshold and statement all speak of a subject with theta = 3 rows; the id leaves no trace."""
    changes: dict[str, Any] = {
        "privacy__unit": SUBJECT,
        "privacy__epsilon": 8.0,
        "columns__town": {"type": "category", "domain": "private"},
        "aggregate__reporting_length": 2,
    }
    path = visits(tmp_path, **changes)
    refused = marginweave("run", path)
    assert refused.returncode == 3
    assert f"marginweave ledger open people --for {path}" in refused.stderr
    opened = marginweave(
        "ledger", "open", "people", "--epsilon", "9", "--delta", "1e-6", "--unit", "subject:person"
    )
    assert opened.returncode == 0, opened.stderr
    result = marginweave("run", path)
    assert result.returncode == 0, result.stderr
    folder, statement = released(marginweave)
    configuration = parse_configuration(raw(**changes))
    plan = plan_budget(configuration)
    assert configuration.stability.records == 3
    for noise in statement["noise"]:
        multiplier = plan.by_name[f"level-{noise['length']}"].parameter
        exact = noise_sigma(multiplier, noise["contribution_bound"], configuration.stability)
        assert noise["deviation"] == float(exact)
    first = statement["noise"][0]
    exact = noise_sigma(
        plan.by_name["level-1"].parameter, first["contribution_bound"], configuration.stability
    )
    assert first["private_threshold"] == private_threshold(exact, 1, 3, plan.delta_threshold)
    rows = list(csv.DictReader((folder / "aggregates.csv").open()))
    assert float(rows[0]["noise_sd"]) == float(
        count_sigma(plan.by_name["count"].parameter, configuration.stability)
    )
    assert "subject of column 'person'" in statement["guarantee"]["unit"]
    assert statement["uncounted"]["cap"] == 3
    assert (
        "collect bounds" not in json.loads((folder.parent / "manifest.json").read_text())["stages"]
    )
    assert any("At most 3 row(s) of a subject" in sentence for sentence in statement["preparation"])
    assert any(
        "Rows without a subject were left out" in sentence for sentence in statement["preparation"]
    )
    assert any(
        sentence.startswith("Rows without person are in no number")
        for sentence in statement["verdict"]["says"]
    )
    assert "person" not in pq.read_table(folder / "synthetic.parquet").column_names
    for file in (marginweave.home / "runs").rglob("*"):
        assert not file.is_file() or b"person-17" not in file.read_bytes()
    other = visits(tmp_path, **{**changes, "privacy__unit": "row", "synthesize__seed": 1})
    words = "unit (row) must be subject:person, as account people was opened"
    assert f"it will be refused: {words}" in marginweave("plan", other).stdout
    refused = marginweave("run", other)
    assert refused.returncode == 3
    assert words in refused.stderr


def test_other_theta_and_joined_rows_share_an_account(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """The account fixes the unit and its column; max_records may differ, and join counts a person once."""
    marginweave(
        "ledger", "open", "people", "--epsilon", "9", "--delta", "1e-5", "--unit", "subject:person"
    )
    joined: dict[str, Any] = {
        "privacy__unit": {"column": "person", "join": True, "missing_subject": "own"},
        "columns__grade": {"type": "set", "values": [1, 2, 3, 4, 5, 6, 7], "max_values": 2},
        "columns__person": {"type": "identifier"},
    }
    alone: dict[str, Any] = {"privacy__unit": SUBJECT}
    for changes in (alone, joined):
        path = visits(tmp_path, **changes, aggregate__reporting_length=1)
        result = marginweave("run", path)
        assert result.returncode == 0, result.stderr
    statements = [
        json.loads(file.read_text())
        for file in (marginweave.home / "runs").glob("*/release/privacy.json")
    ]
    accounts = [
        json.loads(file.read_text())
        for file in (marginweave.home / "runs").glob("*/release/account.json")
    ]
    assert {account["releases"] for account in accounts} == {1, 2}
    (own,) = (
        s for s in statements if any("joined into one record" in text for text in s["preparation"])
    )
    assert any("separate subject" in sentence for sentence in own["preparation"])
    (folder,) = (place.parent for place in (marginweave.home / "runs").glob("*/release/privacy.json")
                 if json.loads(place.read_text())["release"] == own["release"])  # fmt: skip
    words = "joined records, one for each person"
    assert json.loads((folder / "evaluation.json").read_text())["counted"].startswith(words)
    for file in ("report.html", "explore.html", "croissant.json"):
        assert words in (folder / file).read_text(), file
    assert own["verdict"]["says"][0].startswith("Each record is all rows of one person joined")
    assert not any(sentence.startswith("Rows without") for sentence in own["verdict"]["says"])


def test_a_resized_release_with_private_bounds(marginweave: CommandLine, tmp_path: Path) -> None:
    """Bounds are bought first and follow the release everywhere; the table has its public size and draws no count.

    False alarm below 1e-9: the bounds are near the quantiles.
    """
    changes: dict[str, Any] = {
        "privacy__epsilon": 8.0,
        "columns": {
            "sex": {
                "type": "category",
                "values": ["f", "m"],
                "impute": {"weights": {"f": 1, "m": 1}},
            },
            "age": {
                "type": "number",
                "bounds": "private",
                "within": [0, 1000],
                "bins": 5,
                "decimals": 0,
                "impute": {"distribution": "gaussian", "mean": 40, "deviation": 10},
            },
        },
        "resize": {"records": 700, "proportion": 1.5},
        "evaluate__internal": True,
        "aggregate__bounds_share": 0.5,
    }
    path = visits(tmp_path, rows=6000, **changes)
    marginweave("ledger", "open", "people", "--epsilon", "9", "--delta", "1e-6")
    plan = marginweave("plan", path)
    assert plan.returncode == 0, plan.stderr
    for words in (
        "bounds-2-low",
        "bounds-2-high",
        "700 records from 2 copies",
        "one unit replaces at most 2",
    ):
        assert words in plan.stdout
    assert "count" not in plan.stdout.split("draw", 1)[1].split("All draws")[0].replace(
        "record count", ""
    ).replace("least count", "")
    result = marginweave("run", path)
    assert result.returncode == 0, result.stderr
    folder, statement = released(marginweave)
    low, high = statement["bounds"]["age"]
    # 60 of the ages, 20 to 79, lie above the wanted rank; with epsilon 1 a bound of 200 has probability e^-30 a candidate
    assert 0 <= low < high < 200
    table = pq.read_table(folder / "synthetic.parquet")
    assert table.num_rows == 700
    ages = table.column("age").to_numpy()
    assert low <= ages.min() <= ages.max() <= high
    rows = list(csv.DictReader((folder / "aggregates.csv").open()))
    assert (rows[0]["count"], float(rows[0]["noise_sd"])) == ("700", 0.0)
    assert "the table may have more or fewer." in rows[0]["note"]
    assert "uncounted" not in statement
    draws = [row["draw"] for row in statement["mechanisms"]]
    assert draws[:2] == ["bounds-2-low", "bounds-2-high"]
    assert "count" not in draws
    again = marginweave("run", path)
    assert json.loads(again.stdout.splitlines()[-1])["charged_now"] is False
    more = marginweave("synthesize", folder.parent.name, "--records", "50", "--seed", "3")
    assert more.returncode == 0, more.stderr
    made = pq.read_table(folder / "synthesis-3" / "synthetic.parquet").column("age").to_numpy()
    assert low <= made.min() <= made.max() <= high
    shown = marginweave("ledger", "show", "people", "--all")
    assert "bounds" in shown.stdout


def test_an_amplified_release_is_charged_as_stated(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """The first draw carries the whole (epsilon, delta), the others nothing; the noise is that of the functional epsilon."""
    columns = {
        "sex": {"type": "category", "values": ["f", "m"], "impute": UNIFORM},
        "region": {"type": "category", "values": ["north", "south", "west"], "impute": UNIFORM},
    }
    changes: dict[str, Any] = {
        "columns": columns,
        "privacy__epsilon": 2.0,
        "resize": {"records": 400, "proportion": 0.4, "amplify": True},
    }
    path = visits(tmp_path, **{**changes, "dataset": "others"})
    opened = marginweave(
        "ledger", "open", "others", "--for", path, "--epsilon", "4", "--delta", "2e-6"
    )
    assert opened.returncode == 0, opened.stderr
    result = marginweave("run", path)
    assert result.returncode == 0, result.stderr
    folder, statement = released(marginweave, "others")
    assert statement["guarantee"]["mu"] is None
    assert statement["observer"] == pytest.approx(np.exp(2) / (1 + np.exp(2)), abs=1e-5)
    charged = [
        (row["mu2"], row["plain_epsilon"], row["plain_delta"]) for row in statement["mechanisms"]
    ]
    assert [tuple(map(float, amounts)) for amounts in charged] == [(0, 2, 1e-6), (0, 0, 0)]
    total = json.loads((folder / "account.json").read_text())["total"]
    assert (total["charged"]["plain_epsilon"], total["epsilon"]) == ("2.0", 2.0)
