"""Codes: small, closed, and in the bin that the labels name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.columns import values_of
from marginweave.configuration.columns import NumberColumn
from marginweave.prepare.codes import code_type
from tests.support.configurations import configuration
from tests.support.tables import encoded

EDGES = NumberColumn.model_validate({"type": "number", "bins": [-1, 0, 0.001, 2.5, 10]})


@pytest.mark.parametrize(
    ("value", "code"),
    [(-1.0, 0), (-1e-9, 0), (0.0, 1), (0.001, 2), (2.4999, 2), (2.5, 3), (10.0, 3), (None, 4)],
)
def test_a_bin_is_closed_below_and_the_last_one_above(value: float | None, code: int) -> None:
    assert values_of(EDGES, ()).encode(pa.array([value], pa.float64()), None).tolist() == [code]


@given(st.floats(-1, 10))
def test_a_number_lies_in_its_bin(value: float) -> None:
    code = int(values_of(EDGES, ()).encode(pa.array([value]), None)[0])
    low, high = EDGES.edges[code], EDGES.edges[code + 1]
    assert low <= value < high or (code == 3 and value == high)


@pytest.mark.parametrize(
    ("size", "kind"),
    [(2, np.uint8), (255, np.uint8), (256, np.uint16), (65535, np.uint16), (65536, np.uint32)],
)
def test_the_smallest_type_holds_the_missing_code(size: int, kind: type) -> None:
    assert code_type(size) is kind
    assert np.array([size]).astype(kind)[0] == size


def test_missing_is_one_past_the_last_value() -> None:
    table = encoded([["m", "west", "100", "7.0"], ["", "", "", ""]], configuration())
    assert table.sizes == (2, 3, 5, 7)
    assert [c.tolist() for c in table.codes] == [[1, 2], [2, 3], [4, 5], [6, 7]]


def test_an_empty_table_has_the_same_domain() -> None:
    table = encoded([], configuration())
    assert (table.records, table.sizes) == (0, (2, 3, 5, 7))
