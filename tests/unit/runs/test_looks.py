"""A configuration that was changed after somebody had looked at its table is told from one that was not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from marginweave.base.errors import OperatorError, StageError
from marginweave.configuration.load import load_configuration
from marginweave.configuration.yaml_source import canonical_written
from marginweave.flows.check.table import id_warnings
from marginweave.flows.cli.init import init
from marginweave.runs.looks import (
    configured_after_look,
    is_drafted,
    looks_file,
    record_look,
    stops_are_looks,
)
from marginweave.runs.request import read_request
from tests.support.configurations import raw
from tests.support.drafts import answered

CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, False),
    "epsilon": ({"privacy__epsilon": 0.1}, True),
    "the number of rows": ({"rows": 1237}, True),
    "whose privacy it is": ({"privacy__unit": {"column": "person", "max_records": 3}}, True),
    "a share of the budget": ({"aggregate__count_share": 0.2}, True),
    "a threshold": ({"aggregate__thresholds": {"fixed": {1: 3}}}, True),
    "how numbers are spelled": ({"source": {"file": "people.csv", "decimal": "comma"}}, True),
    "the name of the file": ({"source": {"file": "others.csv"}}, False),
    "who publishes": ({"publish": {"publisher": "us", "keep_private": True}}, False),
    "memory": ({"memory": "1 GB"}, False),
    "where it is published": ({"columns__sex__public": "the code list"}, False),
    "a label": ({"columns__sex__label": "Sex"}, False),
    "what values are called": ({"columns__sex__titles": {"f": "Women"}}, False),
    "a value": ({"columns__sex__values": ["f", "m", "x"]}, True),
    "bounds": ({"columns__age__bounds": [0, 120]}, True),
    "bins": ({"columns__age__bins": 4}, True),
    "a missing text": ({"missing": ["", "NA"]}, True),
    "a column less": ({"columns__age": None}, True),
    "what happens outside": ({"columns__sex__outside": "other"}, True),
    "a structural zero": ({"structure": {"forbidden": [{"sex": "f", "region": "west"}]}}, True),
}


UNITS = {
    "max_records": {"privacy__unit": {"column": "person", "max_records": 4}},
    "most values of a set": {
        "columns__town": {"type": "set", "values": ["a", "b", "c"], "max_values": 1}
    },
}


def run_of(dataset: Any = "people", **changes: Any) -> Any:
    """What is asked of a manifest, of a run that begins now."""
    return SimpleNamespace(
        dataset=dataset, written=canonical_written(raw(**changes)), created=datetime.now(UTC)
    )


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_marked_from_the_first_look_on(tmp_path: Path, change: str) -> None:
    changes, marked = CHANGES[change]
    before = run_of(**changes)
    assert not configured_after_look(tmp_path, before, "people.csv")
    record_look(tmp_path, "check", "people", "people.csv", canonical_written(raw()))
    assert not configured_after_look(tmp_path, before, "people.csv")
    assert configured_after_look(tmp_path, run_of(**changes), "people.csv") is marked
    # what is checked again, and what was checked first: both were seen, and one was chosen
    record_look(tmp_path, "check", "people", "people.csv", canonical_written(raw(**changes)))
    assert configured_after_look(tmp_path, run_of(**changes), "people.csv") is marked
    assert configured_after_look(tmp_path, run_of(), "people.csv") is marked


@pytest.mark.parametrize("change", UNITS)
def test_a_smaller_change_of_what_was_seen_is_marked(tmp_path: Path, change: str) -> None:
    """A bound inside the unit, or inside a column, is a change like any other."""
    town = {"type": "set", "values": ["a", "b", "c"], "max_values": 2}
    seen: dict[str, Any] = {
        "privacy__unit": {"column": "person", "max_records": 3},
        "columns__town": town,
    }
    record_look(tmp_path, "check", "people", "people.csv", canonical_written(raw(**seen)))
    assert not configured_after_look(tmp_path, run_of(**seen), "people.csv")
    assert configured_after_look(tmp_path, run_of(**seen | UNITS[change]), "people.csv")


def test_answering_a_draft_is_no_change_and_is_told(tmp_path: Path) -> None:
    """Its questions may be answered and its lines corrected until somebody looks again; from then on a change is one."""
    draft = raw(privacy__confirm=True, columns__age__confirm=True)
    record_look(tmp_path, "init", "people", "people.csv", canonical_written(draft))
    corrected = {"columns__age__bins": 4, "rows": 1000}
    for changes in ({}, corrected):
        assert not configured_after_look(tmp_path, run_of(**changes), "people.csv")
        assert is_drafted(tmp_path, run_of(**changes), "people.csv")
    record_look(tmp_path, "check", "people", "people.csv", canonical_written(raw(**corrected)))
    assert not configured_after_look(tmp_path, run_of(**corrected), "people.csv")
    assert configured_after_look(tmp_path, run_of(**corrected | {"rows": 1001}), "people.csv")
    assert is_drafted(tmp_path, run_of(**corrected), "people.csv")


def test_a_draft_without_a_question_is_a_look_like_others(tmp_path: Path) -> None:
    record_look(tmp_path, "init", "people", "people.csv", canonical_written(raw()))
    assert not is_drafted(tmp_path, run_of(), "people.csv")
    assert configured_after_look(tmp_path, run_of(rows=1000), "people.csv")


def test_the_warning_of_ids_is_a_look(tmp_path: Path) -> None:
    """It reads the table, and is written down before; where there is nothing to read, nobody has looked."""
    lines = "".join(f"{'fm'[i % 2]},p{i % 40}\n" for i in range(100))
    (tmp_path / "people.csv").write_text(f"sex,patient_id\n{lines}")
    given = {"columns": {"sex": {"type": "category", "values": ["f", "m"]}}}
    path = tmp_path / "people.yaml"

    def warned(**changes: Any) -> list[str]:
        path.write_text(yaml.safe_dump(raw(**changes)))
        return id_warnings(read_request(path, run=None, source=None, home=tmp_path))

    unit = {"privacy__unit": {"column": "patient_id", "max_records": 3}}
    assert warned(**given, **unit) == []
    assert not looks_file(tmp_path).exists()
    assert len(warned(**given)) == 1
    assert looks_file(tmp_path).exists()
    assert not configured_after_look(tmp_path, run_of(**given), "people.csv")
    assert configured_after_look(tmp_path, run_of(**given, **unit), "people.csv")


def test_a_run_that_stopped_for_its_rows_is_a_look(tmp_path: Path) -> None:
    """It has told its operator what they are; one that a machine stopped has not."""
    configuration = SimpleNamespace(dataset="people", written=canonical_written(raw()))
    request = SimpleNamespace(
        folder=SimpleNamespace(home=tmp_path), configuration=configuration, source="people.csv"
    )
    for error, marked in (
        (StageError("no memory"), False),
        (OperatorError("column 'age': no cell can be read"), True),
    ):
        with pytest.raises(type(error)), stops_are_looks(cast("Any", request)):
            raise error
        assert configured_after_look(tmp_path, run_of(columns__age__bins=4), "people.csv") is marked
    assert not configured_after_look(tmp_path, run_of(), "people.csv")


def test_a_look_counts_for_an_account_and_for_a_file(tmp_path: Path) -> None:
    """Another name of the account does not hide it, nor does another file; what has neither is another table."""
    record_look(tmp_path, "init", "people", str(tmp_path / "people.csv"), canonical_written(raw()))
    changed, file = {"columns__age__bins": 4}, str(tmp_path / "sub" / ".." / "people.csv")
    assert configured_after_look(tmp_path, run_of("others", **changed), file)
    assert configured_after_look(tmp_path, run_of("people", **changed), "s3://bucket/people.csv")
    assert not configured_after_look(
        tmp_path, run_of("others", **changed), "s3://bucket/people.csv"
    )


def test_a_draft_with_codes_from_a_dictionary_is_no_change(tmp_path: Path) -> None:
    """What the draft names by a file, and what the configuration has in its place, is the same."""
    (tmp_path / "d.csv").write_text(
        "name,value,label\nsex,,Sex\nsex,f,female\nsex,m,male\nsex,x,other\n"
    )
    table, target = tmp_path / "t.csv", tmp_path / "t.yaml"
    table.write_text("sex\n" + "f\nm\n" * 40)
    init([str(table)], output=target, dictionary=tmp_path / "d.csv", home=tmp_path)
    target.write_text(answered(target.read_text(), "the questionnaire"))
    configuration = load_configuration(target)
    assert configuration.columns["sex"].label == "Sex"
    run = SimpleNamespace(dataset="t", written=configuration.written, created=datetime.now(UTC))
    assert not configured_after_look(tmp_path, cast("Any", run), str(table))
    assert is_drafted(tmp_path, cast("Any", run), str(table))
    record_look(tmp_path, "check", "t", str(table), configuration.written)
    assert not configured_after_look(tmp_path, cast("Any", run), str(table))
    (tmp_path / "d.csv").write_text("name,value,label\nsex,f,female\nsex,m,male\n")
    other = SimpleNamespace(
        dataset="t", written=load_configuration(target).written, created=datetime.now(UTC)
    )
    assert configured_after_look(tmp_path, cast("Any", other), str(table))


def test_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    record_look(tmp_path, "check", "people", "people.csv", canonical_written(raw()))
    looks_file(tmp_path).write_text("{}\n")
    with pytest.raises(StageError, match="is damaged"):
        configured_after_look(tmp_path, run_of(), "people.csv")
