"""The unit of privacy as a configuration states it."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from tests.support.configurations import configuration


@pytest.mark.parametrize(
    ("unit", "key", "theta"),
    [
        ("row", "row", 1),
        ({"column": "id", "max_records": 4}, "subject:id", 4),
        ({"column": "id", "max_records": "2", "missing_subject": "own"}, "subject:id", 2),
        ({"column": "id", "join": True}, "subject:id", 1),
    ],
    ids=str,
)
def test_units_have_a_key_a_theta_and_a_canonical_form(unit: Any, key: str, theta: int) -> None:
    """The ledger's key knows the column alone; theta is 1 for rows and joined subjects; nothing is lost on the way back."""
    config = configuration(privacy__unit=unit)
    assert config.privacy.unit_key == key
    assert config.privacy.stability.records == theta
    assert (Configuration.from_canonical(config.canonical()) == config) is True
    assert config.source_names == (*config.names, *(["id"] if key != "row" else []))


def test_the_column_of_the_unit_may_be_declared_as_an_identifier() -> None:
    """Then it has its own missing texts, and is still read once and released never."""
    identifier = {"type": "identifier", "missing": ["-"]}
    config = configuration(columns__id=identifier, privacy__unit={"column": "id", "max_records": 4})
    assert config.source_names == (*config.names, "id")
    assert "id" not in config.names
    assert "id" not in config.output_names
    assert config.missing_texts("id") == ("-",)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (
            "person",
            r"privacy\.unit \(person\) must be row, {column: ID, max_records: N} or {column: ID, join: true}",
        ),
        ({"column": "id"}, r"privacy\.unit needs either max_records"),
        ({"column": "id", "join": False}, r"privacy\.unit needs either max_records"),
        (
            {"column": "id", "join": True, "max_records": 2},
            r"privacy\.unit needs either max_records",
        ),
        (
            {"column": "id", "max_records": 0},
            r"privacy\.unit\.max_records \(0\) must be at least 1",
        ),
        (
            {"column": "id", "max_records": 10**6},
            r"privacy.unit.max_records \(1000000\) must be at most 10000",
        ),
        ({"column": " id", "max_records": 2}, r"privacy\.unit has a column name"),
        ({"max_records": 2}, r"privacy\.unit\.column is required"),
        (
            {"column": "id", "max_record": 2},
            r"privacy\.unit\.max_record; did you mean max_records\?",
        ),
        (
            {"column": "id", "join": True, "missing_subject": "keep"},
            r"missing_subject \(keep\) must be drop or own",
        ),
        (
            {"column": "sex", "max_records": 2},
            "must be of type identifier or not be among the columns",
        ),
    ],
    ids=str,
)
def test_units_that_cannot_be_meant_are_refused(unit: Any, message: str) -> None:
    """Each by the key that has to change."""
    with pytest.raises(InputError, match=message):
        configuration(privacy__unit=unit)
