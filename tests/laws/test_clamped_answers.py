"""An answer without a word on bounds is one of the values as they are, and not of those that count as a bound."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from marginweave.answers.codes import Codes, Group
from marginweave.configuration.columns.periods import WEEKDAYS
from marginweave.configuration.question import read_question
from marginweave.domain.labels import Domain
from tests.support.configurations import configuration

EDGES = st.lists(st.integers(0, 30), min_size=3, max_size=6, unique=True).map(sorted)
ALL = Group(labels={}, chosen=())
VALUES = range(-50, 90)


def codes_of(name: str, column: dict[str, Any]) -> Codes:
    """The codes of a table with one column."""
    config = configuration(columns={name: column})
    labels = tuple(attribute.labels for attribute in config.attributes)
    return Codes.of(config, Domain(names=(name,), labels=labels))


def said(codes: Codes, where: dict[str, Any], by: str | None = None) -> list[tuple[bool, bool]]:
    """Whether notes speak of values below, and above, the bounds: of each group of an answer."""
    question = read_question({"where": where, **({"by": by} if by else {})})
    deciding = codes.deciding_bounds(question)
    sides = []
    for group in codes.groups(question):
        words = " ".join(map(str, codes.notes_on_chosen_bounds(deciding, group)))
        sides.append(("below" in words or "before" in words, "above" in words or "after" in words))
    return sides


@st.composite
def conditions(
    draw: st.DrawFn, edges: list[int]
) -> tuple[dict[str, Any] | list[str], Callable[[int], bool]]:
    """A condition on a number with these edges, and what it says of a number."""
    kind = draw(st.sampled_from(["from", "below", "between", "to the end", "but", "labels"]))
    low, high = sorted(draw(st.lists(st.sampled_from(edges), min_size=2, max_size=2, unique=True)))
    assume(kind not in ("below", "between") or high < edges[-1])  # the last bin has its end
    if kind == "from":
        return {"from": low}, lambda value: value >= low
    if kind == "below":
        return {"below": high}, lambda value: value < high
    if kind == "between":
        return {"from": low, "below": high}, lambda value: low <= value < high
    if kind == "to the end":
        return {"from": low, "to": edges[-1]}, lambda value: low <= value <= edges[-1]
    bins = draw(st.lists(st.sampled_from(range(len(edges) - 1)), min_size=1, unique=True))

    def is_named(value: int) -> bool:
        return any(
            edges[i] <= value < edges[i + 1] or (i == len(edges) - 2 and value == edges[-1])
            for i in bins
        )

    last = len(edges) - 2
    labels = [f"[{edges[i]}, {edges[i + 1]}{']' if i == last else ')'}" for i in bins]
    return (
        ({"but": labels}, lambda value: not is_named(value))
        if kind == "but"
        else (labels, is_named)
    )


@given(st.data())
def test_a_condition_on_a_number_is_told_where_a_bound_decides_it(data: st.DataObject) -> None:
    """Whoever is counted as the bound and would not be as the number, or would be as the number and is not as the bound."""
    edges = data.draw(EDGES)
    codes = codes_of("age", {"type": "number", "bins": edges, "bounds": [edges[0], edges[-1]]})
    where, holds = data.draw(conditions(edges))
    below = any(holds(value) != holds(edges[0]) for value in VALUES if value < edges[0])
    above = any(holds(value) != holds(edges[-1]) for value in VALUES if value > edges[-1])
    assert said(codes, {"age": where}) == [(below, above)]


def test_groups_of_the_bins_at_the_bounds_are_told_and_open_ones_are_not() -> None:
    bounded = {"type": "number", "bins": [0, 10, 20, 30], "bounds": [0, 30]}
    groups = said(codes_of("age", bounded), {}, by="age")
    assert groups[:3] == [(True, False), (False, False), (False, True)]
    assert not any(map(any, groups[3:]))  # without a value
    opened = {"type": "number", "bins": [0, 10, 20, 30], "outer": "open"}
    assert not any(map(any, said(codes_of("age", opened), {}, by="age")))
    reaching = opened | {"bounds": [-5, 30]}  # a bin from -5 on, and none of 30 and more that ends
    assert said(codes_of("age", reaching), {}, by="age")[0] == (True, False)


@pytest.mark.parametrize("bins", ["month", "weekday"])
def test_dates_are_told_where_a_day_beyond_the_bounds_has_another_bin(bins: str) -> None:
    """A day of the week repeats, so that a date beyond the bounds may be one too many of any, or one too few."""
    first, last = date(2024, 1, 1), date(2024, 6, 30)
    column = {"type": "date", "bounds": [first.isoformat(), last.isoformat()], "bins": bins}
    codes = codes_of("seen", column)
    labels = WEEKDAYS if bins == "weekday" else [f"2024-{month:02d}" for month in range(1, 7)]
    beyond = [
        [first - timedelta(n) for n in range(1, 40)],
        [last + timedelta(n) for n in range(1, 40)],
    ]
    for label in labels:
        expected = []
        for days, bound in zip(beyond, (first, last), strict=True):
            counted = _label(bound, bins) == label
            expected.append(any((_label(day, bins) == label) != counted for day in days))
        assert said(codes, {"seen": [label]}) == [tuple(expected)]


def _label(day: date, bins: str) -> str:
    """The bin that a day has."""
    return WEEKDAYS[day.weekday()] if bins == "weekday" else day.strftime("%Y-%m")
