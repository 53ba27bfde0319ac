"""The pandera contracts and the hook for Great Expectations tell column and rule, never a value."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pandas as pd
import pytest

from marginweave.base.errors import InputError, StageError
from marginweave.schemas.contracts import check_contract, input_schema, output_schema
from marginweave.schemas.expectations import Suite
from marginweave.sources.suites import read_suite
from tests.support.configurations import configuration

MARKER = "xq7marker"
GOOD = {"sex": ["f", ""], "region": [" north ", "south"], "age": ["17", "300"], "grade": ["1.0", "7"]}


def frame(**changes: list) -> pd.DataFrame:
    return pd.DataFrame({**GOOD, **changes}, dtype="string")


@pytest.mark.parametrize(
    ("column", "values", "rule"),
    [("sex", ["f", MARKER], "every value is declared"), ("age", [MARKER, "4"], "every value is a number")],
)
def test_outside_error_stops_at_the_raw_table(column: str, values: list, rule: str) -> None:
    strict = configuration(**{f"columns__{column}__outside": "error"})
    check_contract(input_schema(strict), frame(), "validate")
    with pytest.raises(InputError) as refusal:
        check_contract(input_schema(strict), frame(**{column: values}), "validate")
    assert str(refusal.value) == f"validate: column '{column}' breaks the rule '{rule}'"
    assert MARKER not in "".join(traceback.format_exception(refusal.value))
    check_contract(input_schema(configuration()), frame(**{column: values}), "validate")  # null by default: no stop


def test_the_raw_table_must_have_the_declared_columns_in_order() -> None:
    with pytest.raises(InputError, match="validate: column 'table' breaks the rule"):
        check_contract(input_schema(configuration()), frame().drop(columns="region"), "validate")


@pytest.mark.parametrize(("column", "value"), [("sex", "x"), ("grade", "8"), ("age", 101.0)])
def test_a_synthetic_value_outside_the_public_domain_is_a_fault_of_ours(column: str, value: object) -> None:
    good = pd.DataFrame({"sex": ["f"], "region": ["west"], "age": [17], "grade": ["7"]})
    check_contract(output_schema(configuration()), good, "decode")
    with pytest.raises(StageError, match=f"decode: column '{column}'"):
        check_contract(output_schema(configuration()), good.assign(**{column: pd.Series([value])}), "decode")


def suite(path: Path, *expectations: dict) -> Path:
    path.write_text(json.dumps({"name": "suite", "expectations": list(expectations)}))
    return path


IN_SET = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "sex", "value_set": ["f", ""]}}


def test_a_suite_tells_success_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = suite(tmp_path / "s.json", IN_SET, {"type": "expect_column_to_exist", "kwargs": {"column": "absent"}})
    absent = "column 'absent' breaks expect_column_to_exist"
    assert Suite(path, raw_input=True).broken(frame()) == [absent]
    failed = Suite(path, raw_input=True).broken(frame(sex=["f", MARKER]))
    assert failed == ["column 'sex' breaks expect_column_values_to_be_in_set", absent]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "expectation",
    [
        {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "age"}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {}},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "age"}},
        {"type": "expect_column_quantile_values_to_be_between", "kwargs": {"column": "age"}},
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "sex", "value_set": ["f"], "mostly": 0.9}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "sex", "row_condition": "age == 41"}},
    ],
)
def test_statistics_of_the_raw_input_are_refused(tmp_path: Path, expectation: dict) -> None:
    path = suite(tmp_path / "s.json", expectation)
    with pytest.raises(InputError, match="is refused on raw input"):
        read_suite(path, raw_input=True)
    assert read_suite(path, raw_input=False)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"expectations": [3]}', "\xff"])
def test_a_file_that_is_no_suite_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=r"must be (the JSON of a Great Expectations suite|UTF-8)"):
        read_suite(path, raw_input=True)
