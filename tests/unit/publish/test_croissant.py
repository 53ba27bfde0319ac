"""The description for catalogues: what mlcroissant reads of it are the records of the release."""

from __future__ import annotations

import hashlib
import json
import subprocess
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from marginweave.observations.linked import LinkedAxis, LinkedObservation
from marginweave.publish.croissant import CROISSANT, croissant
from marginweave.publish.linked_tables import linked_table
from marginweave.publish.pages import render_report
from marginweave.publish.reader import PublishedRelease
from marginweave.released.statement import LinkedStatement, LinkedUndeclaredStatement
from tests.support.published import COLUMNS, EVALUATION, Codes, published, shown, table_of

VERSION = "1.1.1"


def described(place: Path) -> tuple[PublishedRelease, Codes, dict[str, Any]]:
    said = {
        "publisher": "Office of Statistics",
        "contact": "data@office.example",
        "license": "CC-BY-4.0",
    }
    release, codes = published(
        columns__sex__label="Sex", columns__sex__description="As registered.", publish=said
    )
    pq.write_table(table_of(release, codes), place / "synthetic.parquet")
    (place / "privacy.json").write_bytes(release.statement.to_json())
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in place.iterdir()}
    digests["known-1-privacy.json"] = "0" * 64
    schema = pq.read_schema(place / "synthetic.parquet")
    content = croissant(release.configuration, release.statement, schema, digests)
    (place / CROISSANT).write_bytes(content)
    return release, codes, json.loads(content)


def test_it_names_files_columns_and_the_privacy_statement(tmp_path: Path) -> None:
    release, _, content = described(tmp_path)
    files = {one["@id"]: one for one in content["distribution"]}
    assert set(files) == {"synthetic.parquet", "privacy.json"}
    for name, one in files.items():
        assert one["sha256"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert content["usageInfo"]["url"] == "privacy.json"
    assert content["identifier"].endswith(release.statement.release)
    assert "epsilon 1 and delta 1e-06" in content["description"]
    assert content["license"] == "CC-BY-4.0"
    assert content["datePublished"] == "2026-03-01"
    assert content["publisher"]["name"] == "Office of Statistics"
    assert content["publisher"]["contactPoint"]["description"] == "data@office.example"
    assert content["citeAs"].startswith(
        "Office of Statistics (2026). people. Differentially private release"
    )
    bare, _ = published()
    without = json.loads(
        croissant(
            bare.configuration, bare.statement, pq.read_schema(tmp_path / "synthetic.parquet"), {}
        )
    )
    assert {"license", "publisher"}.isdisjoint(without)
    fields = {one["name"]: one for one in content["recordSet"][0]["field"]}
    assert list(fields) == list(release.configuration.output_names)
    assert fields["sex"]["description"].startswith("Sex. As registered. No value is an empty cell")
    assert fields["sex"]["dataType"] == "sc:Text"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("timestamp[us, tz=Asia/Tokyo]", "Hours, days and weekdays are in UTC."),
        ("string", "Hours, days and weekdays of a moment that is written with a zone are in UTC."),
        ("timestamp[us]", ""),
    ],
)
def test_it_and_the_report_say_beside_moments_that_they_are_in_utc(kind: str, said: str) -> None:
    seen = {"type": "datetime", "bounds": ["2020-01-01", "2021-01-01"], "bins": "weekday"}
    release, codes = published(columns={**COLUMNS, "seen": seen})
    statement = release.statement.model_copy(update={"types": {"seen": kind}})
    schema = table_of(release, codes).schema
    content = json.loads(croissant(release.configuration, statement, schema, {}))
    fields = {one["name"]: one for one in content["recordSet"][0]["field"]}
    assert ("UTC" in fields["seen"].get("description", "")) is bool(said)
    assert said in fields["seen"].get("description", "")
    release = replace(release, statement=statement)
    page = render_report(release, shown(release, codes), EVALUATION)
    assert ('<p class="soft">Hours, days and weekdays' in page) is bool(said)
    assert said in page


def test_it_says_how_many_rows_of_a_person_count_and_what_no_value_is() -> None:
    """Where a person has several rows, numbers are not those of the table; a reader of the file alone knows."""
    unit = {"epsilon": 1.0, "delta": 1e-6, "unit": {"column": "patient", "max_records": 4}}
    bounded, codes = published(privacy=unit, columns__age__missing=["999"])
    schema = table_of(bounded, codes).schema
    content = json.loads(croissant(bounded.configuration, bounded.statement, schema, {}))
    assert (
        "Every number counts at most 4 rows for each patient and at most 2 values of signs in each cell and only some "
        "combinations of records that hold many." in content["description"]
    )
    fields = {one["name"]: one for one in content["recordSet"][0]["field"]}
    assert "No value is an empty cell in CSV files" in fields["age"]["description"]
    assert "codes" not in fields["age"]["description"]
    coded, codes = published(columns__age__codes={999: "refused", -1: "not known"})
    content = json.loads(
        croissant(coded.configuration, coded.statement, table_of(coded, codes).schema, {})
    )
    fields = {one["name"]: one for one in content["recordSet"][0]["field"]}
    words = "These numbers are codes, not amounts: -1 (not known), 999 (refused)."
    assert words in fields["age"]["description"]
    measured, codes = published(columns__age__text={"unit": "kg"})
    content = json.loads(
        croissant(measured.configuration, measured.statement, table_of(measured, codes).schema, {})
    )
    fields = {one["name"]: one for one in content["recordSet"][0]["field"]}
    assert "Numbers alone, in kg" in fields["age"]["description"]
    assert "Numbers alone" not in json.dumps([fields[name] for name in fields if name != "age"])
    uncut, _ = published(columns__signs__max_values=5)
    whole = {
        n.length: n.model_copy(update={"contribution_bound": 99}) for n in uncut.statement.noise
    }
    uncut = replace(
        uncut, statement=uncut.statement.model_copy(update={"noise": tuple(whole.values())})
    )
    assert (
        "Every number counts"
        not in croissant(uncut.configuration, uncut.statement, schema, {}).decode()
    )


