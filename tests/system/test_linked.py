"""A release of two files: derived counts are those of the rows, no value of either leaks, refusals are sentences."""

from __future__ import annotations

import csv
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from marginweave.base.errors import InputError
from marginweave.configuration.columns.base import NOT_DECLARED
from marginweave.inference.opened import Release
from marginweave.released.statement import PrivacyStatement
from tests.support.command_line import CommandLine
from tests.support.linked_tables import HOSPITAL, STAYS, Stay, derived_by_definition

pytestmark = pytest.mark.system
MARKER = "xq7marker"
AT_MOST = 3
COUNTED: dict[str, Any] = {
    "aggregate": {"method": "marginals", "cliques": {"all": 2}},
    "tables": {
        "stays": {
            **STAYS,
            "at_most": AT_MOST,
            "share": 0.25,
            "structure": {"ordered": [{"columns": ["admitted", "discharged"]}]},
        }
    },
}
LITTLE = {"method": "mixture", "components": 10, "fits": 2, "iterations": 20}


def files(place: Path, **changes: Any) -> tuple[Path, list[list[Stay]]]:
    """The configuration of a hospital with its two files, and the stays of each patient."""
    chance = random.Random(4)
    patients = [f"{MARKER}-{number}" for number in range(900)]
    stays: dict[str, list[Stay]] = {patient: [] for patient in patients}
    for patient in chance.choices(patients, k=1400):
        day = pd.Timestamp("2024-01-01") + pd.Timedelta(days=chance.randrange(300))
        days = chance.randrange(20)
        end = day + pd.Timedelta(days=days)
        kind = chance.choice(["planned", "planned", "emergency", "birth", MARKER, ""])
        stays[patient].append(Stay(kind, str(days), f"{day:%Y-%m-%d}", f"{end:%Y-%m-%d}"))
    rows = [
        (f" {patient}", *vars(stay).values()) for patient, those in stays.items() for stay in those
    ]
    rows += [
        ("", *vars(Stay("emergency")).values()),
        (f"{MARKER}-x", *vars(Stay("birth")).values()),
    ]
    chance.shuffle(rows)
    write(place / "patients.csv", ("patient", "sex"), [(p, chance.choice("fm")) for p in patients])
    write(place / "stays.csv", ("patient_id", "kind", "days", "admitted", "discharged"), rows)
    path = place / "hospital.yaml"
    declared = {**HOSPITAL, "synthesize": LITTLE, **changes}
    path.write_text(yaml.safe_dump(declared, sort_keys=False))
    return path, list(stays.values())


def _derived(stays: list[Stay]) -> dict[str, Any]:
    """What is derived of stays with kinds that are not as declared: nothing where one of the declared ones would change it."""
    least, *others = (
        derived_by_definition([replace(s, kind=kind) if s.kind == MARKER else s for s in stays])
        for kind in ("", "planned", "emergency")
    )
    return {
        name: value if all(other[name] == value for other in others) else "undeclared"
        for name, value in least.items()
    }


