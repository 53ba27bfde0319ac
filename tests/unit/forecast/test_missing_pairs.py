"""`plan` says which pairs will not be measured, as far as that follows from the configuration, and what would measure them."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.forecast.delta import delta_forecast, usual_delta
from marginweave.forecast.missing_pairs import missing_pairs, pairs_forecast, population_forecast
from marginweave.forecast.sizes import size_forecast
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.selection import declared_cliques
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.released.verdict import GOOD
from marginweave.runs.limits import check_size
from tests.support.configurations import PRIVATE, configuration, raw

PAIRS = set(itertools.combinations(("sex", "region", "age", "grade"), 2))
SET = {"type": "set", "values": [*"abcdefghij"], "max_values": 2}
NUMBERS = {
    f"columns__n{i}": {"type": "number", "bounds": [0, 100], "bins": 20, "decimals": 0}
    for i in range(3)
}


def binary(columns: int, **changes: Any) -> dict[str, Any]:
    """Return a configuration of so many columns of two values, left to `auto`."""
    domains = {f"item_{place}": {"type": "category", "values": [0, 1]} for place in range(columns)}
    return raw(columns=domains, aggregate=None, **changes)


def measured_pairs(config: Configuration) -> set[tuple[str, str]]:
    """Return the pairs of names that the declared marginals hold, one by one."""
    settings_of_marginals = config.marginal_settings
    levels = settings_of_marginals.levels(public_sizes(config), config.attributes)
    names = [attribute.name for attribute in config.attributes]
    measured: set[tuple[str, str]] = set()
    for clique in declared_cliques(settings_of_marginals, config.attributes, public_sizes(config)):
        places = [
            place if place < len(names) else levels.of[place - len(names)].place for place in clique
        ]
        measured |= set(itertools.combinations([names[place] for place in sorted(places)], 2))
    return measured


def test_pairs_that_are_spread_over_many_columns_are_named_and_what_they_keep_is_said() -> None:
    """How many are left out follows from the configuration; to name some leaves the spread ones out."""
    config = parse_configuration(binary(120, rows=2_000))
    pairs = missing_pairs(config)
    assert pairs.pairs == math.comb(120, 2)
    assert pairs.missing == pairs.pairs - 4_000
    assert pairs.is_decided
    assert len(measured_pairs(config)) == 4_000
    assert measured_pairs(config).isdisjoint(pairs.named)
    assert pairs.change["aggregate"]["one_way_share"] == config.marginal_settings.one_way_share
    missing, line, *_ = map(str, pairs_forecast(config))
    assert "3,140 of 7,140" in missing
    assert "a common factor, can survive" in " ".join(missing.split())
    assert "no others are measured" in line


@pytest.mark.parametrize(
    "cliques",
    [
        [["sex", "age"]],
        [["sex", "age", "grade"], ["region", "sex"]],
        {"all": 1},
        {"all": 2},
        {"all": 2, "max_cells": 24},
        {"all": 3, "max_cells": 72},
        {"all": 3, "coarsen": 900},
    ],
)
def test_the_missing_pairs_are_those_that_no_declared_marginal_holds(cliques: Any) -> None:
    config = configuration(aggregate={"method": "marginals", "cliques": cliques}, **NUMBERS)
    measured = measured_pairs(config) if cliques != {"all": 1} else set()
    names = [attribute.name for attribute in config.attributes]
    unmeasured = set(itertools.combinations(names, 2)) - measured
    missing = missing_pairs(config)
    assert (missing.pairs, missing.missing, missing.is_decided) == (21, len(unmeasured), True)
    assert set(missing.named) <= unmeasured
    assert len(missing.named) == min(3, len(unmeasured))


@pytest.mark.parametrize(("length", "missing"), [(1, 6), (2, 0), (None, 0)])
def test_k_tuples_measure_all_pairs_or_none(length: int | None, missing: int) -> None:
    pairs = missing_pairs(
        configuration(aggregate={"method": "k-tuples", "reporting_length": length})
    )
    assert (pairs.missing, pairs.is_decided) == (missing, True)


@pytest.mark.parametrize(
    ("cliques", "missing"),
    [
        ({"adaptive": 2, "rounds": 2, "batch": 1}, 4),
        ({"adaptive": 3, "rounds": 1, "batch": 1}, 3),
        ({"adaptive": 2, "rounds": 16, "batch": 4}, 0),
        ({"adaptive": 2, "rounds": 16, "batch": 4, "max_cells": 30}, None),
        ("selected", 0),
    ],
)
def test_of_draws_only_what_they_cannot_measure_is_said(cliques: Any, missing: int | None) -> None:
    """As many as the rounds leave at least, or as have too many cells; which, nobody knows."""
    config = configuration(aggregate={"method": "marginals", "cliques": cliques})
    if missing is None:
        missing = sum(
            one * other > 30 for one, other in itertools.combinations(public_sizes(config), 2)
        )
        assert 0 < missing < 6
    pairs = missing_pairs(config)
    assert (pairs.missing, pairs.is_decided) == (missing, False)
    text = " ".join(map(str, pairs_forecast(config)))
    assert "follows from draws" in text
    assert ("at least" in text) is bool(missing)


def test_below_the_number_of_records_that_decides_draws_choose() -> None:
    """The plan says both, as nobody knows the number before the first draw; and of which rows its errors are."""
    config = configuration(aggregate=None, rows=None)
    least = config.marginal_settings.least_records
    assert least is not None
    pairs = missing_pairs(config)
    assert (pairs.is_decided, pairs.least_records, bool(pairs.change)) == (False, least, True)
    text = " ".join(map(str, pairs_forecast(config)))
    assert f"with {least:,} records or more" in text
    assert "which noisy scores choose" in text
    assert f"fewer than {least:,} records" in str(population_forecast(config)[0])
    in_run = [str(size.pairs) == "chosen in the run" for size in size_forecast(config)]
    assert in_run == [size.rows < least for size in size_forecast(config)]
    declared = configuration(aggregate=None, rows=5000)
    assert (missing_pairs(declared).is_decided, population_forecast(declared)) == (True, [])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"aggregate": {"method": "marginals", "cliques": {"all": 2}}}, None),
        (
            {"aggregate": {"method": "marginals", "cliques": {"adaptive": 2}}},
            "as the rows choose which are measured together",
        ),
        (
            {"aggregate": {"method": "marginals", "cliques": "selected"}},
            "as the rows choose which are measured together",
        ),
        (
            {"columns__age__impute": {"distribution": "uniform"}},
            "cells of age without a value hold draws",
        ),
    ],
)
def test_what_is_not_claimed_of_a_population_is_said(
    changes: dict[str, Any], word: str | None
) -> None:
    """Where `query` would refuse a question of the population, or claim no coverage for it."""
    said = [str(sentence) for sentence in population_forecast(configuration(**changes))]
    assert [word in sentence for sentence in said if word] == [True] * (word is not None)
    assert len(said) == (word is not None)


def test_ordinary_columns_are_named_before_values_of_sets() -> None:
    """The columns of the table first, each once before any twice."""
    config = configuration(
        aggregate={"method": "marginals", "cliques": {"adaptive": 2}}, columns__signs=SET
    )
    named = missing_pairs(config).named
    assert set(named) <= PAIRS
    assert len(set(itertools.chain.from_iterable(named[:2]))) == 4
    alone = configuration(
        columns={"sex": {"type": "category", "values": ["f", "m"]}, "signs": SET},
        aggregate={"method": "marginals", "cliques": {"adaptive": 2}},
    )
    assert all(pair[0] == "sex" for pair in missing_pairs(alone).named)


@settings(max_examples=40)
@given(
    aggregate=st.sampled_from(
        [
            None,
            {"method": "k-tuples", "reporting_length": 1},
            {"method": "k-tuples", "reporting_length": 1, "sigma": "singles"},
            {
                "method": "marginals",
                "cliques": [["sex", "age"]],
                "noise": "laplace",
                "one_way_share": 0.4,
            },
            {"method": "marginals", "cliques": {"all": 1}, "noise": "auto"},
            {"method": "marginals", "preset": "paper"},
            {
                "method": "marginals",
                "cliques": {"adaptive": 3, "max_cells": 10},
                "selection_share": 0.2,
            },
        ]
    ),
    synthesize=st.sampled_from(
        [None, {"method": "gum"}, {"method": "aggregate-seeded"}, {"method": "mixture"}]
    ),
    epsilon=st.sampled_from([0.05, 1.0]),
    columns=st.sampled_from(
        [{}, {"columns__sex": PRIVATE}, {"columns__signs": SET}, {"columns__a, b: [c]": SET}]
    ),
)
def test_the_line_is_accepted_and_measures_what_is_named(
    aggregate: Any, synthesize: Any, epsilon: float, columns: dict[str, Any]
) -> None:
    """Read as YAML, in the place of the section, it is a configuration that runs and that lacks none of the named pairs."""
    from marginweave.base.errors import InputError
    from marginweave.configuration.yaml_source import parse_yaml

    written = raw(privacy__epsilon=epsilon, aggregate=aggregate, synthesize=synthesize, **columns)
    try:
        config = parse_configuration(written)
    except InputError:
        return
    pairs = missing_pairs(config)
    if not pairs.change:
        return
    assert parse_yaml(pairs.line) == pairs.change
    followed = parse_configuration({**written, **parse_yaml(pairs.line)})
    check_size(followed)
    after = missing_pairs(followed)
    assert after.is_decided or columns.get("columns__sex") == PRIVATE
    assert after.missing <= max(pairs.missing, pairs.pairs - len(pairs.named))
    assert followed.marginals is None or set(pairs.named) <= measured_pairs(followed)


@pytest.mark.parametrize(
    ("columns", "rows"), [(20, 200), (20, 1_000), (80, 400), (80, 2_000), (300, 2_000)]
)
def test_as_many_pairs_as_are_hoped_for_are_good(columns: int, rows: int) -> None:
    """Of columns alike, by the noise of a plan that names so many pairs; of half as many more they are not."""
    written = binary(columns, rows=rows, privacy__epsilon=0.6)
    config = parse_configuration(written)
    hope = str(pairs_forecast(config)[-1])
    number = 0 if "even a single" in hope else 1
    if "are measured" in hope:
        number = int(re.findall(r"about ([\d,]+) are measured", hope)[0].replace(",", ""))
    size = math.prod(public_sizes(config)[:2])
    for named, is_good in ((number, True), (math.floor(1.5 * number) + 1, False)):
        listed = [
            list(pair)
            for pair in itertools.islice(itertools.combinations(written["columns"], 2), named)
        ]
        if not listed:
            continue
        followed = parse_configuration(
            {**written, "aggregate": {"method": "marginals", "cliques": listed}}
        )
        draw = plan_budget(followed).draw(LargerMarginals)
        (sigma,) = {float(sigma) for sigma in draw.sigmas(followed)}
        assert (math.sqrt(2 / math.pi) * sigma * size / (2 * rows) <= GOOD * (1 + 1e-6)) is is_good
    assert number < math.comb(columns, 2)


@pytest.mark.parametrize("columns", [107, 108, 300, 560])
@pytest.mark.parametrize("rows", [None, 2_000, 2_000_000])
def test_a_table_of_many_columns_can_be_released_as_drafted(columns: int, rows: int | None) -> None:
    """`auto` takes nothing that a run would refuse, and plan says what is missing in keys that are accepted."""
    config = parse_configuration(binary(columns, rows=rows))
    check_size(config)
    pairs = missing_pairs(config)
    assert pairs.change
    assert pairs.named


@pytest.mark.parametrize(
    ("rows", "usual"), [(100, 1e-3), (1_000, 3e-5), (10_000, 1e-6), (12_000, 7e-7), (10**9, 3e-14)]
)
def test_the_usual_delta_is_of_one_digit_and_at_most_that_power(rows: int, usual: float) -> None:
    assert usual_delta(rows) == usual
    assert usual <= rows**-1.5 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("delta", "rows", "said"),
    [
        (1e-6, None, []),
        (1e-6, 9_999, []),
        (1e-6, 12_000, ["is large for 12,000 rows", "delta: 7e-07"]),
        (1e-6, 1_000_000, ["is at least 1/n for 1,000,000 rows", "delta: 1e-09"]),
        (1e-4, 12_000, ["is at least 1/n for 12,000 rows", "delta: 7e-07"]),
        (1e-12, 1_000_000, []),
    ],
)
def test_a_delta_is_compared_with_the_declared_rows(
    delta: float, rows: int | None, said: list[str]
) -> None:
    """Nothing is said once what it says is written."""
    config = configuration(privacy__delta=delta, rows=rows)
    sentences = list(map(str, delta_forecast(config)))
    assert len(sentences) == len(said)
    assert all(text in sentence for text, sentence in zip(said, sentences, strict=True))
    if rows is not None:
        assert delta_forecast(configuration(privacy__delta=usual_delta(rows), rows=rows)) == []
