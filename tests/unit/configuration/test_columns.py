"""Kinds of columns and structure: what is refused, with one sentence that names the key, and what is public of the rest."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.columns import DateColumn, NumberColumn
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import parse_yaml
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration, raw

DATE = {"type": "date", "bounds": ["2019-01-01", "2019-12-31"], "bins": "month"}
SET = {"type": "set", "values": ["a", "b"], "max_values": 2}
PRIVATE = {"type": "number", "bounds": "private", "within": [0, 1000], "bins": 10}
REFUSED = [
    ({**DATE, "bins": "decade"}, "columns.x.bins (decade) must be one of year, quarter, month, week, weekday"),
    ({**DATE, "bounds": None}, "columns.x needs bounds [first, last]"),
    ({**DATE, "bounds": ["2019-13-01", "2020-01-01"]}, "columns.x has a bound or an edge that is no date"),
    ({**DATE, "bounds": ["2019-12-31", "2019-01-01"]}, "columns.x has bounds whose first must not come after their last"),
    ({**DATE, "bounds": ["2019-01-01", "2019-01-06"], "bins": "weekday"}, "columns.x has bounds that do not hold every"),
    ({**DATE, "bins": ["2019-01-01", "2019-06-01"]}, "columns.x has bins that do not begin and end at its bounds"),
    ({**DATE, "format": "%Y-%m-%dT%H:%M%z"}, "must be a strptime format of"),
    ({**DATE, "format": "%Y"}, "columns.x has a format (%Y) that is too coarse for its bins"),
    ({**DATE, "format": "%d.%m.%y", "bounds": ["1950-01-01", "2019-01-01"]}, "columns.x has a format with %y"),
    ({**DATE, "format": "%d.%m.%Y", "bounds": ["0950-01-01", "2019-01-01"]}, "bounds before the year 1000"),
    ({**DATE, "draw": {"edges": [0, 1], "weights": [1]}}, "columns.x has a draw that is neither uniform nor midpoint"),
    ({**SET, "max_values": 0}, "columns.x.max_values (0) must be at least 1"),
    ({**SET, "max_values": 65}, "columns.x.max_values (65) must be at most 64"),
    ({**SET, "separator": ""}, "columns.x has an empty separator"),
    ({**SET, "values": ["a;b"]}, "columns.x declares a value that is empty or holds the separator"),
    ({**SET, "domain": "private"}, "columns.x has both values and domain: private"),
    ({"type": "boolean", "true_values": [True]}, 'columns.x.true_values ([true]) must be texts, and YAML can read yes and no'),
    ({"type": "boolean", "true_values": "yes"}, "columns.x.true_values (yes) must be a list of texts, such as [a, b]"),
    ({"type": "boolean", "true_values": []}, "columns.x needs at least one spelling in true_values"),
    ({"type": "category", "values": ["a", "(missing)"]}, "columns.x declares '(missing)', which is the name of cells without"),
    ({"type": "set", "separator": ";", "values": ["(not as declared)"], "max_values": 1}, "columns.x declares '(not as"),
    ({"type": "category", "values": ["a"], "titles": {"a": "(not released)"}}, "columns.x has the title '(not released)'"),
    ({"type": "category", "values": ["f"], "same": {"F": "g"}}, "columns.x has same, in which 'F' means 'g', which is none of"),
    ({"type": "category", "values": ["f", "F"], "same": {"F": "f"}}, "columns.x has same with 'F', which is the value 'F' al"),
    ({"type": "category", "values": ["a", "b"], "same": {" x ": "a", "x": "b"}}, "must name each spelling once"),
    ({"type": "category", "values": ["1"], "same": {"1.0": "1"}}, "columns.x has same with '1.0', which is the value '1' al"),
    ({"type": "category", "values": ["f"], "same": {"": "f"}, "missing": [""]}, "columns.x declares '' as a value and as"),
    ({"type": "category", "values": ["f"], "same": {"(missing)": "f"}}, "columns.x has same with '(missing)', which is"),
    ({"type": "category", "values": ["f"], "same": ["F"]}, "columns.x.same ([F]) must be a mapping of other spellings"),
    ({"type": "category", "domain": "private", "same": {"F": "f"}}, "columns.x has same, which needs declared values"),
    ({"type": "boolean", "true_values": ["J", "N"], "false_values": ["n"]}, "columns.x declares a value twice: 'n' and 'n'"),
    ({"type": "boolean", "true_values": [""], "false_values": ["n"]}, "columns.x declares '' as a value and as missing"),
    ({"type": "identifier"}, "columns has no column that is counted"),
    ({"type": "constant"}, "columns.x.value is required"),
    ({**PRIVATE, "within": None}, "columns.x needs within [minimum, maximum] for bounds: private"),
    ({**PRIVATE, "bounds": [0, 1]}, "columns.x needs within [minimum, maximum] for bounds: private, and has no use"),
    ({**PRIVATE, "bins": [0, 1, 2]}, "columns.x needs a count of bins for bounds: private"),
    ({**PRIVATE, "within": [0, 15], "decimals": 0}, "columns.x has a range within (0, 15) too narrow for its bins"),
    ({**PRIVATE, "within": [5, 5]}, "columns.x has within (5, 5): the minimum must be below the maximum"),
    ({"type": "number", "bins": {"min": 0, "max": 9}}, "columns.x.bins.step is required"),
    ({"type": "number", "bins": {"min": 9, "max": 0, "step": 1}}, "has bins whose min (9) must be below their max (0)"),
    ({"type": "number", "bins": [0, 5], "outer": "open", "bounds": [1, 9]}, "columns.x has bins that do not lie within"),
    ({"type": "number", "bins": [0, 5], "draw": {"edges": [0], "weights": []}}, "must have one edge more than weights"),
    ({"type": "number", "bins": [0, 5], "draw": "mean"}, "columns.x.draw (mean) must be one of smooth, uniform, log-uniform"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "words"), REFUSED)
def test_a_column_that_breaks_a_rule_is_refused(column: dict, words: str) -> None:
    with pytest.raises(InputError) as refusal:
        configuration(columns={"x": column})
    assert words in str(refusal.value)


RULE = {"column": "grade", "by": "sex", "mapping": {"f": "1"}}
STRUCTURES = [
    ({"determined": [{**RULE, "by": "grade"}]}, "structure.determined computes 'grade' by 'grade'"),
    ({"determined": [{**RULE, "mapping": {"x": "1"}}]}, "structure.determined maps 'x', which is no value of 'sex'"),
    ({"determined": [{**RULE, "default": "8"}]}, "gives 'grade' the value '8', which it does not declare"),
    ({"forbidden": [{"sex": "f", "colour": "1"}]}, "structure names 'colour', which is not among columns"),
    ({"forbidden": [{"sex": "f"}]}, "structure.forbidden, entry 1 ({sex: f}) must be a mapping of two or more columns"),
    ({"forbidden": [{"sex": "f", "grade": "8"}]}, "structure names '8', which is no value of column 'grade'"),
    ({"forbidden": [{"sex": "f", "grade": "1"}], "determined": [RULE]}, "structure.forbidden names 'grade', which rules can"),
]  # fmt: skip


@pytest.mark.parametrize(
    "aggregate", [None, {"method": "k-tuples"}, {"method": "marginals"}], ids=str
)
@pytest.mark.parametrize(("structure", "words"), STRUCTURES)
def test_a_structure_that_does_not_fit_is_refused(
    structure: dict, words: str, aggregate: dict | None
) -> None:
    """In the same words, whatever is counted."""
    free = {"type": "category", "domain": "private"}
    with pytest.raises(InputError) as refusal:
        configuration(structure=structure, columns__free=free, aggregate=aggregate)
    assert words in str(refusal.value)
    assert not str(refusal.value).startswith("aggregate")


def test_attributes_are_what_is_counted() -> None:
    """Dropped and determined columns are neither read nor counted."""
    config = configuration(
        columns__id={"type": "identifier"}, columns__c={"type": "constant", "value": "x"}, columns__s=SET,
        structure={"determined": [RULE]},
    )  # fmt: skip
    assert [a.name for a in config.attributes] == ["sex", "region", "age", "s"]
    assert config.names == ("sex", "region", "age", "s")
    assert config.output_names == ("sex", "region", "age", "grade", "c", "s")
    assert (
        config.can_be_missing("grade"),
        config.can_be_missing("sex"),
        config.can_be_missing("c"),
    ) == (
        True,
        True,
        False,
    )
    assert [config.contribution_cap(k) for k in (1, 2, 3)] == [5, 9, 7]
    assert Configuration.from_canonical(config.canonical()).digest == config.digest


def test_every_kind_survives_its_canonical_form() -> None:
    config = configuration(columns={name: column for name, (column, _) in KINDS.items()})
    again = Configuration.from_canonical(config.canonical())
    assert (again == config) is True
    assert again.canonical() == config.canonical()


def test_codes_are_read_as_written_in_yaml() -> None:
    """no, 01 and 12:30 survive wherever a value is named; dates need no quotes."""
    text = """
