"""DPSyn's files become configurations: every key has its place here, and what has none is named."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from deployments.converters.dpsyn import Conversion, convert_dpsyn, main
from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.marginals import AllCliques
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import parse_yaml

RUN = {"epsilon": 10.0, "delta": 3.4e-11, "max_records": 1000, "max_records_per_individual": 1}
SCHEMA: dict[str, Any] = {
    "ID": {"dtype": "str", "kind": "text"},
    "SEX": {"dtype": "str", "kind": "categorical", "values": ["", "M", "F"], "codes": [0, 1, 2]},
    "STATE": {
        "dtype": "str",
        "kind": "categorical",
        "values": ["01", "02", "36"],
        "codes": [1, 2, 3],
    },
    "AGE": {"dtype": "uint8", "kind": "numeric", "min": 14, "max": 87, "bins": 10},
    "NCHILD": {"dtype": "uint8", "kind": "numeric", "min": 0, "max": 6, "bins": 10},
    "INCOME": {"dtype": "float64", "kind": "numeric", "min": -500.5, "max": 5000, "bins": 7},
    "WORK": {"dtype": "uint8", "kind": "categorical", "values": [0, 1, 2]},
    "DATE": {
        "dtype": "date",
        "kind": "date",
        "min": "2012-01-01 00:00:00",
        "max": "2020-12-31 00:00:00",
    },
    "NOTE": {"dtype": "str", "kind": "text", "has_null": True},
}
DATA = """
identifier: ID
numerical_binning:
  INCOME: [0, 3_000, 500]
  HOURS: [0, 99, 24]
determined_attributes:
  WORK:
    by: NCHILD
    mapping: {0: 0, 6: 2}
    default: 1
