"""`plan` says about how long a run takes: as measured, within a factor of two, and never less for more of anything."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from typing import Any

import pytest

from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.forecast.cost import SERVER, START, RunCost, run_cost
from marginweave.forecast.sizes import planned_tables, size_forecast
from marginweave.measurements.split import plan_budget
from tests.support.configurations import configuration, raw
from tests.support.known import known

ADULT = (14, 9, 17, 17, 8, 15, 7, 6, 3, 8, 7, 10, 42, 3)
"""Codes of the columns of adult_cat.csv."""
WIDE = (*(4 * ADULT), *ADULT[:4])
TUPLES = {"method": "k-tuples", "reporting_length": 3}
SEEDED = {"synthesize": {"method": "aggregate-seeded"}}
MIXTURE = {"synthesize": {"method": "mixture"}}
TRIPLES = {"aggregate": {"method": "marginals", "cliques": {"all": 3}}, **MIXTURE}


def table(sizes: tuple[int, ...], **sections: Any) -> Configuration:
    columns = {
        f"c{i}": {"type": "category", "values": [*range(size)]} for i, size in enumerate(sizes)
    }
    return parse_configuration(
        {**raw(missing=None), "columns": columns, "aggregate": {"method": "auto"}, **sections}
    )


def cost(config: Configuration, rows: int, cores: int = 2) -> RunCost:
    return known(run_cost(config, planned_tables(config, plan_budget(config)), rows, cores))


@pytest.mark.parametrize(
    ("sizes", "sections", "rows", "epsilon", "cpu", "gigabytes"),
    [
        (ADULT, {"rows": 1000}, 1000, 1, 6.5, 0.48),
        (ADULT, {}, 48_842, 1, 13.9, 0.60),
        (ADULT, {}, 48_842, 4, 23.9, 0.63),
        (ADULT, {}, 1_000_000, 1, 42.7, 0.88),
        (ADULT, {}, 1_000_000, 4, 37.5, 0.83),
        ((*ADULT, *ADULT[:10]), {}, 10_000, 1, 7.8, 0.55),
        ((*ADULT, *ADULT[:10]), {}, 100_000, 4, 52.7, 0.67),
        (WIDE, {"rows": 10_000}, 10_000, 1, 22.3, 0.75),
        (WIDE, {"rows": 100_000}, 100_000, 1, 21.1, 0.86),
        # docs/benchmarks.md
        (ADULT, {}, 20_000_000, 4, 191, 0.88),
        (ADULT, {"aggregate": TUPLES, **SEEDED}, 1_000_000, 4, 27.1, 0.85),
        (ADULT, {"aggregate": TUPLES, **SEEDED}, 20_000_000, 4, 411, 0.86),
        (
            ADULT,
            {"aggregate": {**TUPLES, "reporting_length": 4}, **SEEDED},
            1_000_000,
            4,
            84.4,
            1.55,
        ),
        (ADULT, {"aggregate": TUPLES, **MIXTURE}, 1_000_000, 4, 49.6, 0.92),
        (
            (*(4 * ADULT), *ADULT[:4]),
            {"aggregate": {**TUPLES, "reporting_length": 2}, **SEEDED},
            1_000_000,
            4,
            117,
            1.56,
        ),
        (
            10 * (5000,),
            {"aggregate": {**TUPLES, "reporting_length": 2}, **SEEDED},
            1_000_000,
            4,
            91.7,
            1.17,
        ),
    ],
)
def test_releases_took_what_is_said_within_a_factor_of_two(
    sizes: tuple[int, ...],
    sections: dict[str, Any],
    rows: int,
    epsilon: float,
    cpu: float,
    gigabytes: float,
) -> None:
    """CPU seconds of the program, as one core has them, and the peak of its memory, of releases that were measured."""
    privacy = {"epsilon": epsilon, "delta": 1e-6, "unit": "row"}
    said = cost(table(sizes, privacy=privacy, **sections), rows, cores=1)
    assert 0.5 < said.cpu / cpu < 2
    assert said.cpu == pytest.approx(said.seconds - SERVER), (
        "one core does one second of work in a second"
    )
    assert 0.5 < said.gigabytes / gigabytes < 2


@pytest.mark.parametrize(
    "sections", [TRIPLES, {"aggregate": TUPLES, **SEEDED}, {"aggregate": TUPLES, **MIXTURE}]
)
def test_more_rows_or_columns_never_take_less(sections: dict[str, Any]) -> None:
    by_columns = [
        [cost(table(ADULT[:k], **sections), 10**n) for n in range(3, 8)] for k in (3, 6, 10, 14)
    ]
    pairs = [
        pair
        for row in (*by_columns, *zip(*by_columns, strict=True))
        for pair in itertools.pairwise(row)
    ]
    for one, more in pairs:
        assert one.seconds < more.seconds
        assert one.cpu < more.cpu
        assert one.gigabytes <= more.gigabytes
    most = table(ADULT, **sections)
    few, many = (cost(most, 10**6, cores=cores) for cores in (2, 8))
    assert many.seconds < few.seconds
    assert many.cpu == few.cpu, "the work is the same"
    assert few.seconds - SERVER - START < few.cpu - START < 2 * (few.seconds - SERVER - START)


def test_words_have_two_digits_and_a_unit_that_people_use() -> None:
    said = [
        str(RunCost(seconds, 2 * seconds, 0.52).sentence)
        for seconds in (22.4, 89, 119, 3_000, 7_300)
    ]
    assert said == [
        "22 s (45 CPU s), 0.5 GB",
        "89 s (3 CPU min), 0.5 GB",
        "2 min (4 CPU min), 0.5 GB",
        "50 min (1.7 CPU h), 0.5 GB",
        "2 h (4.1 CPU h), 0.5 GB",
    ]
    assert str(RunCost(0.5, 0.5, 0.52).sentence) == "0.5 s (0.5 CPU s), 0.5 GB"


def test_a_line_says_it_for_each_size_but_not_of_methods_that_nobody_measured() -> None:
    assert all(str(row.takes).endswith(" GB") for row in size_forecast(configuration()))
    assert {str(row.takes) for row in size_forecast(configuration(synthesize__method="gum"))} == {
        "not measured"
    }


def test_a_plan_needs_neither_numba_nor_scipy() -> None:
    code = (
        "import sys; from tests.support.configurations import configuration; from marginweave.forecast.sizes import *;"
        "size_forecast(configuration(aggregate=None)); sys.exit(bool({'numba', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert math.isfinite(cost(configuration(), 1000).seconds)
