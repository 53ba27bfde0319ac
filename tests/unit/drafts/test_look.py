"""A close look at a column tells codes from large numbers, however the source writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from marginweave.configuration.columns import NumberColumn
from marginweave.drafts.look import ColumnLook
from marginweave.drafts.tally import judge
from tests.support.configurations import configuration

AGES = {"age": {"type": "number", "bounds": [0, 100], "bins": 10}}


@pytest.mark.parametrize(
    "cells",
    [
        [10.0, 20.0] + 100 * [999.0],
        ["10", "20"] + 100 * ["999"],
        ["10", "20"] + 50 * ["999"] + 50 * ["999.0"],
        ["10", "20", "1500", "999", "999.0"],
        [10, 20, 1500, 999, 999],
    ],
)
def test_a_number_repeated_in_one_block_is_a_code(cells: list[float | str]) -> None:
    declared = configuration(columns=AGES)
    look = ColumnLook()
    look.add(judge(pa.chunked_array([cells]), declared, "age"))
    assert look.beyond_texts.total() == look.beyond
    age = declared.columns["age"]
    assert isinstance(age, NumberColumn)
    assert look.are_codes(age)
