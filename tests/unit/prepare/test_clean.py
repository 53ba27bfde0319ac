"""Cleaning is row-local: a cell's result depends on the cell and on public constants alone."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.columns import values_of
from marginweave.configuration.columns import Category, NumberColumn
from marginweave.prepare.clean import clean_table
from tests.support.configurations import configuration


def category(**more: object) -> Category:
    return Category.model_validate({"type": "category", **more})


def column(**more: object) -> NumberColumn:
    return NumberColumn.model_validate({"type": "number", "bounds": [0, 10], "bins": 4, **more})


def test_values_outside_become_missing_or_other() -> None:
    texts = pa.array(["a", " b ", "zz", "", None, "NA"])
    assert values_of(category(values=["a", "b"]), ("", "NA")).clean(texts).to_pylist() == [
        "a",
        "b",
        None,
        None,
        None,
        None,
    ]
    other = values_of(category(values=["a", "b"], outside="other"), ("", "NA")).clean(texts)
    assert other.to_pylist() == ["a", "b", "other", None, None, None]
    assert other.dictionary.to_pylist() == ["a", "b", "other"]


def test_the_empty_text_can_be_a_value() -> None:
    """missing: [] makes the empty text an ordinary text; a physical null counts as it."""
    assert values_of(category(values=["", "Y"]), ()).clean(
        pa.array(["", None, "Y"])
    ).to_pylist() == ["", "", "Y"]


def test_the_dictionary_is_the_public_domain_whatever_the_data() -> None:
    for texts in (["a"], [], ["zz", None]):
        cleaned = values_of(category(values=["b", "a", "7"]), ("",)).clean(
            pa.array(texts, pa.string())
        )
        assert cleaned.dictionary.to_pylist() == ["b", "a", "7"]


def test_a_private_domain_is_sorted_and_trimmed() -> None:
    cleaned = values_of(category(domain="private"), ("",)).clean(
        pa.array(["z", " a", "a ", "", "10", None])
    )
    assert cleaned.dictionary.to_pylist() == ["10", "a", "z"]
    assert cleaned.to_pylist() == ["z", "a", "a", None, "10", None]


@pytest.mark.parametrize(
    ("text", "clean"),
    [("3", 3.0), (" 3.50 ", 3.5), ("+4", 4.0), ("-1", 0.0), ("99", 10.0), ("1e1", 10.0), (".5", 0.5), ("5.", 5.0),
     ("x", None), ("", None), (None, None), ("nan", None), ("inf", None), ("1e400", 10.0),
     ("-1e400", 0.0), ("1_0", None), ("-9", None), ("-9.0", None)],
)  # fmt: skip
def test_numbers_are_clamped_and_what_is_none_is_missing(
    text: str | None, clean: float | None
) -> None:
    """Algorithm 1: x -> min(max(x, lower), upper), nulls preserved; -9 is declared missing here, in every spelling."""
    assert values_of(column(), ("", "-9")).clean(pa.array([text], pa.string())).to_pylist() == [
        clean
    ]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(23, 2)]
)
def test_native_numbers_follow_the_same_rule(kind: pa.DataType) -> None:
    values = pa.array([3, -9, 99, None]).cast(kind)
    assert values_of(column(), ("", "-9")).clean(values).to_pylist() == [3.0, None, 10.0, None]


def test_native_nan_and_infinity_are_missing() -> None:
    values = pa.array([math.nan, math.inf, -math.inf, 2.5])
    assert values_of(column(), ()).clean(values).to_pylist() == [None, None, None, 2.5]


cell = st.sampled_from(["f", "m", "north", "3", "-9", "", "zz", "12.5", " 7 ", "1e2"]) | st.text(
    max_size=4
)


@given(st.lists(st.tuples(cell, cell, cell, cell), min_size=1, max_size=12), st.data())
def test_a_row_is_cleaned_the_same_in_any_company(
    rows: list[tuple[str, ...]], data: st.DataObject
) -> None:
    """1-stability: cleaning a subset of rows gives the same subset of clean rows."""
    public = configuration()
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows)))))

    def clean(part: list[tuple[str, ...]]) -> list[tuple]:
        table = pa.table(
            {n: pa.array([r[j] for r in part], pa.string()) for j, n in enumerate(public.names)}
        )
        return list(zip(*(c.to_pylist() for c in clean_table(table, public).columns), strict=True))

    everything = clean(rows)
    assert clean([rows[i] for i in chosen]) == [everything[i] for i in chosen]
