"""The two worked suites of expectations, held against small tables that meet them and against ones that do not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.load import load_configuration
from marginweave.schemas.expectations import Suite
from marginweave.sources.suites import read_suite

DEPLOYMENTS = Path(__file__).resolve().parents[3] / "deployments"
SUITES = DEPLOYMENTS / "expectations"
EXAMPLE = load_configuration(DEPLOYMENTS / "examples" / "drug_deaths.yaml")


def raw(**changes: list[str]) -> pa.Table:
    """Two rows as they come from the file: every cell a text."""
    cells: dict[str, list[str]] = {name: ["", ""] for name in ("ID", *EXAMPLE.names)}
    cells |= {
        "ID": ["12-0187", "13-0146"],
        "Age": ["34", ""],
        "Sex": ["FEMALE", ""],
        "Heroin": ["Y", ""],
    }
    return pa.table({**cells, **changes})


def synthetic(**changes: list) -> pa.Table:
    """Records in the columns of the configuration."""
    cells: dict[str, list] = {name: [None] * 7600 for name in EXAMPLE.names}
    return pa.table({**cells, "Age": [42] * 7600, "Sex": ["MALE"] * 7600, **changes})


def failed(suite: str, table: pa.Table) -> list[str]:
    return Suite(SUITES / suite, raw_input=suite == "input.json").broken(table)


def test_the_example_uses_them() -> None:
    assert EXAMPLE.expectations.input == "../expectations/input.json"
    assert EXAMPLE.expectations.output == "../expectations/output.json"


def test_input() -> None:
    assert failed("input.json", raw()) == []
    assert failed("input.json", raw(Age=["34", "x"])) == [
        "column 'Age' breaks expect_column_values_to_match_regex"
    ]
    assert failed("input.json", raw(Heroin=["Y", "N"])) == [
        "column 'Heroin' breaks expect_column_values_to_be_in_set"
    ]
    assert "column 'ID' breaks expect_column_to_exist" in failed(
        "input.json", raw().drop_columns("ID")
    )


def test_output() -> None:
    assert failed("output.json", synthetic()) == []
    old = failed("output.json", synthetic(Age=[88] * 7600))
    assert old == [
        f"column 'Age' breaks expect_column_{what}_to_be_between" for what in ("values", "mean")
    ]
    assert failed("output.json", synthetic().select(list(EXAMPLE.names)[::-1]))[0].endswith(
        "match_ordered_list"
    )


def test_what_may_be_asked_of_synthetic_records_is_refused_on_raw_ones() -> None:
    with pytest.raises(
        InputError, match=r"expect_table_row_count_to_be_between is refused on raw input"
    ):
        read_suite(SUITES / "output.json", raw_input=True)
