"""Decoding: what comes out is encoded into the code it came from, and is drawn as the bin's rule says."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chi2

from marginweave.base.errors import InputError
from marginweave.configuration.columns import NumberColumn
from marginweave.domain.labels import Domain
from marginweave.records.decode import decode_table
from tests.support.configurations import configuration


def decode(codes, columns, labels=None, seed=0, **more):
    """The table that codes (one array an attribute) stand for; `labels` replaces those of private domains."""
    config = configuration(columns=columns, **more)
    known = {**{a.name: a.labels for a in config.attributes}, **(labels or {})}
    domain = Domain(names=tuple(known), labels=tuple(known.values()))
    return decode_table([np.asarray(c, np.int32) for c in codes], domain, config, seed)


def decode_one(column, codes, labels=None, seed=0):
    return decode([codes], {"x": column}, None if labels is None else {"x": labels}, seed).column(
        "x"
    )


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
DRAWS = st.sampled_from(["uniform", "midpoint", {"edges": [-40, -1, 0.5, 3], "weights": [1, 0, 4]}])


@settings(max_examples=50, deadline=None)
@given(BINS, DRAWS, st.integers(0, 5))
def test_a_decoded_number_lies_in_its_bin(bins, draw, seed):
    """Every value of every bin is encoded into that bin, has no more decimals than declared, and the right type."""
    numbers, decimals = bins
    raw = {"type": "number", "bins": sorted(numbers), "decimals": decimals, "draw": draw}
    try:
        column = NumberColumn.model_validate(raw)
    except ValidationError:
        assume(False)
    codes = np.repeat(np.arange(len(column.labels)), 20)
    values = decode_one(raw, codes, seed=seed)
    assert values.type == (pa.int64() if decimals == 0 else pa.float64())
    for code, value in zip(codes, values.to_pylist(), strict=True):
        assert bin_of(value, column.edges) == code
        if abs(value) * 10**column.resolution < 2**53:
            assert value == float(round(Decimal(value), column.resolution))


def test_numbers_are_uniform_on_the_grid():
    """Chi-square of 40000 draws over the 80 values of two unequal bins; false alarm below 1e-6."""
    column = {"type": "number", "bins": [0, 5, 8], "decimals": 1}
    for code, low, values in ((0, 0, 50), (1, 5, 31)):
        drawn = np.array(decode_one(column, [code] * 20_000).to_pylist())
        grid, seen = np.unique(drawn, return_counts=True)
        assert grid.tolist() == [(low * 10 + i) / 10 for i in range(values)]
        expected = 20_000 / values
        assert ((seen - expected) ** 2 / expected).sum() < chi2.isf(4e-7, values - 1)


def test_numbers_follow_a_public_distribution():
    """Bin [0, 10) of a density that is 1 below 4, 3 from 4 to 8 and 0 above: chi-square at a false alarm of 1e-6."""
    draw = {"edges": [-2, 4, 8, 20], "weights": [6, 12, 0]}
    column = {"type": "number", "bins": [0, 10, 30], "decimals": 0, "draw": draw}
    drawn = np.bincount(decode_one(column, [0] * 20_000).to_numpy(), minlength=10)
    expected = 20_000 * np.array([1, 1, 1, 1, 3, 3, 3, 3]) / 16
    assert drawn[8:].sum() == 0
    assert ((drawn[:8] - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 7)
    assert set(decode_one(column, [1] * 2000).to_pylist()) > {10, 15, 29}  # no weight there: evenly


def test_weekdays_are_drawn_among_those_within_the_bounds():
    """Wednesday 2 to Wednesday 9 January 2019: two Wednesdays, evenly (20000 draws, 8 standard deviations), one Monday."""
    column = {"type": "date", "bounds": ["2019-01-02", "2019-01-09"], "bins": "weekday"}
    assert set(decode_one(column, [0] * 50).to_pylist()) == {datetime.date(2019, 1, 7)}
    days, seen = np.unique(decode_one(column, [2] * 20_000).to_numpy(), return_counts=True)
    assert days.astype(str).tolist() == ["2019-01-02", "2019-01-09"]
    assert abs(seen[0] - 10_000) < 8 * 71


def test_every_kind_has_its_declared_type_format_and_null():
    """Columns come in declared order; the code one past the last value is null in every type."""
    columns = {
        "id": {"type": "identifier"},
        "b": {"type": "category", "values": ["no", "01"]},
        "n": {"type": "number", "bins": [0, 1, 10], "decimals": 0},
        "p": {"type": "category", "domain": "private"},
        "t": {"type": "boolean"},
        "d": {
            "type": "date",
            "bounds": ["2019-01-31", "2019-01-31"],
            "bins": "year",
            "format": "%d.%m.%Y",
        },
        "m": {
            "type": "datetime",
            "bins": ["2019-01-01", "2019-01-02"],
            "bounds": ["2019-01-01", "2019-01-02"],
        },
        "s": {"type": "set", "separator": ", ", "values": ["u", "v", "w"], "max_values": 2},
        "c": {"type": "constant", "value": "01"},
    }
    codes = [[1, 2], [2, 0], [0, 1], [1, 2], [0, 1], [1, 1], [[0, 2], [3, 3]]]
    table = decode(codes, columns, {"p": ("z",)})
    assert table.schema.names == ["b", "n", "p", "t", "d", "m", "s", "c"]
    assert [str(kind) for kind in table.schema.types] == [
        "string", "int64", "string", "bool", "string", "timestamp[s]", "string", "string",
    ]  # fmt: skip
    assert table.to_pydict() == {
        "b": ["01", None], "n": [None, 0], "p": ["z", None], "t": [True, None], "d": ["31.01.2019", None],
        "m": [None, None], "s": ["u, w", None], "c": ["01", "01"],
    }  # fmt: skip


def test_a_private_domain_without_survivors_is_all_null():
    """A column of which no value was released decodes to nulls of its type."""
    values = decode_one({"type": "category", "domain": "private"}, [0, 0], labels=())
    assert values.to_pylist() == [None, None]
    assert values.type == pa.string()
    cells = decode_one(
        {"type": "set", "domain": "private", "max_values": 3}, [[0, 0, 0]], labels=()
    )
    assert cells.to_pylist() == [None]


def test_determined_columns_are_computed():
    """A mapping, its default and missing."""
    columns = {
        "town": {"type": "category", "values": ["T1", "T2", "T3"]},
        "adult": {"type": "boolean"},
        "age": {"type": "number", "bins": [0, 1, 2, 3], "decimals": 0},
        "stage": {"type": "category", "values": ["young", "old"]},
    }
    structure = {
        "determined": [
            {"column": "stage", "by": "age", "mapping": {"0": "young"}, "default": "old"},
            {"column": "adult", "by": "town", "mapping": {"T1": "Y", "T3": "no"}},
        ],
    }  # fmt: skip
    table = decode([[0, 1, 2, 3], [0, 1, 3, 2]], columns, structure=structure)
    age = table.column("age").to_pylist()
    assert (age[0], age[1], age[2]) == (0, 1, None)
    assert table.column("stage").to_pylist() == ["young", "old", None, "old"]
    assert table.column("town").to_pylist() == ["T1", "T2", "T3", None]
    assert table.column("adult").to_pylist() == [True, None, False, None]


def test_streams_do_not_depend_on_other_columns():
    """A column's values depend on the seed and its place only."""
    number = {"type": "number", "bins": [0, 1]}
    zeros = np.zeros(50, int)
    both = decode([zeros, zeros], {"x": number, "y": number}, seed=1)
    assert decode([zeros], {"x": number}, seed=1).column("x") == both.column("x")
    assert both.column("x") != both.column("y")
    assert decode([zeros], {"x": number}, seed=2).column("x") != both.column("x")


def test_a_domain_that_does_not_fit_is_refused():
    """An attribute that is not in the domain, or has other bins there, is an error."""
    config = configuration(columns={"x": {"type": "number", "bins": [0, 1, 2]}})
    for domain, words in (
        (Domain(names=("x",), labels=(("[0, 1)",),)), "2 values"),
        (Domain(names=("y",), labels=(("[0, 1)", "[1, 2]"),)), "not in the domain"),
    ):
        with pytest.raises(InputError, match=words):
            decode_table([np.zeros(1, np.int32)], domain, config, 0)
