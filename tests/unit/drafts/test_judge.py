"""What `check` and a person's run are told of cells is what cleaning makes of them."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.columns import values_of
from marginweave.columns.base import Judged
from marginweave.configuration.columns import DateColumn, NumberColumn
from marginweave.configuration.values import ValueMatcher
from marginweave.drafts.tally import CellTally, Unusable, judge, unusable
from marginweave.runs.frames import as_table
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration


def shares(judged: Judged) -> tuple[int, ...]:
    """Cells: all, missing, unread, beyond."""
    kinds = (judged.missing, judged.unread, judged.beyond)
    assert np.stack(kinds).sum(axis=0).max(initial=0) <= 1
    return (int(judged.cells.sum()), *(int(judged.cells[kind].sum()) for kind in kinds))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_texts_are_judged_by_the_rule_of_the_column(kind: str, data: st.DataObject) -> None:
    """Unread is what `outside: error` would stop at; missing and unread together are what is null when it is clean."""
    declared, texts = KINDS[kind]
    column = configuration(columns={"c": declared}, aggregate__reporting_length=1).columns["c"]
    missing = data.draw(st.sampled_from([("",), (), ("N", "-9", "")]))
    cells = data.draw(st.lists(st.one_of(texts, st.none()), max_size=12))
    values = values_of(column, missing)
    array = pa.array(cells, pa.string())
    counted = shares(values.judge(array))
    assert counted == shares(values.judge(array.dictionary_encode()))
    trimmed, absent = [(cell or "").strip() for cell in cells], ValueMatcher(missing)
    gaps = [absent.index(text) >= 0 for text in trimmed]
    unread = [not gap and not column.accepts(text) for gap, text in zip(gaps, trimmed, strict=True)]
    assert counted[:3] == (len(cells), sum(gaps), sum(unread))
    if kind not in {"other", "set", "private set"}:
        assert values.clean(array).null_count == sum(gaps) + sum(unread)


NUMBERS = NumberColumn.model_validate({"type": "number", "bounds": [0, 10], "bins": 2})
DATES = DateColumn.model_validate(
    {"type": "date", "bounds": ["2020-01-01", "2020-12-31"], "bins": "year"}
)


@pytest.mark.parametrize(
    ("column", "missing", "cells", "counts"),
    [
        (NUMBERS, ("", "-9"), pa.array([1, None, -9, 11, 10]), (5, 2, 0, 1)),
        (NUMBERS, (), pa.array([1.0, None, math.nan, math.inf, -0.5, 10.0]), (6, 0, 3, 1)),
        (NUMBERS, ("",), pa.array(["-1", "1e400", "10", "4,5"]), (4, 0, 1, 2)),
        (NUMBERS.model_copy(update={"outer": "open"}), ("",), pa.array([-1, 99]), (2, 0, 0, 0)),
        (
            DATES,
            ("2020-05-05",),
            pa.array([date(2019, 12, 31), date(2020, 12, 31), date(2020, 5, 5), None]),
            (4, 1, 1, 1),
        ),
        (DATES, ("",), pa.array(["2021-01-01", "2020-12-31", "31.12.2020", ""]), (4, 1, 1, 1)),
    ],
)
def test_what_lies_beyond_is_what_is_clamped(
    column: NumberColumn | DateColumn,
    missing: tuple[str, ...],
    cells: pa.Array,
    counts: tuple[int, ...],
) -> None:
    assert shares(values_of(column, missing).judge(cells)) == counts


@pytest.mark.parametrize(
    ("cells", "on_purpose", "fault"),
    [
        ((0, 0, 0), False, None),
        ((10, 5, 0), False, None),
        ((10, 3, 3), False, Unusable.MOST),
        ((10, 3, 3), True, None),
        ((10, 10, 0), True, Unusable.NOTHING),
        ((10, 0, 10), False, Unusable.MOST),
    ],
)
def test_a_column_is_unusable_from_half_on(
    cells: tuple[int, int, int], on_purpose: bool, fault: Unusable | None
) -> None:
    assert unusable(*cells, on_purpose=on_purpose) is fault


@pytest.mark.parametrize("gap", [None, math.nan, pd.NA, ""])
def test_an_empty_cell_is_left_out_where_it_is_declared_missing_alone(gap: Any) -> None:
    """The stop says of which cells it has more than half: an empty one is among them where `missing` has not the empty text."""
    frame = pd.DataFrame({"sex": pd.Series([gap] * 3 + ["F"], dtype=object)})
    cells = as_table(frame, {"sex": ""}).column("sex")
    declared = {"type": "category", "values": ["F", "M"]}
    for missing, stop in (([""], None), ([], Unusable.MOST)):
        config = configuration(
            columns={"sex": {**declared, "missing": missing}}, aggregate__reporting_length=1
        )
        tally = CellTally()
        tally.add(judge(cells, config, "sex"))
        assert tally.unusable(on_purpose=False) == stop
    assert "half of the cells not declared missing" in Unusable.MOST.of(NUMBERS)