pub_dataset_path: ground_truth
"""


def convert(
    place: Path, *, data: str | None = DATA, public: str | None = "the code book", **changes: Any
) -> Conversion:
    content = {"runs": [RUN], "schema": SCHEMA, **changes}
    (place / "parameters.json").write_text(json.dumps(content))
    (place / "types.json").write_text(
        json.dumps({"dtype": {"HOURS": "uint8", "GHOST": "str", "ID": "str"}})
    )
    if data is not None:
        (place / "data.yaml").write_text(data)
    form = SourceFile(file="persons.csv")
    named = None if data is None else place / "data.yaml"
    return convert_dpsyn(place / "parameters.json", place / "types.json", named, form, public)


def converted(place: Path, **changes: Any) -> Configuration:
    (text,) = convert(place, **changes).configurations
    return parse_configuration(parse_yaml(text))


def test_every_key_has_its_place(tmp_path: Path) -> None:
    found = converted(tmp_path)
    columns: dict[str, Any] = dict(found.columns)
    assert (found.dataset, found.source.file) == ("persons", "persons.csv")
    assert (found.privacy.epsilon, found.privacy.delta) == (10, 3.4e-11)
    assert found.privacy.subject is not None
    assert found.privacy.subject.model_dump(include={"column", "max_records"}) == {
        "column": "ID",
        "max_records": 1,
    }
    assert found.synthesize.max_records == 1000
    assert "ID" not in columns
    assert columns["SEX"].values == ("M", "F")
    assert columns["STATE"].values == ("01", "02", "36")
    assert (columns["AGE"].bounds, columns["AGE"].bins, columns["AGE"].decimals) == (
        (14, 87),
        10,
        0,
    )
    assert columns["NCHILD"].values == tuple("0123456")  # fewer values than bins: each one counts
    assert columns["INCOME"].edges == (-500.5, 0, 500, 1000, 1500, 2000, 2500, 3000, 5000)
    assert columns["HOURS"].labels == (
        "< 0",
        "[0, 24)",
        "[24, 48)",
        "[48, 72)",
        "[72, 96)",
        "[96, 99)",
        "≥ 99",
    )
    assert (columns["DATE"].bounds, columns["DATE"].bins) == (("2012-01-01", "2020-12-31"), "year")
    assert columns["NOTE"].domain == "private"
    assert found.structure is not None
    rule = found.structure.determined[0]
    assert (rule.column, rule.by, rule.mapping, rule.default) == (
        "WORK",
        "NCHILD",
        {"0": "0", "6": "2"},
        "1",
    )
    assert {column.public for column in columns.values()} == {"the code book", None}


def test_all_pairs_are_measured_and_records_made_by_gum(tmp_path: Path) -> None:
    """As DPSyn does, with the attributes of a group counted as one; where there is one attribute alone, it alone."""
    found = converted(tmp_path)
    assert found.marginals is not None
    assert found.marginals.cliques == AllCliques(all=2)
    assert found.synthesize.method == "gum"
    alone = converted(tmp_path, data=None, schema={"SEX": SCHEMA["SEX"]})
    assert alone.marginals is not None
    assert alone.marginals.cliques == AllCliques(all=1)
    assert alone.synthesize.max_records == 1000


def test_what_cannot_be_converted_is_named(tmp_path: Path) -> None:
    remarks = convert(tmp_path, license="CC0").remarks
    assert remarks == (
        "data.yaml: pub_dataset_path",
        "parameters.json: license",
        "column 'GHOST' has a type in column_datatypes.json, but no domain: it is left out",
        "column 'NOTE': has_null",
        "column 'NOTE' of kind text has no values: they are discovered under the budget",
        "DPSyn's bins are closed above; ours are closed below, the last one on both sides",
    )


def test_one_configuration_a_run_on_one_account(tmp_path: Path) -> None:
    """Each with its own guarantee and its own theta, all of them charged to the same people."""
    runs = [RUN, {"epsilon": 0.1, "delta": 1e-9, "max_records_per_individual": 7}]
    first, second = (
        parse_configuration(parse_yaml(t)) for t in convert(tmp_path, runs=runs).configurations
    )
    assert (first.privacy.epsilon, second.privacy.epsilon) == (10, 0.1)
    assert second.privacy.subject is not None
    assert second.privacy.subject.max_records == 7
    assert second.synthesize.max_records is None
    assert first.dataset == second.dataset


def test_domains_wait_for_confirmation_unless_somebody_says_where_they_are_published(
    tmp_path: Path,
) -> None:
    """Schema generators read parameters.json off the data: what it says is not public by itself."""
    (text,) = convert(tmp_path, public=None).configurations
    with pytest.raises(InputError, match="waits for confirmation"):
        parse_configuration(parse_yaml(text))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": None, "runs": [{**RUN, "max_records_per_individual": 7}]}, r"max_records_per_individual \(7\) needs"),
        ({"runs": []}, "must have runs"),
        ({"runs": [{**RUN, "epsilon": -1}]}, r"cannot be converted: privacy.epsilon \(-1\) must be positive"),
        ({"schema": {"A": {"kind": "numeric", "min": 1}}, "data": None}, "column 'A' needs max, a number"),
        ({"schema": {"A": {"kind": "categorical", "values": "ab"}}, "data": None}, "values of column 'A' must be a list"),
        ({"schema": {"A": {"kind": "date", "min": "2012"}}, "data": None}, "column 'A' of kind date needs min and max"),
        ({"schema": [], "data": None}, "has no column in its schema"),
        ({"schema": [1]}, "schema must be a mapping"),
        ({"data": "numerical_binning: {AGE: [1, 2]}\n"}, r"of column 'AGE' must be \[min, max, step\]"),
    ],
)  # fmt: skip
def test_files_that_are_not_those_of_dpsyn(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        convert(tmp_path, **changes)


@pytest.mark.parametrize("content", ["", "[]", "{", "\xff"])
def test_what_is_no_json_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "parameters.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=r"parameters.json .* must be"):
        convert_dpsyn(path, None, None, SourceFile(file="x.csv"), None)
    with pytest.raises(InputError, match="does not exist"):
        convert_dpsyn(tmp_path / "absent", None, None, SourceFile(file="x.csv"), None)


def test_the_script_writes_one_private_file_a_run_and_overwrites_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parameters = tmp_path / "parameters.json"
    parameters.write_text(
        json.dumps({"runs": [RUN, RUN], "schema": {"SEX": SCHEMA["SEX"]}, "license": "CC0"})
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys,
        "argv",
        ["dpsyn.py", str(parameters), "--source", "persons.csv", "--public", "the code book"],
    )
    main()
    assert capsys.readouterr().out == (
        "Converted to persons-1.yaml\nConverted to persons-2.yaml\nNot converted: parameters.json: license\n"
    )
    written = (tmp_path / "persons-1.yaml").read_text()
    assert parse_configuration(parse_yaml(written)).source.file == "persons.csv"
    assert stat.S_IMODE((tmp_path / "persons-2.yaml").stat().st_mode) == 0o600
    with pytest.raises(SystemExit, match=r"persons-1\.yaml exists already and is not overwritten"):
        main()
    assert (tmp_path / "persons-1.yaml").read_text() == written
