"""The pandera contracts and the hook for Great Expectations tell column and rule, never a value."""

from __future__ import annotations

import json
import traceback
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from marginweave.base.errors import InputError, StageError
from marginweave.schemas import contracts
from marginweave.schemas.expectations import Suite
from marginweave.schemas.records import records_contract
from marginweave.schemas.source import source_contract
from marginweave.sources.suites import read_suite
from tests.support.configurations import configuration

MARKER = "xq7marker"
GOOD = {
    "sex": ["f", ""],
    "region": [" north ", "south"],
    "age": ["17", "300"],
    "grade": ["1.0", "7"],
}


def table(**changes: Any) -> pa.Table:
    return pa.table({**GOOD, **changes})


@pytest.mark.parametrize(
    ("column", "values", "rule"),
    [
        ("sex", ["f", MARKER], "every value is declared"),
        ("age", [MARKER, "4"], "every value is a number"),
    ],
)
def test_outside_error_stops_at_the_raw_table(column: str, values: list, rule: str) -> None:
    strict = configuration(**{f"columns__{column}__outside": "error"})
    source_contract(strict).check(table())
    with pytest.raises(InputError) as refusal:
        source_contract(strict).check(table(**{column: values}))
    assert str(refusal.value) == f"validate: column '{column}' breaks the rule '{rule}'"
    assert MARKER not in "".join(traceback.format_exception(refusal.value))
    source_contract(configuration()).check(table(**{column: values}))  # null by default: no stop


def test_the_raw_table_must_have_the_declared_columns_in_order() -> None:
    with pytest.raises(InputError, match="validate: column 'table' breaks the rule"):
        source_contract(configuration()).check(table().drop_columns("region"))


@pytest.mark.parametrize(
    ("column", "value"), [("sex", "x"), ("grade", "8"), ("age", 101), ("age", 17.0)]
)
def test_a_synthetic_value_outside_the_public_domain_is_a_fault_of_ours(
    column: str, value: object
) -> None:
    good = {"sex": ["f"], "region": ["west"], "age": [17], "grade": ["7"]}
    records_contract(configuration()).check(pa.table(good))
    with pytest.raises(StageError, match=f"decode: column '{column}'"):
        records_contract(configuration()).check(pa.table({**good, column: [value]}))


def test_no_failure_case_and_no_message_of_pandera_has_a_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of values outside, and of columns of another type."""
    errors: list[Any] = []
    rule_of = contracts._rule
    monkeypatch.setattr(contracts, "_rule", lambda error: errors.append(error) or rule_of(error))
    strict = configuration(columns__sex__outside="error", columns__age__outside="error")
    source_contract(strict).broken(table(sex=["f", MARKER], age=[MARKER, "4"]))
    records = {
        "sex": ["f", MARKER],
        "region": ["west", None],
        "age": [17, 424242],
        "grade": ["7", "1"],
    }
    for changes in (
        {},
        {"age": [MARKER, "4"]},
        {"grade": [424242, 1]},
        {"sex": [date(1942, 4, 24)] * 2},
    ):
        records_contract(configuration()).broken(pa.table({**records, **changes}))
    told = "".join(f"{error}{error.failure_cases}" for error in errors)
    assert len(errors) == 7
    assert not any(value in told for value in (MARKER, "424242", "1942"))


def test_a_table_of_another_type_is_refused_before_a_cell_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the columns; of the right types, cells are looked at."""
    monkeypatch.setattr(contracts, "keeps", lambda *_: pytest.fail("a cell was looked at"))
    good = {"sex": ["f"], "region": ["west"], "age": [17], "grade": ["7"]}
    rules = records_contract(configuration())
    assert rules.broken(pa.table({**good, "age": ["17"]})) == {("age", contracts.RULE_TYPE)}
    assert rules.broken(pa.table({**good, "age": [17.0], "sex": [1]})) == {
        ("age", contracts.RULE_TYPE),
        ("sex", contracts.RULE_TYPE),
    }
    with pytest.raises(pytest.fail.Exception):
        rules.broken(pa.table(good))


@pytest.mark.parametrize("nullable", [False, True])
def test_a_column_without_rules_lacks_values_only_where_it_may(nullable: bool) -> None:
    column = contracts.column_contract(pa.string(), (), nullable=nullable)
    broken = contracts.Contract.of("stage", {"x": column}).broken(pa.table({"x": ["a", None]}))
    assert broken == (set() if nullable else {("x", "series_contains_nulls")})


def test_a_source_has_types_whose_cells_have_a_text() -> None:
    contract_of_source = source_contract(configuration())
    for cells in (["a", None], [1, 2], [1.5, None], [True, False], [date(2019, 1, 1), None]):
        assert contract_of_source.broken(table(age=pa.array(cells))) == set()
        assert contract_of_source.broken(table(age=pa.array(cells).dictionary_encode())) == set()
    for kind in (
        pa.decimal32(5, 2),
        pa.decimal64(12, 2),
        pa.decimal128(20, 2),
        pa.decimal256(50, 2),
    ):
        wide = pa.array([Decimal("1.50"), None], kind)
        assert contract_of_source.broken(table(age=wide)) == set()
        behind = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), wide[:1])
        assert contract_of_source.broken(table(age=behind)) == set()
    for cells in ([b"a", b"b"], [["a"], ["b"]], [timedelta(1), timedelta(2)]):
        assert contract_of_source.broken(table(age=pa.array(cells))) == {
            ("age", contracts.RULE_TYPE)
        }


def suite(path: Path, *expectations: dict) -> Path:
    path.write_text(json.dumps({"name": "suite", "expectations": list(expectations)}))
    return path


IN_SET = {
    "type": "expect_column_values_to_be_in_set",
    "kwargs": {"column": "sex", "value_set": ["f", ""]},
}


def test_a_suite_tells_success_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = suite(
        tmp_path / "s.json",
        IN_SET,
        {"type": "expect_column_to_exist", "kwargs": {"column": "absent"}},
    )
    absent = "column 'absent' breaks expect_column_to_exist"
    assert Suite(path, raw_input=True).broken(table()) == [absent]
    failed = Suite(path, raw_input=True).broken(table(sex=["f", MARKER]))
    assert failed == ["column 'sex' breaks expect_column_values_to_be_in_set", absent]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "expectation",
    [
        {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "age"}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {}},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "age"}},
        {"type": "expect_column_quantile_values_to_be_between", "kwargs": {"column": "age"}},
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "sex", "value_set": ["f"], "mostly": 0.9},
        },
        {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": "sex", "row_condition": "age == 41"},
        },
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
