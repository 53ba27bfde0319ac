"""A release of a table with columns of every kind and all structure, through the real command line."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from marginweave.configuration.load import load_configuration
from marginweave.schemas.source import source_contract
from tests.support.command_line import CommandLine
from tests.support.configurations import raw

pytestmark = pytest.mark.system
COLUMNS = {
    "id": {"type": "identifier"},
    "sex": {"type": "category", "values": ["f", "m"], "missing": [], "outside": "error"},
    "town": {"type": "category", "values": ["A", "B"]},
    "zone": {"type": "category", "values": ["01", "02"]},
    "age": {"type": "number", "bounds": [0, 100], "bins": {"min": 0, "max": 100, "step": 25}, "decimals": 0, "missing": [],
            "outside": "error"},
    "stage": {"type": "category", "values": ["minor", "adult"]},
    "job": {"type": "category", "domain": "private"},
    "insured": {"type": "boolean", "true_values": ["Y"], "false_values": ["N"]},
    "visit": {"type": "date", "bounds": ["2019-01-01", "2019-12-31"], "bins": "quarter", "format": "%d.%m.%Y"},
    "signs": {"type": "set", "values": ["cough", "fever", "rash"], "max_values": 2},
    "survey": {"type": "constant", "value": "07"},
    "until": {"type": "date", "bounds": ["2019-01-01", "2020-02-29"], "bins": "year", "format": "%d.%m.%Y"},
    "days": {"type": "number", "bounds": [0, 60], "bins": [0, 1, 7, 60], "decimals": 0},
    "score": {"type": "number", "bounds": [0, 160], "bins": 1, "decimals": 0},
}  # fmt: skip
STRUCTURE = {
    "determined": [
        {
            "column": "stage",
            "by": "age",
            "mapping": {str(a): "minor" for a in range(18)},
            "default": "adult",
        }
    ],
    "forbidden": [
        {"sex": "m", "signs": "rash"},
        {"town": "A", "zone": "02"},
        {"town": "B", "zone": "01"},
    ],
    "difference": [{"column": "days", "of": "until", "since": "visit"}],
    "sum": [{"column": "score", "of": ["age", "days"]}],
}


def people(place: Path, rows: int) -> Path:
    """A table of `rows`, without the columns that need not be there, and its configuration."""
    rng = np.random.default_rng(4)
    pick = lambda *values: [str(v) for v in rng.choice(values, rows)]  # noqa: E731
    visits = [
        datetime.date(2019, 1, 1) + datetime.timedelta(days)
        for days in rng.integers(0, 365, rows).tolist()
    ]
    later = [
        day + datetime.timedelta(days)
        for day, days in zip(visits, rng.integers(-3, 70, rows).tolist(), strict=True)
    ]
    table = pa.table(
        {
            "signs": pick("", "cough", "fever;cough", "rash;rash", "cough;fever;rash"),
            "visit": [day.strftime("%d.%m.%Y") for day in visits],
            "until": [day.strftime("%d.%m.%Y") for day in later],
            "insured": pick("Y", "N", "", "unknown"),
            "sex": pick("f", "m"),
            "town": pick("A", "B"),
            "zone": pick("01", "02"),
            "age": [str(age) for age in rng.integers(0, 120, rows)],
            "job": [*pick("baker", "cook", "")[1:], "xq7marker"],
        }
    )
    pa_csv.write_csv(table, place / "people.csv", pa_csv.WriteOptions(quoting_style="needed"))
    path = place / "people.yaml"
    path.write_text(
        yaml.safe_dump(
            raw(columns=COLUMNS, structure=STRUCTURE, privacy__epsilon=4.0), sort_keys=False
        )
    )
    return path


def test_every_kind_of_column_is_released_and_decoded(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Declared types and structure hold in the output, which its own configuration reads; a rare job is lost."""
    cli, path = marginweave, people(tmp_path, 3000)
    assert cli("ledger", "open", "people", "--epsilon", "9", "--delta", "1e-6").returncode == 0
    result = cli("run", path, "--run", "kinds")
    assert result.returncode == 0, result.stderr
    release = cli.home / "runs" / "kinds" / "release"
    made = pq.read_table(release / "synthetic.parquet")
    assert made.column_names == [name for name in COLUMNS if name != "id"]
    rows = made.to_pylist()
    assert {row["survey"] for row in rows} == {"07"}
    assert {row["insured"] for row in rows} == {True, False, None}
    assert not {(row["town"], row["zone"]) for row in rows} & {("A", "02"), ("B", "01")}
    assert {row["stage"] == ("minor" if row["age"] < 18 else "adult") for row in rows} == {True}
    assert {row["job"] for row in rows} <= {"baker", "cook", None}
    assert {_apart(row) == row["days"] for row in rows if row["until"] is not None} == {True}
    assert {
        row["score"] == row["age"] + row["days"] for row in rows if row["score"] is not None
    } == {True}
    assert not any(row["sex"] == "m" and "rash" in (row["signs"] or "") for row in rows)
    assert any(row["signs"] == "cough;fever" for row in rows)

    configuration = load_configuration(path)
    texts = pa_csv.read_csv(
        release / "synthetic.csv",
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(made.column_names, pa.string())
        ),
    )
    source_contract(configuration).check(texts.select(configuration.raw_names))
    statement = json.loads((release / "privacy.json").read_text())
    assert list(statement["domain"]) == [
        "sex",
        "town",
        "zone",
        "age",
        "job",
        "insured",
        "visit",
        "signs",
        "days",
    ]
    assert statement["noise"][2]["contribution_bound"] <= configuration.contribution_cap(3) == 112

    again = cli("synthesize", "kinds", "--records", "40", "--seed", "3")
    assert again.returncode == 0, again.stderr
    assert (
        pq.read_table(release / "synthesis-3" / "synthetic.parquet").schema.names
        == made.schema.names
    )
    assert cli("evaluate", "kinds", "--internal").returncode == 0
    compared = json.loads(
        (cli.home / "runs" / "kinds" / "internal" / "evaluation.json").read_text()
    )
    broken = {rule["rule"]: rule["records"] for rule in compared["rules"]}
    assert (broken["difference"], broken["sum"]) == (0, 0)
    told = " ".join(cli("check", path).stdout.split())
    assert "have a difference outside of its bounds in `structure.difference`" in told


def _apart(row: dict[str, Any]) -> int:
    first, last = (datetime.datetime.strptime(row[name], "%d.%m.%Y") for name in ("visit", "until"))  # noqa: DTZ007
    return (last - first).days
