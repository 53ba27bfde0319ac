"""`plan --target`: what can be typed, and that the epsilon it names is the smallest that reaches the target."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.forecast.expected import (
    LAWS,
    ROWS,
    count_noise_alone,
    error_by_law,
    expected_errors,
    measured_epsilons,
    unmeasured,
)
from marginweave.forecast.target import (
    TWO_DIGITS,
    ErrorTarget,
    group_error,
    looked_at,
    parse_target,
    reaches,
    smallest_epsilon,
    target_forecast,
    with_epsilon,
)
from tests.support.configurations import PRIVATE, configuration

SIZES = (2, 3, 4, 4, 5, 6, 7, 9, 12, 3)


def wide(**changes: Any) -> Configuration:
    """Ten columns of unequal domains, with everything else left to `auto`."""
    columns = {f"c{i}": {"type": "category", "values": list(range(n)), "outside": "error"} for i, n in enumerate(SIZES)}
    return configuration(
        **{"columns": columns, "aggregate": None, "synthesize": None, "missing": [], "rows": 8000} | changes
    )


@given(
    columns=st.sampled_from(["pairs", "triples", "Pairs", "TRIPLES"]),
    most=st.integers(1, 9999),
    space=st.sampled_from([" ", "  ", "\t"]),
    gap=st.sampled_from(["", " "]),
    is_percent=st.booleans(),
)
def test_a_distance_is_read_as_it_was_written(columns: str, most: int, space: str, gap: str, is_percent: bool) -> None:
    written = f"within{space}{most / 100:.2f}{gap}%" if is_percent else f"TVD{space}{most / 10000:.4f}"
    found = parse_target(f" {columns}{space}{written} ")
    assert found.columns == (2 if columns.lower() == "pairs" else 3)
    assert found.most == pytest.approx(most / 10000)
    assert found.group == 0
    assert parse_target(str(found)).columns == found.columns, "what is printed can be typed"


@given(group=st.integers(2, 10**9 - 1), data=st.data())
def test_a_group_is_read_as_it_was_written(group: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, group - 1))
    found = parse_target(f"Groups of {group} within {most}")
    assert (found.group, found.most, found.columns) == (group, most, 1)


@given(st.text(max_size=40))
def test_no_text_is_anything_but_a_target_or_an_error(text: str) -> None:
    with suppress(InputError):
        assert parse_target(text).most > 0


@pytest.mark.parametrize(
    "text",
    [
        "", "pairs", "pairs within 5", "pears within 5 %", "pairs within -5 %", "pairs TVD 5", "pairs within 100 %",
        "pairs within 0 %", "triples TVD 0", "pairs within 5 % or so", "groups of 100 within 0", "groups of 20 within 20",
        "groups of 20 within 5 %", "groups of 1e3 within 5", "pairs within ٥ %", "pairs within nan %", "4-way within 5 %",
    ],
)  # fmt: skip
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--target"):
        parse_target(text)


def test_two_digits_are_all_there_are() -> None:
    assert tuple(sorted(set(TWO_DIGITS))) == TWO_DIGITS
    assert all(float(f"{epsilon:.2g}") == epsilon for epsilon in TWO_DIGITS)
    assert max(b / a for a, b in pairwise(TWO_DIGITS)) < 1.1001


@pytest.mark.parametrize("rows", [500, 4999, 5000, 48_842])
def test_more_epsilon_is_expected_to_be_nearer(rows: int) -> None:
    """Also where `auto` counts something else; and expected errors are at most 1."""
    least, most = measured_epsilons(rows)
    found = [
        expected_errors(wide(rows=rows, privacy__epsilon=epsilon)) for epsilon in (least, 0.31, 0.5, 0.8, 1, 2, most)
    ]
    for less, more in pairwise(found):
        assert less is not None
        assert more is not None
        assert 1 >= less.pairs > more.pairs > 0
        assert 1 >= less.triples > more.triples > more.pairs


@given(
    sizes=st.lists(st.integers(2, 99), min_size=2, max_size=40),
    rows=st.integers(*ROWS),
    share=st.floats(1e-6, 0.2),
    length=st.sampled_from([2, 3]),
)
def test_noise_values_and_few_rows_make_it_worse(sizes: list[int], rows: int, share: float, length: int) -> None:
    noise = share * rows  # of a count: at the least epsilon for the fewest rows it is a twentieth of them
    found = error_by_law(LAWS[length], sizes, noise, rows)
    assert 0 < found <= 1
    assert found <= error_by_law(LAWS[length], sizes, 1.1 * noise, rows)
    assert found <= error_by_law(LAWS[length], [size + 1 for size in sizes], noise, rows)
    assert found >= error_by_law(LAWS[length], sizes, noise, 2 * rows)


@pytest.mark.parametrize("text", ["pairs within 2 %", "triples TVD .05", "triples TVD .09", "groups of 100 within 20"])
def test_the_epsilon_is_the_smallest_of_two_digits(text: str) -> None:
    config, target = wide(), parse_target(text)
    found = smallest_epsilon(config, target)
    assert found is not None
    assert reaches(with_epsilon(config, found), target)
    assert not reaches(with_epsilon(config, TWO_DIGITS[TWO_DIGITS.index(found) - 1]), target)
    first, observer, own, *_ = target_forecast(config, target)
    assert first.startswith(
        f"Target {target}: epsilon {found:g} is the smallest that reaches it; at epsilon {found:g} "
    )
    assert f"At epsilon {found:g} the observer " in observer
    assert own.startswith("This configuration: at epsilon 1 ")


def test_the_target_is_met_with_the_law_itself() -> None:
    """The exact root of the law lies between the epsilon and the one before it."""
    config, target = wide(), ErrorTarget(columns=2, most=0.02)
    found = smallest_epsilon(config, target)
    assert found is not None
    sizes = SIZES
    at, before = (
        error_by_law(LAWS[2], sizes, count_noise_alone(with_epsilon(config, epsilon)), 8000)
        for epsilon in (found, TWO_DIGITS[TWO_DIGITS.index(found) - 1])
    )
    assert at <= 0.02 < before


def test_what_no_epsilon_reaches_is_said_with_what_would() -> None:
    first, remedy, own, _ = target_forecast(wide(rows=2000), ErrorTarget(columns=3, most=0.03))
    assert first.startswith(
        "Target triples within 3 %: no epsilon up to 3, the largest measured of so few rows, reaches it; at epsilon 3 "
    )
    assert remedy.startswith("At epsilon 3 about ")
    assert "rows would reach it; half as many columns: " in remedy
    rows = int(remedy.split("about ")[1].split(" ")[0].replace(",", ""))
    at = {n: error_by_law(LAWS[3], SIZES, count_noise_alone(wide(privacy__epsilon=3)), n) for n in (rows - 500, rows)}
    assert at[rows] <= 0.03 < at[rows - 500]
    assert own.startswith("This configuration: at epsilon 1 ")
    first, remedy, _ = target_forecast(wide(), ErrorTarget(columns=1, most=1, group=10))
    assert "no epsilon up to 10 reaches it" in first
    assert remedy.startswith("Fewer columns ")


def test_what_is_easy_is_reached_at_the_smallest_that_was_measured() -> None:
    first, *_ = target_forecast(wide(rows=48_000), ErrorTarget(columns=2, most=0.9))
    assert "epsilon 0.3, the smallest that was measured, reaches it" in first


@pytest.mark.parametrize(
    ("changes", "target", "why"),
    [
        ({"rows": None}, "pairs within 5 %", "say rows: N"),
        ({"rows": 60_000}, "pairs within 5 %", "500 to 48,842 rows, not 60,000"),
        ({"rows": 100}, "pairs within 5 %", "500 to 48,842 rows, not 100"),
        ({"columns__c0": PRIVATE}, "pairs within 5 %", "left to auto"),
        ({"columns__c0": PRIVATE}, "groups of 100 within 20", "no domain is private"),
        ({"aggregate": {"method": "k-tuples"}}, "triples TVD .1", "left to auto"),
        ({"aggregate": {"method": "k-tuples"}}, "groups of 100 within 20", "marginals are counted"),
        ({"synthesize": {"method": "gum"}}, "pairs within 5 %", "left to auto"),
    ],
)
def test_what_has_no_forecast_is_refused_with_why(changes: dict[str, Any], target: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        list(target_forecast(wide(**changes), parse_target(target)))


def test_nothing_is_expected_beyond_what_was_measured() -> None:
    few = configuration(aggregate=None, synthesize=None, rows=8000)
    assert "9 to 31 columns" in unmeasured(few, 8000)
    assert expected_errors(few) is None
    assert "epsilon, not 5" in unmeasured(wide(rows=1000, privacy__epsilon=5.0), 1000)
    assert "epsilon, not 0.2" in unmeasured(wide(privacy__epsilon=0.2), 8000)
    own = list(target_forecast(wide(privacy__epsilon=0.2), ErrorTarget(columns=2, most=0.05)))[2]
    assert own == "This configuration: at epsilon 0.2 nothing is forecast: it was not measured"


def test_a_group_that_is_merged_with_others_is_lost() -> None:
    """Below `compress` sigmas, 3 here, although 1.96 of them are less than the group."""
    config = wide()
    assert config.marginal_settings.compress == 3
    sigma = group_error(config, 10**6) / 1.96
    lost, kept = math.floor(2.9 * sigma), math.ceil(3.1 * sigma)
    assert group_error(config, lost) == lost
    assert math.isclose(group_error(config, kept), 1.96 * sigma)
    assert group_error(wide(privacy__epsilon=0.01), 5) == 5, "no more than all of it"


def test_a_distance_is_looked_for_where_it_was_measured() -> None:
    near = ErrorTarget(columns=2, most=0.1)
    assert (looked_at(wide(), near)[0], looked_at(wide(), near)[-1]) == (0.3, 10.0)
    assert looked_at(wide(rows=600), near)[-1] == 3.0
    assert looked_at(wide(), ErrorTarget(columns=1, most=2, group=9)) == TWO_DIGITS
