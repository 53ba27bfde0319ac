"""What `check` advises where cells are none of the declared values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from marginweave.configuration.columns import MeasuredColumn
from marginweave.drafts.look import ColumnLook
from marginweave.drafts.tally import judge
from marginweave.flows.check.advice import column_findings
from tests.support.configurations import configuration

CATEGORY = {"type": "category", "values": ["female", "male"]}
SET = {"type": "set", "values": ["female", "male", "1"], "max_values": 3}


@pytest.mark.parametrize(
    ("declared", "cell", "is_case"),
    [
        (CATEGORY, "FEMALE", True),
        (CATEGORY, "Female", True),
        (CATEGORY, "woman", False),
        (SET, "Female;male", True),
        (SET, "Female;1.0", True),
        (SET, "Female;woman", False),
    ],
)
def test_texts_in_another_case_are_told_from_other_texts(
    declared: dict[str, Any], cell: str, is_case: bool
) -> None:
    config = configuration(columns__sex=declared)
    column = config.columns["sex"]
    assert isinstance(column, MeasuredColumn)
    look = ColumnLook()
    look.add(judge(pa.chunked_array([["male", cell]]), config, "sex"))
    (remark,) = column_findings(column, look, on_purpose=True, undeclared=False)
    assert str(remark.advice).startswith("Upper and lower case differ.") == is_case