def test_what_became_of_values_is_said_of_the_column_whose_values_they_were() -> None:
    """Of a sum, which is computed from the records, no total was moved to a bound: its parts were."""
    number = {"type": "number", "bounds": [0, 30], "bins": 3, "decimals": 1}
    release, codes = published(
        columns={"a": number, "b": number, "all": {**number, "bounds": [0, 60]}},
        structure={"sum": [{"column": "all", "of": ["a", "b"]}]},
    )
    content = json.loads(
        croissant(release.configuration, release.statement, table_of(release, codes).schema, {})
    )
    said = {one["name"]: one["description"] for one in content["recordSet"][0]["field"]}
    beyond = "Numbers below 0 count as 0, and above 30 as 30."
    assert all(f"{beyond} Numbers are rounded to 1 decimal(s)." in said[name] for name in "ab")
    assert said["all"].endswith("computed from a, b: what is said of their bounds holds for it.")
    assert "60" not in said["all"]


@pytest.fixture(scope="module")
def mlcroissant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mlcroissant in an environment of its own."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=True)
    wanted = [f"mlcroissant=={VERSION}", "pyarrow"]
    install = [place / "bin" / "python", "-m", "pip", "install", "-qq", "--no-compile", *wanted]
    if subprocess.run(
        install, check=False, capture_output=True, env={"PATH": "/usr/bin:/bin"}
    ).returncode:
        pytest.skip("pip cannot install mlcroissant")
    return place / "bin" / "mlcroissant"


@pytest.mark.long
def test_mlcroissant_accepts_it_and_reads_the_records(tmp_path: Path, mlcroissant: Path) -> None:
    release, codes, _ = described(tmp_path)

    def run(*arguments: str) -> str:
        command = [mlcroissant, *arguments, "--jsonld", tmp_path / CROISSANT]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    said = run("validate")
    assert "error" not in said.lower()
    assert "not standard" not in said
    table = table_of(release, codes)
    read = run("load", "--record_set", "records", "--num_records", "3")
    for name in table.column_names:
        assert f"records/{name}" in read
    content = json.loads((tmp_path / CROISSANT).read_text(encoding="utf-8"))
    content["recordSet"][0]["field"][0]["source"]["fileObject"]["@id"] = "elsewhere"
    (tmp_path / CROISSANT).write_text(json.dumps(content), encoding="utf-8")
    broken = subprocess.run(
        [mlcroissant, "validate", "--jsonld", tmp_path / CROISSANT],
        check=False,
        capture_output=True,
    )
    assert broken.returncode or b"error" in broken.stderr.lower()  # it can say no


def test_histograms_of_linked_tables_are_a_record_set_of_their_own() -> None:
    """With what each kind counts, and which cells were not as declared; its columns are those of the file."""
    release, codes = published()
    shape = {
        "draw": "d",
        "table": "stays",
        "cells": 3,
        "deviation": 1.0,
        "columns": ("stays.kind",),
    }
    linked = (
        LinkedStatement(**shape, count_of="units", steps=1024, most=1),
        LinkedStatement(**shape, count_of="rows", steps=1, most=4),
    )
    found = LinkedUndeclaredStatement(
        table="stays",
        column="kind",
        count_of="rows",
        count=30,
        deviation=1.0,
        low=28,
        high=32,
        found=True,
        words="About 30 % (29 to 31) of stays.kind were not among the declared values.",
    )
    statement = release.statement.model_copy(
        update={"linked": linked, "linked_undeclared": (found,)}
    )
    schema = table_of(release, codes).schema
    digests = {"linked.parquet": "0" * 64}
    content = json.loads(croissant(release.configuration, statement, schema, digests))
    _, histograms = content["recordSet"]
    assert "at most 4 row(s) of each unit" in histograms["description"]
    assert "those of a unit weigh 1 together" in histograms["description"]
    assert found.words in histograms["description"]
    seen = LinkedObservation(
        draw="d",
        table="stays",
        count_of="rows",
        axes=(LinkedAxis("stays", "kind", ("a", "b", None)),),
        counts=np.zeros(3),
        deviation=1.0,
        steps=1,
    )
    assert [field["name"] for field in histograms["field"]] == linked_table([seen]).column_names
    without = json.loads(croissant(release.configuration, statement, schema, {}))
    assert len(without["recordSet"]) == 1
