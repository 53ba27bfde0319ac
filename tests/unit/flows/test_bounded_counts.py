"""A release about people with several rows says so wherever its numbers are read, and its missing numbers are empty cells."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from marginweave.accounting.accounts import Account
from marginweave.flows.cli.app import app
from marginweave.inference.opened import Release
from marginweave.ledger import Ledger
from tests.support.configurations import raw
from tests.support.people_table import visits
from tests.support.plain_runs import run_plainly

COUNTED = "at most 2 rows for each person"
AGE = {"type": "number", "bounds": [0, 100], "bins": 4, "decimals": 0, "missing": ["999"]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a release of at most two visits a person, in whose table a third of the ages are 999."""
    home = tmp_path_factory.mktemp("visits")
    place = home / "ledger" / "ledger.sqlite"
    unit = {"column": "person", "max_records": 2}
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="subject:person",
        neighbors="add-remove",
    )
    config = visits(
        home,
        privacy__unit=unit,
        privacy__epsilon=8.0,
        columns__age=AGE,
        aggregate__reporting_length=1,
    )
    head, *lines = (home / "people.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines]
    aged = [
        ",".join([*row[:3], "999" if i % 3 == 0 else row[3], *row[4:]])
        for i, row in enumerate(rows)
    ]
    (home / "people.csv").write_text("\n".join([head, *aged]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        Ledger.create(place, environment={}).accounts.open(account, actor="steward")
        run_plainly(home, config, "r")
    return home


def test_files_and_answers_say_what_is_counted(home: Path) -> None:
    release = home / "runs" / "r" / "release"
    assert json.loads((release / "evaluation.json").read_text())["counted"] == COUNTED
    assert COUNTED in json.loads((release / "croissant.json").read_text())["description"]
    for name in ("report.html", "explore.html"):
        assert f"counts {COUNTED}" in (release / name).read_text()
    for asked in (["query", release], ["table", release, "sex"]):
        found = CliRunner().invoke(app, [str(part) for part in asked])
        assert f"counts are of {COUNTED}; the table may have more" in found.stderr
        assert f"of {COUNTED}: low to high" in " ".join(found.stdout.split())
        found = CliRunner().invoke(app, [*map(str, asked), "--csv"])
        assert f",{COUNTED}," in found.stdout


def test_a_missing_number_is_averaged_by_nobody(home: Path) -> None:
    """Of the third of the ages that is missing, the file has empty cells, and the Parquet file nulls."""
    release = home / "runs" / "r" / "release"
    texts, stored = (
        pd.read_csv(release / "synthetic.csv"),
        pd.read_parquet(release / "synthetic.parquet"),
    )
    assert texts["age"].max() <= 100
    assert texts["age"].isna().tolist() == stored["age"].isna().tolist()
    assert 0.2 < texts["age"].isna().mean() < 0.5


def test_counts_that_leave_out_combinations_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few records hold every value, and are counted in as many combinations as most hold: no count is called the table's.

    1,990 of 2,000 records hold one pair, the wanted rank is the 1,000th: any other bound than 1 is 990 ranks off. At epsilon
    .05 for each length one of the other 14 is drawn with probability 14 e^(-.05 990 / (2 .5)) < 1e-20.
    """
    place, names = tmp_path / "ledger" / "ledger.sqlite", [f"c{i}" for i in range(6)]
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(place))
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(place, environment={}).accounts.open(account, actor="steward")
    rows = [
        ["y"] * 6 if i % 200 == 0 else ["y" if j in (i % 6, (i + 1) % 6) else "" for j in range(6)]
        for i in range(2000)
    ]
    (tmp_path / "people.csv").write_text("\n".join([",".join(names), *map(",".join, rows)]) + "\n")
    column = {"type": "category", "values": ["y", "n"], "missing": [""]}
    settings = raw(
        columns=dict.fromkeys(names, column),
        aggregate={"method": "k-tuples", "reporting_length": 2, "percentile": 50},
    )
    config = tmp_path / "people.yaml"
    config.write_text(yaml.safe_dump(settings, sort_keys=False))
    release = run_plainly(tmp_path, config, "r") / "release"
    words = "only some combinations of records that hold many"
    answer = next(iter(Release.open(release).query(where={"c0": "y", "c1": "y"}).itertuples()))
    assert (answer.of, "may be too low by at most" in str(answer.flag)) == (words, True)
    assert Release.open(release).query().iloc[0]["of"] == "table"
    about = Release.open(release).table("c0", "c1").attrs
    assert about["of"] == [words]
    assert any("may be too low by at most" in flag for flag in about["flag"])
    assert f"Counts are of {words}" in (release / "aggregates.csv").read_text().splitlines()[1]
    assert "a true count may lie above its range" in (release / "explore.html").read_text()
    for name in ("report.html", "explore.html"):
        assert f"(counts {words})" in (release / name).read_text()


def test_a_set_whose_cells_are_cut_is_mentioned_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the line of the command as in the answer; neither other answers nor refusals speak of it."""
    place = tmp_path / "ledger" / "ledger.sqlite"
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(place))
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(place, environment={}).accounts.open(account, actor="steward")
    lines = ["sex,signs", *(f"{'fm'[i % 2]},{'a;b' if i % 3 else 'c'}" for i in range(600))]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    columns = {
        "sex": {"type": "category", "values": ["f", "m"]},
        "signs": {"type": "set", "values": ["a", "b", "c"], "max_values": 1},
    }
    config = tmp_path / "people.yaml"
    config.write_text(
        yaml.safe_dump(raw(columns=columns, aggregate={"method": "marginals"}), sort_keys=False)
    )
    release = run_plainly(tmp_path, config, "r") / "release"
    cut = "at most 1 value of signs in each cell"
    for options, code, of in (
        (["--where", "sex = f"], 0, "the table"),
        (["--by", "signs=a"], 0, cut),
        (["--where", "sex = f", "--level", "1"], 2, ""),
    ):
        found = CliRunner().invoke(app, ["query", str(release), *options])
        assert found.exit_code == code
        assert (f"counts are of {cut}; the table may have more" in found.stderr) == (of == cut)
        assert (
            f"of {of}: low to high" in " ".join(found.stdout.split())
            if of
            else cut not in found.output
        )
