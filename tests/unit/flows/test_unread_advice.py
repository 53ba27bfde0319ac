"""What `check` advises where cells are none of the declared values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from marginweave.configuration.columns import MeasuredColumn, NumberColumn
from marginweave.configuration.number_texts import USUAL
from marginweave.configuration.yaml_source import parse_yaml
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


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        (["70 kg", "71 kg", ""], {"unit": "kg"}),
        (["$1,234.50", "$7", "unknown"], {"unit": "$", "decimal": "dot", "thousands": "comma"}),
        (["12 %", "3,5 %"], {"unit": "%", "decimal": "comma"}),
        (["(123)", "(7)", "55"], {"brackets": True}),
    ],
)
def test_an_advised_spelling_reads_what_was_unread(cells: list[str], text: dict[str, Any]) -> None:
    """The line that is advised is accepted; with it all is read that has a digit, and no other line is advised."""
    number = {"type": "number", "bounds": [0, 9], "bins": 3, "missing": [""]}
    config = configuration(columns__x=number)
    column = config.columns["x"]
    assert isinstance(column, NumberColumn)
    look = ColumnLook()
    look.add(judge(pa.chunked_array([cells]), config, "x"))
    remarks = list(column_findings(column, look, on_purpose=True, undeclared=False))
    line = str(remarks[0].advice).partition("in the column: ")[2]
    assert parse_yaml(line) == {"text": text}
    declared = configuration(columns__x={**number, **parse_yaml(line)}).columns["x"]
    assert isinstance(declared, NumberColumn)
    form = declared.form_in(USUAL)
    unread = [cell for cell in cells if form.plain(cell) is None]
    assert not any(letter.isdigit() for cell in unread for letter in cell)
    assert look.spelling(declared) == {}


def test_several_units_are_no_spelling() -> None:
    config = configuration(columns__x={"type": "number", "bounds": [0, 9], "bins": 3})
    column = config.columns["x"]
    assert isinstance(column, NumberColumn)
    look = ColumnLook()
    look.add(judge(pa.chunked_array([["$5", "5 €", "7 £"]]), config, "x"))
    assert look.spelling(column) == {}
    (remark,) = column_findings(column, look, on_purpose=True, undeclared=False)
    assert "not all are spelled alike" in str(remark.advice)
