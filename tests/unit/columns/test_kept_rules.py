"""A rule that is asked of a column at once says what it says of each cell."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.columns.kept_rules import keeps, kept_texts
from marginweave.configuration.columns import SetColumn
from marginweave.configuration.columns.base import Rule

DAYS = st.dates(date(1969, 12, 25), date(1970, 1, 12))
EPOCH = datetime.fromisoformat("1970-01-01")
MOMENTS = st.integers(-3600, 3600).map(lambda seconds: EPOCH + timedelta(seconds=seconds))
WORDS = st.sampled_from(["a", "b", "A", "", "a ", "zz"])
Cell = Callable[[Any], bool]
# A rule, the type of its column, cells, and what one cell must be.
RULES: dict[str, tuple[Rule, pa.DataType, st.SearchStrategy[Any], Cell]] = {
    "numbers": (
        Rule(name="r", limits=(-1.5, 10.0)),
        pa.float64(),
        st.one_of(st.floats(-3, 12), st.just(math.nan), st.just(math.inf)),
        lambda x: -1.5 <= x <= 10,
    ),
    "numbers and codes": (
        Rule(name="r", limits=(0.0, 5.0), values=(97.5, -8.0)),
        pa.float64(),
        st.sampled_from([0.0, -0.0, 5.0, 5.5, 97.5, -8.0, -1.0]),
        lambda x: 0 <= x <= 5 or x in (97.5, -8),
    ),
    "whole numbers": (
        Rule(name="r", limits=(0.5, 10.0)),
        pa.int64(),
        st.one_of(st.integers(-2, 12), st.sampled_from([2**53 + 1, -(2**62)])),
        lambda x: 0.5 <= x <= 10,
    ),
    "small whole numbers": (
        Rule(name="r", limits=(0, 9)),
        pa.int16(),
        st.integers(-2, 12),
        lambda x: 0 <= x <= 9,
    ),
    "clean days": (
        Rule(name="r", limits=(-3, 4)),
        pa.date32(),
        DAYS,
        lambda day: date(1969, 12, 29) <= day <= date(1970, 1, 5),
    ),
    "days": (
        Rule(name="r", limits=(date(1970, 1, 1), date(1970, 1, 9))),
        pa.date32(),
        DAYS,
        lambda day: date(1970, 1, 1) <= day <= date(1970, 1, 9),
    ),
    "clean moments": (
        Rule(name="r", limits=(-60, 60)),
        pa.timestamp("s"),
        MOMENTS,
        lambda one: abs(one - EPOCH) <= timedelta(minutes=1),
    ),
    "words": (
        Rule(name="r", values=("a", "b")),
        pa.string(),
        WORDS,
        lambda text: text in ("a", "b"),
    ),
    "answers": (Rule(name="r", values=(True,)), pa.bool_(), st.booleans(), bool),
    "texts": (
        Rule(name="r", test=lambda text: text in ("a", "b")),
        pa.string(),
        WORDS,
        lambda t: t.strip() in ("a", "b"),
    ),
}


@pytest.mark.parametrize("name", RULES)
@given(data=st.data())
def test_a_column_keeps_a_rule_as_each_of_its_cells_does(name: str, data: st.DataObject) -> None:
    """Null keeps every rule; a slice, and a dictionary with entries that no cell has, are as the cells alone."""
    rule, kind, values, holds = RULES[name]
    cells = data.draw(st.lists(st.one_of(values, values, st.none()), max_size=6))
    expected = all(cell is None or holds(cell) for cell in cells)
    array = pa.array(cells, kind)
    assert keeps(rule, array) == expected
    more = pa.concat_arrays([array, pa.array([data.draw(values)], kind)])
    assert keeps(rule, more.slice(0, len(cells))) == expected
    if rule.test is not None:
        assert keeps(rule, more.dictionary_encode().slice(0, len(cells))) == expected


@pytest.mark.parametrize("labels", [("a", "b"), ("b", "a"), ("a",), ()])
def test_labels_are_those_of_the_dictionary_whatever_cells_there_are(
    labels: tuple[str, ...],
) -> None:
    cells = pa.DictionaryArray.from_arrays(pa.array([None, 0], pa.int32()), pa.array(["a", "b"]))
    assert keeps(Rule(name="r", labels=labels), cells) == (labels == ("a", "b"))


PARTS = st.lists(st.sampled_from(["a", " b", "7.0", "7", "", " ", "zz"]), max_size=5)


@given(
    st.lists(st.tuples(PARTS, st.sampled_from([";", "; ", "--"])), max_size=6),
    st.sampled_from([";", "; ", "--"]),
    st.integers(1, 3),
    st.booleans(),
)
def test_parts_of_a_set_are_asked_as_its_cells_are(
    cells: list[tuple[list[str], str]], separator: str, most: int, is_filled: bool
) -> None:
    """What `accepts` says of a cell, and how many parts it has; whatever separator the texts are joined with."""
    texts = [mark.join(parts).strip() for parts, mark in cells]
    column = SetColumn(
        type="set",
        separator=separator,
        values=("a", "b", "7"),
        max_values=most,
        outside="error",
        min_values=1 if is_filled else None,
    )
    declared, cap = column.released_rules
    assert kept_texts(declared, texts).tolist() == [column.accepts(text) for text in texts]
    assert kept_texts(cap, texts).tolist() == [len(column.parts(text)) <= most for text in texts]
    private = SetColumn(
        type="set", separator=separator, domain="private", max_values=most
    ).released_rules[0]
    assert kept_texts(private, texts).all()