def write(place: Path, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    with place.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_counts_are_those_of_the_rows(marginweave: CommandLine, tmp_path: Path) -> None:
    """At a large epsilon each published count of a derived column is within 8 of the exact one: more than five sigmas."""
    privacy = {**HOSPITAL["privacy"], "epsilon": 30}
    path, stays = files(tmp_path, privacy=privacy, **COUNTED)
    assert marginweave("ledger", "open", "hospital", "--for", path).returncode == 0
    result = marginweave("run", path, "--run", "r")
    assert result.returncode == 0, result.stderr
    folder = marginweave.home / "runs" / "r"
    counts = pd.read_csv(folder / "release" / "aggregates.csv", dtype=str, keep_default_na=False)
    single = counts[counts["length"] == "1"].set_index(["column_1", "value_1"])["count"].astype(int)
    truth = pd.DataFrame(map(_derived, stays))
    assert len(truth) == 900
    for value, number in truth["stays"].clip(upper=3).value_counts().items():
        label = {0: "[0, 1)", 1: "[1, 2)", 2: "[2, 3)", 3: "[3, 6]"}[int(str(value))]
        assert abs(single["stays", label] - number) <= 8
    for name, true in (("emergency", True), ("readmitted", "yes")):
        number = int((truth[name] == true).sum())
        assert 50 < number < 850
        assert abs(single[name, "true"] - number) <= 8
    for label, low in (("[0, 15)", 0), ("[15, 30)", 15)):
        longest = pd.to_numeric(truth["longest"], errors="coerce")
        number = int(longest.between(low, low + 14).sum())
        assert number > 50
        assert abs(single["longest", label] - number) <= 8
    statement = PrivacyStatement.from_json((folder / "release" / "privacy.json").read_bytes())
    undeclared = {row.attribute: row for row in statement.undeclared or ()}
    for name in ("emergency", "longest"):
        number = int((truth[name] == "undeclared").sum())
        assert number > 50
        assert undeclared[name].found
        assert undeclared[name].kept
        assert abs(undeclared[name].count - number) <= 8
        assert "where rows of stays have cells that are not as declared" in undeclared[name].words
    assert not undeclared["readmitted"].found
    assert "stays" not in undeclared
    evaluation = json.loads((folder / "release" / "evaluation.json").read_bytes())
    assert evaluation["verdict"]["publication"] == "not for publication"
    sets = [each["tvd"] for each in evaluation["marginals"] if "longest" in each["attributes"]]
    assert max(sets) < 0.2  # records lack a value for either reason
    assert any("all rows of stays with this id" in text for text in statement.preparation)
    assert any("Rows of one person in stays" in text for text in statement.assumptions)
    assert any("Rows of stays were counted in two ways" in text for text in statement.preparation)
    assert statement.guarantee.unit.endswith(", at most 1 row(s), with all rows of stays")
    linked = {(row.column, row.count_of): row for row in statement.linked_undeclared or ()}
    assert [linked["kind", each].found for each in ("units", "rows")] == [True, True]
    assert not linked["days", "rows"].found
    assert linked["kind", "rows"].words in evaluation["verdict"]["says"]
    check_rows(folder / "release", stays)
    check_records(folder / "release")
    asked = marginweave("query", "r", "--table", "stays", "--each", "unit", "--by", "kind")
    assert asked.returncode == 2
    assert "derive a column of the source that says so" in asked.stderr
    asked = marginweave("query", "r", "--table", "stays", "--by", "kind", "--json")
    assert sum(row["estimate"] for row in json.loads(asked.stdout)) == pytest.approx(
        sum(min(len(those), AT_MOST) for those in stays), abs=120
    )
    assert marginweave("ledger", "verify").returncode == 0
    assert marginweave("run", path, "--run", "r").returncode == 0
    with (tmp_path / "stays.csv").open("a") as file:
        file.write(f"{MARKER}-1,planned,1,2024-02-01,2024-02-02\n")
    changed = marginweave("run", path, "--run", "r")
    assert changed.returncode == 2
    assert "was made from other source bytes" in changed.stderr
    leaked = [
        place
        for place in marginweave.home.rglob("*")
        if place.is_file() and MARKER.encode() in place.read_bytes()
    ]
    assert leaked == []
    assert MARKER not in result.stdout + result.stderr + changed.stderr


def check_rows(release: Path, stays: list[list[Stay]]) -> None:
    """The counts of kinds of stays: by units and in all, within six of their standard deviations."""
    counts = pd.read_csv(release / "linked.csv", dtype={"value_1": str}, keep_default_na=False)
    kinds = counts[(counts["column_1"] == "stays.kind") & (counts["column_2"] == "")]
    for each, kept in (("units", 1.0), ("rows", None)):
        cells = kinds[kinds["count_of"] == each].set_index("value_1")
        sigmas = (cells["high"] - cells["count"].clip(lower=0)) / 1.9
        assert list(cells.index) == ["planned", "emergency", "birth", "", NOT_DECLARED]
        total = sum(min(len(those), 1 if kept else AT_MOST) for those in stays)
        assert abs(cells["count"].sum() - total) < 6 * 2 * sigmas.max()
        if kept:
            for kind in ("planned", "emergency", "birth"):
                shares = [
                    sum(s.kind == kind for s in those) / len(those) for those in stays if those
                ]
                assert abs(cells["count"][kind] - sum(shares)) < 6 * sigmas[kind]


def check_records(place: Path) -> None:
    """Rows of stays join with the records that they are of, and Python and croissant.json have the same of them."""
    records = pd.read_csv(place / "synthetic.csv")
    rows = pd.read_csv(place / "synthetic-stays.csv", keep_default_na=False)
    assert records["patient"].tolist() == list(range(1, len(records) + 1))
    numbers = rows.groupby("patient_id").size().reindex(records["patient"], fill_value=0)
    assert numbers.tolist() == records["stays"].tolist()
    has = records["patient"].isin(rows[rows["kind"] == "emergency"]["patient_id"])
    told = records["emergency"].notna()
    assert (has == (records["emergency"] == True))[told].mean() > 0.9  # noqa: E712 - gaps
    assert (rows["admitted"] <= rows["discharged"])[rows["discharged"] != ""].all()
    release = Release.open(place)
    sampled = release.sample(table="stays")
    assert sampled["kind"].fillna("").tolist() == rows["kind"].tolist()
    assert release.sample()["patient"].tolist() == records["patient"].tolist()
    few = release.sample(40, seed=3, where={"emergency": True})
    of_few = release.sample(40, seed=3, where={"emergency": True}, table="stays")
    assert set(of_few["patient_id"]) <= set(few["patient"])
    with pytest.raises(InputError, match="no synthetic rows of a table 'visits'"):
        release.sample(table="visits")
    described = json.loads((place / "croissant.json").read_bytes())
    records_there, rows_there, _ = described["recordSet"]
    assert records_there["key"] == {"@id": "records/patient"}
    assert rows_there["field"][0]["references"] == {"field": {"@id": "records/patient"}}
    assert {"synthetic-stays.csv", "synthetic-stays.parquet"} <= {
        file["name"] for file in described["distribution"]
    }


def test_check_says_which_rows_belong_to_nobody(marginweave: CommandLine, tmp_path: Path) -> None:
    path, stays = files(tmp_path, **COUNTED)
    looked = marginweave("check", path)
    said = " ".join(looked.stdout.split())
    assert "Of 1,402 rows, 1 with an id that no row of the source has, and 1 without one" in said
    assert "tables.stays.kind" in said
    share = re.search(r"(\d+\.\d) % of the cells are outside the declared values", said)
    assert share is not None
    assert abs(float(share[1]) - 100 / 6) < 4
    assert re.search(r"% of the cells follow from rows of tables.stays with cells that are", said)
    assert MARKER not in looked.stdout + looked.stderr
    plan = " ".join(marginweave("plan", path).stdout.split())
    assert "One person is all rows with one patient, in stays, too" in plan
    assert "Rows of stays: counted so that all rows of a person weigh 1 together" in plan
    beyond = [len(those) - AT_MOST for those in stays if len(those) > AT_MOST]
    assert f"{len(beyond)} have more than 3; {sum(beyond)} of 1,400 rows are in no count" in said


REFUSALS = {
    "no file": ({"source": "nowhere.csv"}, "tables.stays: source (", "nowhere.csv"),
    "no column": ({"by": "person"}, "tables.stays: source lacks the declared column 'person'", ""),
    "a kind": ({"source": "stays.doc"}, "stays.doc", "is of a kind that is not supported"),
    "no condition": (
        {"derive": {**STAYS["derive"], "emergency": {"any": {"kind": "x"}}}},
        "tables.stays.derive.emergency names 'x', which is no value of column 'kind'",
        "",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_one_sentence(marginweave: CommandLine, tmp_path: Path, name: str) -> None:
    changes, *parts = REFUSALS[name]
    path, _ = files(tmp_path, tables={"stays": {**STAYS, **changes}})
    account = ("hospital", "--epsilon", "9", "--delta", "1e-4", "--unit", "subject:patient")
    assert marginweave("ledger", "open", *account).returncode == 0
    result = marginweave("run", path, "--run", "r")
    assert result.returncode == 2
    message = (
        json.loads(result.stdout.splitlines()[-1])["message"] if result.stdout else result.stderr
    )
    assert all(part in message for part in parts), message
    assert not re.search(rf"Traceback|{MARKER}", result.stdout + result.stderr)


def test_a_derived_column_is_not_in_the_file(marginweave: CommandLine, tmp_path: Path) -> None:
    path, _ = files(tmp_path)
    write(tmp_path / "patients.csv", ("patient", "sex", "longest"), [("1", "f", "3")])
    for command in ("check", "run"):
        marginweave("ledger", "open", "hospital", "--for", path)
        result = marginweave(command, path)
        assert result.returncode == 2
        assert "source has the column 'longest', which tables.stays.derive makes" in result.stderr


def test_a_row_that_cannot_be_read_stops_before_a_charge(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    path, _ = files(tmp_path)
    with (tmp_path / "stays.csv").open("a") as file:
        file.write(f"{MARKER}-1,{MARKER}\n")
    marginweave("ledger", "open", "hospital", "--for", path)
    result = marginweave("run", path, "--run", "r")
    assert result.returncode == 2
    assert "tables.stays: " in result.stderr
    assert MARKER not in result.stderr + result.stdout
    assert not (marginweave.home / "runs" / "r" / "manifest.json").exists()
