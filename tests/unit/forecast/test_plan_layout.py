"""The tables of a plan fit 100 columns, break no word, and have one number a cell, whatever is planned."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.forecast.layout import WIDTH, aligned, folded
from marginweave.forecast.overview import PlannedRelease, draw_rows, size_rows
from tests.support.configurations import PRIVATE, raw

NUMBER = re.compile(r"(?<![\w.])[\d.]*\d(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
LISTED = [["sex", "region"], ["age", "grade"]]
AGGREGATES: list[Any] = [
    None,
    {"method": "k-tuples"},
    {"method": "k-tuples", "sigma": "singles"},
    *(
        {"method": "marginals", "cliques": cliques}
        for cliques in (LISTED, {"all": 1}, {"all": 2}, {"all": 3}, "selected")
    ),
    {"method": "marginals", "cliques": {"adaptive": 4, "rounds": 20, "batch": 20}},
    {"method": "marginals", "cliques": {"adaptive": 2, "rounds": 100}},
    {"method": "marginals", "cliques": {"all": 2}, "noise": "laplace"},
    {"method": "marginals", "cliques": LISTED, "noise": "auto"},
]
UNITS: list[Any] = ["row", {"column": "id", "max_records": 400}]
BOUGHT = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}
LONG = {"type": "number", "bounds": "private", "within": [0, 10], "bins": 5}
COLUMNS: list[dict[str, Any]] = [
    {},
    {"columns__sex": PRIVATE},
    {"columns__age": BOUGHT},
    {f"columns__{'how long ' * 20}": LONG},
    {"columns__signs": {"type": "set", "values": [*"abcdefghij"], "max_values": 3}},
]


def plan_of(changes: dict[str, Any]) -> PlannedRelease | None:
    """Return the plan of a configuration, None where it is refused."""
    try:
        configuration = parse_configuration(raw(**changes))
        return PlannedRelease.of(configuration, lambda: pytest.fail("the ledger is asked"))
    except InputError:
        return None


def check_table(rows: list[list[str]], labels: int = 1) -> None:
    """Lines fit, hold every word of every cell, and no cell has two numbers; names of draws and heads have what they have."""
    lines = aligned(rows, labels=labels)
    assert max(len(line) for line in lines if line not in {row[0] for row in rows}) <= WIDTH
    words = {word for line in lines for word in line.split()}
    assert all(set(cell.split()) <= words for row in rows for cell in row)
    for row in rows[1:]:
        for cell in row[1:]:
            assert len(NUMBER.findall(cell)) <= 1, cell


@settings(max_examples=30)
@given(
    epsilon=st.sampled_from([0.05, 0.7, 10.0]),
    rows=st.sampled_from([None, 90, 48_842, 2_000_000_000]),
    aggregate=st.sampled_from(AGGREGATES),
    unit=st.sampled_from(UNITS),
    columns=st.sampled_from(COLUMNS),
    other=st.sampled_from(AGGREGATES),
)
def test_tables_of_a_plan_fit(
    epsilon: float, rows: int | None, aggregate: Any, unit: Any, columns: dict[str, Any], other: Any
) -> None:
    changes = {
        "privacy__epsilon": epsilon,
        "rows": rows,
        "privacy__unit": unit,
        **columns,
    }
    found = (plan_of({**changes, "aggregate": method}) for method in (aggregate, other))
    plans = {letter: plan for letter, plan in zip("AB", found, strict=True) if plan is not None}
    for plan in plans.values():
        check_table(draw_rows({"": plan}))
        if plan.sizes:
            check_table(size_rows(plan.sizes))
    if len(plans) == 2:
        check_table(draw_rows(plans), labels=2)


def test_noise_of_several_tables_is_two_lines_from_the_least_to_the_most() -> None:
    plan = plan_of({"aggregate": {"method": "marginals", "cliques": LISTED}, "rows": 5000})
    assert plan is not None
    table = draw_rows({"": plan})
    numbers = plan.numbers["marginals"]
    place = [row[0] for row in table].index("marginals")
    assert table[place][1] == f"sd {numbers['noise_sd_least']:.1f}"
    assert table[place + 1][:2] == ["… to", f"sd {numbers['noise_sd_most']:.1f}"]
    assert numbers["noise_sd_least"] < numbers["noise_sd_most"]
    assert len(plan.frame) == len(table) - 1


@given(
    st.lists(
        st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=130),
        max_size=30,
    )
)
def test_a_folded_line_keeps_its_words(words: list[str]) -> None:
    """In order; a line is longer than the width only if it is one word."""
    lines = folded(" ".join(words), WIDTH)
    assert [word for line in lines for word in line.split()] == words
    assert all(len(line) <= WIDTH or len(line.split()) == 1 for line in lines)


def test_columns_that_do_not_fit_follow_below_the_same_labels() -> None:
    """With the rows that have a cell there, and their plan."""
    rows = [
        ["draw", "", "noise", "more"],
        ["one", "A", "1", ""],
        ["one", "B", "2", "8"],
        ["two", "B", "3", ""],
    ]
    assert aligned(rows, labels=2, width=14) == [
        "draw     noise",
        "one   A  1",
        "one   B  2",
        "two   B  3",
        "draw     more",
        "one   B  8",
    ]
