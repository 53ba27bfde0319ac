"""Relative errors are the typical error over rows and over the mean count of the cells that there are."""

from __future__ import annotations

import itertools
import math

import pytest

from marginweave.forecast.accuracy import relative_errors
from marginweave.forecast.noise import forecast
from tests.support.configurations import configuration

ROWS = 5000


def test_a_mean_count_is_that_of_all_declared_combinations() -> None:
    """Four columns of 2, 3, 5 and 7 values: each length by counting its combinations one by one."""
    config = configuration()
    sizes = [len(attribute.labels) for attribute in config.attributes]
    assert len(set(sizes)) == len(sizes)
    found = relative_errors(config, ROWS)
    for row in forecast(config)[0]:
        if row.name == "count":
            cells = sets = 1
        elif row.name.startswith("level-"):
            chosen = list(itertools.combinations(sizes, int(row.name[-1])))
            cells, sets = sum(map(math.prod, chosen)), len(chosen)
        else:
            assert row.name not in found
            continue
        typical = float(str(row.error).removeprefix("± "))
        relative = found[row.name]
        assert relative.of_rows is not None
        assert (
            relative.of_rows.least
            == relative.of_rows.most
            == pytest.approx(100 * typical / ROWS, rel=0.06)
        )
        assert relative.of_mean is not None
        assert relative.of_mean.least == pytest.approx(
            100 * typical / (ROWS * sets / cells), rel=0.06
        )


def test_marginals_have_a_range_from_the_least_to_the_most() -> None:
    config = configuration(
        aggregate__method="marginals", aggregate__cliques=[["sex", "region"], ["age", "grade"]]
    )
    found = relative_errors(config, ROWS)
    assert {"one-way", "marginals"} <= set(found)
    of_mean = found["marginals"].of_mean
    assert of_mean is not None
    assert of_mean.least < of_mean.most
    assert tuple(map(str, of_mean.sentences)) == (
        f"± {of_mean.least:.2g} %",
        f"± {of_mean.most:.2g} %",
    )


def test_what_is_not_known_is_not_said() -> None:
    """The number of values of a private domain."""
    private = configuration(columns__region={"type": "category", "domain": "private"})
    found = relative_errors(private, ROWS)
    assert found["level-1"].of_rows is not None
    assert found["level-1"].of_mean is found["level-2"].of_mean is None


def test_a_resized_table_has_its_own_number_of_rows() -> None:
    imputed = {
        f"columns__{name}__impute": {"distribution": "uniform"}
        for name in ("sex", "region", "age", "grade")
    }
    config = configuration(resize={"records": 100, "proportion": 0.5}, **imputed)
    assert relative_errors(config, 10) == relative_errors(config, 10**6)