a: {type: boolean, true_values: [yes, 01], false_values: [no]}
b: {type: date, bounds: [2019-01-01, 2019-12-31], bins: [2019-01-01, 2019-07-01, 2019-12-31], format: "%Y%m%d"}
c: {type: constant, value: 007}
structure: {determined: [{column: c, by: a, mapping: {no: 01}, default: 12:30}]}
"""
    found = parse_yaml(text)
    assert found["a"] == {"type": "boolean", "true_values": ["yes", "01"], "false_values": ["no"]}
    assert found["b"]["bounds"] == ["2019-01-01", "2019-12-31"]
    assert (found["b"]["format"], found["c"]["value"]) == ("%Y%m%d", "007")
    assert found["structure"]["determined"][0] == {
        "column": "c",
        "by": "a",
        "mapping": {"no": "01"},
        "default": "12:30",
    }


def test_calendar_bins() -> None:
    """Bins begin at the bounds and at every period inside; a last day of moments counts to its end."""
    quarter = DateColumn(type="date", bounds=("2019-02-10", "2020-01-01"), bins="quarter")
    assert quarter.labels == ("2019-Q1", "2019-Q2", "2019-Q3", "2019-Q4", "2020-Q1")
    week = DateColumn(type="datetime", bounds=("2020-12-31", "2021-01-04"), bins="week")
    assert week.labels == ("2020-W53", "2021-W01")
    assert [high - low for low, high in pairwise(week.edges)] == [4 * 86400, 86400]
    listed = DateColumn(type="date", bins=("2019-01-01", "2019-01-02", "2019-01-05"))
    assert listed.labels == ("[2019-01-01, 2019-01-02)", "[2019-01-02, 2019-01-05]")
    assert [high - low for low, high in pairwise(listed.edges)] == [1, 4]


def test_open_bins_reach_to_the_bounds_or_as_far_as_their_neighbor() -> None:
    assert NumberColumn(type="number", bins=(0, 10, 30), outer="open").edges == (-10, 0, 10, 30, 50)
    wide = NumberColumn(type="number", bins=(0, 10, 30), outer="open", bounds=(-5, 100))
    assert wide.edges == (-5, 0, 10, 30, 100)
    assert wide.labels == ("< 0", "[0, 10)", "[10, 30)", "≥ 30")
    steps = NumberColumn.model_validate(
        {"type": "number", "bins": {"min": 0, "max": 0.7, "step": 0.1}}
    )
    assert steps.edges == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


@given(
    st.tuples(st.floats(-1e6, 1e6), st.floats(0.01, 1e6)),
    st.integers(1, 60),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([None, "open"]),
    st.data(),
)
def test_whatever_bounds_are_released_the_column_can_be_divided(
    within: tuple[float, float],
    bins: int,
    decimals: int | None,
    outer: str | None,
    data: st.DataObject,
) -> None:
    """with_bounds never fails for two candidates in order, keeps the number of bins, and stays inside the public range."""
    low, high = within[0], within[0] + within[1]
    declared = {
        "type": "number",
        "bounds": "private",
        "within": [low, high],
        "bins": bins,
        "decimals": decimals,
    }
    try:
        column = parse_configuration(raw(columns={"x": {**declared, "outer": outer}})).columns["x"]
    except InputError:
        return
    assert isinstance(column, NumberColumn)
    candidates = column.bound_candidates
    assert 1 < len(candidates) <= 10_000
    assert all(a < b for a, b in pairwise(candidates))
    i, j = sorted(data.draw(st.tuples(*[st.integers(0, len(candidates) - 1)] * 2)))
    resolved = column.with_bounds(candidates[i], candidates[j])
    assert len(resolved.labels) == len(column.labels)
    assert isinstance(resolved.bounds, tuple)
    assert resolved.bounds[0] <= candidates[i] + 1e-9 * abs(high)
    assert resolved.bounds[1] >= candidates[j] - 1e-9 * abs(high)
