"""Reads suite files of Great Expectations, and refuses expectations that raw rows may not be tested by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marginweave.base.errors import InputError
from marginweave.configuration.yaml_source import read_text

# Every other expectation is about a statistic of the private rows: whether it holds would be published without a charge.
_CELLS = (
    *(
        "be_between",
        "be_in_set",
        "be_in_type_list",
        "be_null",
        "be_of_type",
        "match_regex",
        "match_regex_list",
    ),
    *("not_be_in_set", "not_be_null", "not_match_regex"),
)
_ROW_WISE = (
    *(f"expect_column_values_to_{rule}" for rule in _CELLS),
    *("expect_column_value_lengths_to_be_between", "expect_column_value_lengths_to_equal"),
    *(
        f"expect_column_pair_values_{rule}"
        for rule in ("a_to_be_greater_than_b", "to_be_equal", "to_be_in_set")
    ),
    *(
        "expect_column_to_exist",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
    ),
)
_ROW_WISE_KEYS = {
    *("column", "column_A", "column_B", "column_set", "column_list", "exact_match"),
    *(
        "value_set",
        "value_pairs_set",
        "min_value",
        "max_value",
        "strict_min",
        "strict_max",
        "value",
        "or_equal",
    ),
    *("regex", "regex_list", "match_on", "type_", "type_list", "ignore_row_if"),
}


def read_suite(path: Path, *, raw_input: bool) -> list[dict[str, Any]]:
    """Return the expectations of a suite file; on raw input only those that look at one row at a time.

    Raises:
        InputError: the file is absent or no suite, or asks for a statistic of the raw input.
    """
    try:
        suite = json.loads(read_text(path, "expectation suite"))
        expectations = []
        for expectation in suite["expectations"]:
            arguments = dict(expectation.get("kwargs", {}))
            expectations.append({"type": str(expectation["type"]), "kwargs": arguments})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"expectation suite ({path}) must be the JSON of a Great Expectations suite"
        ) from None
    for expectation in expectations:
        if raw_input and (
            expectation["type"] not in _ROW_WISE or set(expectation["kwargs"]) - _ROW_WISE_KEYS
        ):
            raise InputError(
                f"expectation suite ({path}): {expectation['type']} is refused on raw input; what it tells is a statistic "
                "of private rows. Only expectations on every single row are allowed, without 'mostly' or a row condition"
            )
    return expectations
