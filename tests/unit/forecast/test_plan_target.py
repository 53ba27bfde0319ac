"""`plan --target`: what can be typed, and that the epsilon it names is the smallest that reaches the target."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.forecast.expected import (
    COLUMNS,
    EPSILONS,
    LAWS,
    NOISE,
    ROWS,
    VALUES,
    by_law,
    columns_error,
    count_noise_alone,
    expected_errors,
    noise_error,
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
    columns = {
        f"c{i}": {"type": "category", "values": list(range(n)), "outside": "error"}
        for i, n in enumerate(SIZES)
    }
    return configuration(
        **{"columns": columns, "aggregate": None, "synthesize": None, "missing": [], "rows": 8000}
        | changes
    )


def target_lines(config: Configuration, target: ErrorTarget) -> list[str]:
    """Return the sentences on a target."""
    return [str(sentence) for sentence in target_forecast(config, target)]


@given(
    columns=st.sampled_from(["pairs", "triples", "Pairs", "TRIPLES"]),
    most=st.integers(1, 9999),
    space=st.sampled_from([" ", "  ", "\t"]),
    gap=st.sampled_from(["", " "]),
    is_percent=st.booleans(),
)
def test_a_distance_is_read_as_it_was_written(
    columns: str, most: int, space: str, gap: str, is_percent: bool
) -> None:
    written = (
        f"within{space}{most / 100:.2f}{gap}%" if is_percent else f"TVD{space}{most / 10000:.4f}"
    )
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


@pytest.mark.parametrize("rows", [1_000, 4999, 5000, 48_842])
def test_more_epsilon_is_expected_to_be_nearer(rows: int) -> None:
    """Also where `auto` counts something else; the number is in its range, and errors are at most 1."""
    found = [
        expected_errors(wide(rows=rows, privacy__epsilon=e), rows)
        for e in (0.3, 0.31, 0.5, 0.8, 1, 2, 10)
    ]
    for less, more in pairwise(found):
        assert less is not None
        assert more is not None
        for one, other in zip(less, more, strict=True):
            assert 1 >= one.low > other.low > 0
            assert 1 >= one.error > other.error
            assert 1 >= one.high > other.high
        assert more.triples.error > more.pairs.error


@given(
    sizes=st.lists(st.integers(2, 99), min_size=COLUMNS[0], max_size=COLUMNS[1]),
    rows=st.integers(ROWS[0], ROWS[1] // 2),
    share=st.floats(1e-5, 0.05),
    length=st.sampled_from([2, 3]),
)
def test_noise_values_and_few_rows_make_it_worse(
    sizes: list[int], rows: int, share: float, length: int
) -> None:
    # of a count: at the least epsilon for the fewest rows it is a twentieth of them
    noise = share * rows
    law = LAWS[length]

    def at(noise: float, rows: int) -> tuple[float, ...]:
        return tuple(by_law(law, noise_error(sizes, noise, rows), sizes, rows))

    error, low, high = at(noise, rows)
    assert 0 < low <= error <= high <= 1, "the range holds the number"
    assert all(
        one <= other for one, other in zip((error, low, high), at(1.1 * noise, rows), strict=True)
    )
    assert all(
        one >= other for one, other in zip((error, low, high), at(noise, 2 * rows), strict=True)
    )
    more = by_law(
        law,
        noise_error([size + 1 for size in sizes], noise, rows),
        [size + 1 for size in sizes],
        rows,
    )
    assert error <= more.error


def test_the_distance_of_columns_is_that_of_noise() -> None:
    """Of a column alone that has the whole budget: 400 tables of noise, whose mean is off by less than 2 % at 5 sd."""
    rng, sizes, noise, rows = np.random.default_rng(3), (4, 9, 30), 20.0, 10_000
    made = []
    for size in sizes:
        sigma = noise * math.sqrt(sum(s ** (2 / 3) for s in sizes)) / size ** (1 / 3)
        made.append(np.abs(rng.normal(0, sigma, (4000, size))).sum(axis=1).mean() / 2 / rows)
    assert noise_error(sizes, noise, rows) == pytest.approx(np.mean(made), rel=0.02)


@pytest.mark.parametrize(
    "text", ["pairs within 2 %", "triples TVD .05", "triples TVD .06", "groups of 100 within 20"]
)
def test_the_epsilon_is_the_smallest_of_two_digits(text: str) -> None:
    config, target = wide(), parse_target(text)
    found = smallest_epsilon(config, target)
    assert found is not None
    assert reaches(with_epsilon(config, found), target)
    assert not reaches(with_epsilon(config, TWO_DIGITS[TWO_DIGITS.index(found) - 1]), target)
    first, observer, *more = target_lines(config, target)
    own = more[0] if target.group else more[1]
    assert first.startswith(
        f"Target {target}: epsilon {found:g} is the smallest that reaches it; at epsilon {found:g} "
    )
    assert f"At epsilon {found:g} the observer " in observer
    assert own.startswith("This configuration: at epsilon 1 ")


@pytest.mark.parametrize("is_sure", [False, True])
def test_the_target_is_met_with_the_law_itself(is_sure: bool) -> None:
    """The exact root of the law lies between the epsilon and the one before it; nine of ten tables need more."""
    config, target = wide(), ErrorTarget(columns=2, most=0.03)
    found = smallest_epsilon(config, target, is_sure=is_sure)
    assert found is not None
    errors = [
        by_law(
            LAWS[2],
            noise_error(SIZES, count_noise_alone(with_epsilon(config, epsilon)), 8000),
            SIZES,
            8000,
        )
        for epsilon in (found, TWO_DIGITS[TWO_DIGITS.index(found) - 1])
    ]
    at, before = (error.high if is_sure else error.error for error in errors)
    assert at <= 0.03 < before
    assert is_sure is (found != smallest_epsilon(config, target))


def test_an_even_chance_is_said_with_what_most_tables_need() -> None:
    config, target = wide(), ErrorTarget(columns=2, most=0.03)
    _, _, sure, *_ = target_lines(config, target)
    needed = smallest_epsilon(config, target, is_sure=True)
    assert sure == (
        f"That is about an even chance; nine of ten tables of our benchmarks would reach it with epsilon {needed:g}"
    )
    at_most = expected_errors(with_epsilon(config, EPSILONS[1]), 8000)
    assert at_most is not None
    hardly = ErrorTarget(columns=2, most=1.01 * at_most.pairs.error)
    _, _, sure, *_ = target_lines(config, hardly)
    assert sure == "That is about an even chance; no epsilon up to 10 makes it nine of ten"


def test_what_no_epsilon_reaches_is_said_with_what_would() -> None:
    first, remedy, own, _ = target_lines(wide(rows=2000), ErrorTarget(columns=3, most=0.03))
    assert first.startswith(
        "Target triples within 3 %: no epsilon up to 10 reaches it; at epsilon 10 "
    )
    assert remedy.startswith("At epsilon 10 about ")
    assert "rows would reach it; half as many columns: " in remedy
    rows = int(remedy.split("about ")[1].split(" ")[0].replace(",", ""))
    noise = count_noise_alone(wide(privacy__epsilon=10.0))
    at = {
        n: by_law(LAWS[3], noise_error(SIZES, noise, n), SIZES, n).error for n in (rows - 500, rows)
    }
    assert at[rows] <= 0.03 < at[rows - 500]
    assert own.startswith("This configuration: at epsilon 1 ")
    first, remedy, _ = target_lines(wide(), ErrorTarget(columns=1, most=1, group=10))
    assert "no epsilon up to 10 reaches it" in first
    assert remedy.startswith("Fewer columns ")


def test_no_remedy_is_said_of_what_was_not_measured() -> None:
    """Half of the fewest columns that were measured are too few."""
    target = ErrorTarget(columns=3, most=0.001)
    _, remedy, *_ = target_lines(wide(columns=columns(*COLUMNS[0] * [9]), rows=2_000), target)
    assert "half as many columns" not in remedy
    assert "half as many values in each: " in remedy
    _, remedy, *_ = target_lines(wide(columns=columns(*(2 * COLUMNS[0]) * [9]), rows=2_000), target)
    assert "half as many columns: " in remedy


def test_what_is_easy_is_reached_at_the_smallest_that_was_measured() -> None:
    first, *_ = target_lines(wide(rows=48_000), ErrorTarget(columns=2, most=0.9))
    assert "epsilon 0.3, the smallest that was measured, reaches it" in first


@pytest.mark.parametrize(
    ("changes", "target", "why"),
    [
        ({"rows": None}, "pairs within 5 %", "say rows: N"),
        ({"rows": 100_000}, "pairs within 5 %", f"500 to {ROWS[1]:,} rows, not 100,000"),
        ({"rows": 100}, "pairs within 5 %", f"500 to {ROWS[1]:,} rows, not 100"),
        ({"columns__c0": PRIVATE}, "pairs within 5 %", "left to auto"),
        ({"columns__c0": PRIVATE}, "groups of 100 within 20", "no domain is private"),
        ({"aggregate": {"method": "k-tuples"}}, "triples TVD .1", "left to auto"),
        ({"aggregate": {"method": "k-tuples"}}, "groups of 100 within 20", "marginals are counted"),
        ({"synthesize": {"method": "gum"}}, "pairs within 5 %", "left to auto"),
    ],
)
def test_what_has_no_forecast_is_refused_with_why(
    changes: dict[str, Any], target: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        list(target_forecast(wide(**changes), parse_target(target)))


def columns(*sizes: int) -> dict[str, Any]:
    """So many columns of such sizes."""
    return {
        f"c{i}": {"type": "category", "values": list(range(n)), "outside": "error"}
        for i, n in enumerate(sizes)
    }


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"columns": columns(3, 4, 5, 6)}, f"{COLUMNS[0]} to {COLUMNS[1]} columns, not 4"),
        ({"columns": columns(*(COLUMNS[1] + 1) * [3])}, f"columns, not {COLUMNS[1] + 1}"),
        (
            {"columns": columns(*9 * [40])},
            f"2 to {VALUES[1]:g} values in the median column, not 40",
        ),
        ({"privacy__epsilon": 0.2}, "epsilon, not 0.2"),
        ({"privacy__epsilon": 10.1}, "epsilon, not 10.1"),
        ({"rows": 499}, "rows, not 499"),
        ({"rows": ROWS[1] + 1}, f"rows, not {ROWS[1] + 1:,}"),
        (
            {"columns": columns(*31 * [15]), "rows": 500, "privacy__epsilon": 0.3},
            "by which noise alone puts",
        ),
        (
            {"columns": columns(*5 * [2]), "rows": 90_000, "privacy__epsilon": 10.0},
            "by which noise alone puts",
        ),
        ({"aggregate": {"method": "marginals", "cliques": {"all": 2}}}, "left to auto"),
        ({"synthesize": {"method": "mixture", "fits": 3}}, "left to auto"),
        ({"columns__c1": {"type": "set", "values": ["a", "b"], "max_values": 2}}, "left to auto"),
    ],
)
def test_nothing_is_expected_beyond_what_was_measured(changes: dict[str, Any], why: str) -> None:
    config = wide(**changes)
    rows = config.rows
    assert rows is not None
    assert why in unmeasured(config, rows)
    assert expected_errors(config, rows) is None


def test_where_nothing_is_forecast_it_is_said() -> None:
    own = target_lines(wide(privacy__epsilon=0.2), ErrorTarget(columns=2, most=0.05))[3]
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
    """Between the epsilons, and where noise alone puts columns as far as in the tables that were measured."""
    near = ErrorTarget(columns=2, most=0.1)
    assert (looked_at(wide(), near)[0], looked_at(wide(), near)[-1]) == EPSILONS
    noisy = wide(columns=columns(*31 * [15]), rows=500)
    found = looked_at(noisy, near)
    assert EPSILONS[0] < found[0] < found[-1] == EPSILONS[1]
    before = TWO_DIGITS[TWO_DIGITS.index(found[0]) - 1]
    distances = [columns_error(with_epsilon(noisy, epsilon), 500) for epsilon in (before, found[0])]
    assert distances[0] > NOISE[1] >= distances[1]
    assert looked_at(wide(), ErrorTarget(columns=1, most=2, group=9)) == TWO_DIGITS
