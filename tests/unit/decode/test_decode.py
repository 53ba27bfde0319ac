"""Decoding: what comes out is encoded into the code it came from, and is drawn evenly from the bin's grid."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chi2

from marginweave.schemas.aggregates import Domain
from marginweave.schemas.columns import Category, NumberColumn
from marginweave.schemas.errors import InputError
from marginweave.tasks.decode.decode import decode_records


def decode_one(column, codes, labels=None, seed=0):
    domain = Domain(names=("x",), labels=(column.labels if labels is None else labels,))
    return decode_records(np.array(codes, np.int32).reshape(-1, 1), domain, {"x": column}, seed).column("x")


def bin_of(value, edges):
    """Bin i is [e_i, e_i+1), the last one closed."""
    inside = [i for i in range(len(edges) - 1) if edges[i] <= value < edges[i + 1]]
    return inside[0] if inside else len(edges) - 2 if value == edges[-1] else None


def edges(low, high, kind=st.floats):
    return st.lists(kind(low, high), min_size=2, max_size=6, unique=True)


BINS = st.one_of(
    st.tuples(edges(-1e3, 1e3), st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(edges(-50, 50, st.integers), st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(edges(-1e15, 1e15), st.integers(0, 2)),  # where the grid is finer than doubles are
)


@settings(max_examples=300, deadline=None)
@given(BINS, st.integers(0, 5))
def test_a_decoded_number_lies_in_its_bin(bins, seed):
    """Every value of every bin is encoded into that bin, has no more decimals than declared, and the right type."""
    numbers, decimals = bins
    try:
        column = NumberColumn(type="number", bins=tuple(sorted(numbers)), decimals=decimals)
    except ValidationError:
        assume(False)
    codes = np.repeat(np.arange(len(column.labels)), 20)
    values = decode_one(column, codes, seed=seed)
    assert values.type == (pa.int64() if decimals == 0 else pa.float64())
    for code, value in zip(codes, values.to_pylist(), strict=True):
        assert bin_of(value, column.edges) == code
        if abs(value) * 10**column.resolution < 2**53:
            assert value == float(round(Decimal(value), column.resolution))


def test_numbers_are_uniform_on_the_grid():
    """Chi-square of 40000 draws over the 80 values of two unequal bins; false alarm below 1e-6."""
    column = NumberColumn(type="number", bins=(0, 5, 8), decimals=1)
    for code, values in ((0, 50), (1, 31)):
        drawn = np.array(decode_one(column, [code] * 20_000).to_pylist())
        grid, seen = np.unique(drawn, return_counts=True)
        assert grid.tolist() == [(column.edges[code] * 10 + i) / 10 for i in range(values)]
        expected = 20_000 / values
        assert ((seen - expected) ** 2 / expected).sum() < chi2.isf(4e-7, values - 1)


def test_declared_order_and_nulls():
    """Columns come in declared order; the code one past the last value is null in every type."""
    columns = {
        "b": Category(type="category", values=("no", "01")),
        "a": NumberColumn(type="number", bins=(0, 1, 10), decimals=0),
        "p": Category(type="category", domain="private"),
    }
    domain = Domain(names=("p", "a", "b"), labels=(("z",), columns["a"].labels, columns["b"].labels))
    table = decode_records(np.array([[0, 2, 1], [1, 0, 2], [0, 0, 0]], np.int32), domain, columns, 3)
    assert table.to_pydict() == {"b": ["01", None, "no"], "a": [None, 0, 0], "p": ["z", None, "z"]}
    assert table.schema.names == ["b", "a", "p"]
    assert table.schema.field("b").type == pa.string()


def test_a_private_domain_without_survivors_is_all_null():
    """A column of which no value was released decodes to nulls of its type."""
    values = decode_one(Category(type="category", domain="private"), [0, 0], labels=())
    assert values.to_pylist() == [None, None]
    assert values.type == pa.string()


def test_streams_do_not_depend_on_other_columns():
    """A column's values depend on the seed and its place only."""
    number = NumberColumn(type="number", bins=(0, 1))
    domain = Domain(names=("x", "y"), labels=(number.labels, number.labels))
    records = np.zeros((50, 2), np.int32)
    both = decode_records(records, domain, {"x": number, "y": number}, 1)
    assert decode_records(records, domain, {"x": number}, 1).column("x") == both.column("x")
    assert both.column("x") != both.column("y")
    assert decode_records(records, domain, {"x": number}, 2).column("x") != both.column("x")


def test_a_domain_that_does_not_fit_is_refused():
    """A column that is not in the domain, or has other bins there, is an error."""
    number = NumberColumn(type="number", bins=(0, 1, 2))
    domain = Domain(names=("x",), labels=(("[0, 1)",),))
    with pytest.raises(InputError, match="2 bins"):
        decode_records(np.zeros((1, 1), np.int32), domain, {"x": number}, 0)
    with pytest.raises(InputError, match="not in the domain"):
        decode_records(np.zeros((1, 1), np.int32), domain, {"y": number}, 0)
