"""Where linked tables are: beside the configuration, also for a run that was begun in Python, whose configuration is a copy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from marginweave.base.errors import InputError
from marginweave.runs.request import read_request, remember, resumed_request
from tests.support.linked_tables import HOSPITAL


def test_linked_tables_are_beside_the_configuration(tmp_path: Path) -> None:
    """Another source, named in the working folder, moves no linked table."""
    path = tmp_path / "hospital.yaml"
    path.write_text(yaml.safe_dump(HOSPITAL, sort_keys=False))
    request = read_request(path, run="r", source=str(tmp_path / "x" / "p.csv"), home=tmp_path)
    assert request.source == str(tmp_path / "x" / "p.csv")
    assert request.linked == {"stays": str(tmp_path / "stays.csv")}


def test_a_linked_table_is_never_charged_to_the_ledger_of_examples(tmp_path: Path) -> None:
    """Whatever the configuration names as its source: `--source` may name an example."""
    path = tmp_path / "hospital.yaml"
    path.write_text(yaml.safe_dump(HOSPITAL, sort_keys=False))
    with pytest.raises(InputError, match="is an example, whose releases are not charged"):
        read_request(path, run="r", source="example:affairs", home=tmp_path)


def test_a_run_is_resumed_with_the_tables_that_it_was_begun_with(tmp_path: Path) -> None:
    """Its copy of the configuration is in another folder than the tables: `resume`, and the flow, find them all the same."""
    home, project = tmp_path / "home", tmp_path / "project"
    copy = home / "runs" / "r" / "internal" / "configuration.yaml"
    copy.parent.mkdir(parents=True)
    copy.write_text(yaml.safe_dump(HOSPITAL, sort_keys=False))
    begun = read_request(copy, run="r", source="p.csv", home=home, below=project)
    assert begun.linked == {"stays": str(project / "stays.csv")}
    remember(begun)
    again = read_request(copy, run="r", source="p.csv", home=home)
    assert again.linked == resumed_request(home, "r").linked == begun.linked
    other = dataclasses.replace(begun, path=tmp_path / "other.yaml")
    remember(other)
    assert read_request(copy, run="r", source="p.csv", home=home).below == copy.parent
