"""Structures that contradict themselves are refused before anything is drawn."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute, check_records
from marginweave.configuration.rules.record_search import find_record
from tests.support.configurations import configuration

SURE = {"type": "category", "missing": [], "outside": "error"}
COLUMNS: dict[str, Any] = {
    "a": {**SURE, "values": ["x", "y"]},
    "b": {**SURE, "values": ["u", "v", "w"]},
    "c": {**SURE, "values": ["1", "2", "3", "4", "5"]},
    "d": {**SURE, "values": ["p", "q"]},
}


def forbid(*rules: dict[str, Any], **columns: Any) -> None:
    configuration(columns={**COLUMNS, **columns}, structure={"forbidden": list(rules)})


PAIR = ({"a": "x", "c": [1, 2, 3, 4, 5]}, {"a": "y", "c": [1, 2, 3, 4, "5.0"]})
CHAIN = (
    {"a": "x", "d": "p"},
    {"a": "x", "b": ["u", "v", "w"], "d": "q"},
    {"a": "y", "b": ["u", "v"]},
    {"a": "y", "b": "w", "d": ["p", "q"]},
)


def test_a_pair_without_any_combination_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no combination of the values of columns a, c: they"):
        forbid({"b": "u", "d": "p"}, *PAIR)


def test_marginals_are_refused_the_same_structure_before_anything_is_drawn() -> None:
    """A set among them is always escaped: a record need not have any of its values."""
    wishes = {"structure": {"forbidden": list(PAIR)}, "aggregate": {"method": "marginals"}}
    with pytest.raises(InputError, match="no combination of the values of columns a, c: they"):
        configuration(columns=COLUMNS, **wishes)
    configuration(
        columns={**COLUMNS, "a": {"type": "set", "values": ["x", "y"], "max_values": 1}}, **wishes
    )


def test_a_contradiction_through_several_columns_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no combination of the values of columns a, b, d: they"):
        forbid(*CHAIN)


@pytest.mark.parametrize(
    "column",
    [
        {"type": "category", "values": ["x", "y"]},
        {"type": "category", "values": ["x", "y"], "missing": [], "outside": "other"},
        {"type": "category", "domain": "private", "impute": {"weights": {"x": 1}}},
    ],
)
def test_a_column_with_a_way_out_is_no_contradiction(column: dict[str, Any]) -> None:
    """It can be missing, has one more value, or values that nobody knows yet."""
    forbid(*PAIR, a=column)


SIZES = (2, 3, 5, 2)
ATTRIBUTES = tuple(
    Attribute(name=f"{j}", column=f"{j}", labels=tuple(map(str, range(size))), optional=False)
    for j, size in enumerate(SIZES)
)
pairs = st.sampled_from(
    list(itertools.combinations(range(4), 2)) + list(itertools.combinations(range(4), 3))
)
blocks = pairs.flatmap(
    lambda places: st.tuples(
        *(
            st.tuples(st.just(j), st.sets(st.integers(0, SIZES[j] - 1), min_size=SIZES[j] // 2))
            for j in places
        )
    )
)


@given(st.lists(blocks, max_size=7))
def test_the_search_agrees_with_trying_every_record(rules: list[Any]) -> None:
    """Refused exactly where none of the 60 records is allowed; what is found elsewhere keeps every rule."""
    forbidden = [
        tuple((j, (str(v),)) for (j, _), v in zip(rule, values, strict=True))
        for rule in rules
        for values in itertools.product(*(found for _, found in rule))
    ]
    possible = any(
        not any(all(record[j] in found for j, found in rule) for rule in rules)
        for record in itertools.product(*map(range, SIZES))
    )
    if possible:
        check_records(ATTRIBUTES, forbidden)
        tied: dict[tuple[int, ...], set[tuple[str, ...]]] = {}
        for combination in forbidden:
            places, labels = zip(*combination, strict=True)
            tied.setdefault(places, set()).add(tuple(label for (label,) in labels))
        record = find_record({j: ATTRIBUTES[j].labels for j in range(len(SIZES))}, tied)
        assert set(record) == {place for places in tied for place in places}
        assert not any(
            all(record[j] in labels for j, labels in combination) for combination in forbidden
        )
    else:
        with pytest.raises(ValueError, match="leave no combination"):
            check_records(ATTRIBUTES, forbidden)


def test_combinations_of_other_values_exclude_none_of_these() -> None:
    assert find_record({0: "ab", 1: "c"}, {(0, 1): {("a", "c"), ("z", "c")}}) == {0: "b", 1: "c"}


def test_what_is_not_decided_in_time_is_accepted() -> None:
    """Thirteen columns, all different, of twelve values: 12! ways to fail."""
    labels = tuple(map(str, range(12)))
    many = [Attribute(name=f"{j}", column=f"{j}", labels=labels, optional=False) for j in range(13)]
    check_records(
        many,
        [((i, (v,)), (j, (v,))) for i, j in itertools.combinations(range(13), 2) for v in labels],
    )


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        (
            {"determined": [{"column": "a", "by": "c", "mapping": {"1": "x", "1.0": "y"}}]},
            "maps '1' and '1.0'",
        ),
        (
            {"determined": [{"column": "a", "by": "c", "mapping": {"1": "x", "01": "y"}}]},
            "maps '1' and '01'",
        ),
        (
            {"determined": [{"column": "a", "by": "n", "mapping": {"1": "x", "1.0": "y"}}]},
            "maps '1' and '1.0'",
        ),
        (
            {"determined": [{"column": "a", "by": "t", "mapping": {"1": "x", "1e0": "y"}}]},
            "maps '1' and '1e0'",
        ),
        (
            {"determined": [{"column": "a", "by": "f", "mapping": {"true": "x", "yes": "y"}}]},
            "maps 'true' and 'yes'",
        ),
        ({"forbidden": [{"a": "x", "b": []}]}, "a list of values must not be empty"),
    ],
)
def test_two_spellings_of_one_and_nothing_are_refused(
    structure: dict[str, Any], words: str
) -> None:
    more = {
        "n": {"type": "number", "bounds": [0, 9], "bins": 3, "decimals": 0},
        "t": {"type": "category", "domain": "private"},
        "f": {"type": "boolean"},
    }
    with pytest.raises(InputError, match=words):
        configuration(columns={**COLUMNS, **more}, structure=structure)
