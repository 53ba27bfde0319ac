"""Imputation draws the declared public distribution, and only where a value is missing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.base.errors import InputError
from marginweave.prepare.encode import imputed_codes
from tests.support.configurations import configuration
from tests.support.tables import completed, encoded, fixed_streams

ROWS = 40_000
UNIFORM = {"distribution": "uniform"}
NUMBER = {"type": "number", "bins": [0, 10, 30, 100]}
SEX = {"type": "category", "values": ["f", "m", "x"]}
DATES = ["2020-01-01", "2021-12-31"]


def normal(*edges: float) -> list[float]:
    """Shares of a clamped normal distribution with mean 20 and deviation 15 over bins; the first and last edge are bounds."""
    inner = stats.norm(20, 15).cdf(edges[1:-1])
    return np.diff([0.0, *inner, 1.0]).tolist()


KINDS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "uniform number": ({**NUMBER, "impute": UNIFORM}, [0.1, 0.2, 0.7]),
    "gaussian number": (
        {**NUMBER, "impute": {"distribution": "gaussian", "mean": 20, "deviation": 15}},
        normal(0, 10, 30, 100),
    ),
    "gaussian far below": (
        {**NUMBER, "impute": {"distribution": "gaussian", "mean": -500, "deviation": 15}},
        [1.0, 0.0, 0.0],
    ),
    "uniform open number": (
        {**NUMBER, "bounds": [-20, 100], "outer": "open", "bins": [0, 10, 100], "impute": UNIFORM},
        [20 / 120, 10 / 120, 90 / 120, 0.0],
    ),
    "gaussian open number": (
        {**NUMBER, "outer": "open", "impute": {"distribution": "gaussian", "mean": 20, "deviation": 15}},
        np.diff([0.0, *stats.norm(20, 15).cdf([0, 10, 30, 100]), 1.0]).tolist(),
    ),
    "uniform category": ({**SEX, "impute": UNIFORM}, [1 / 3, 1 / 3, 1 / 3]),
    "weighted category": ({**SEX, "impute": {"weights": {"x": 1, "f": 3}}}, [0.75, 0.0, 0.25]),
    "weighted boolean": ({"type": "boolean", "impute": {"weights": {"yes": 1, "no": 4}}}, [0.8, 0.2]),
    "uniform date": ({"type": "date", "bounds": DATES, "bins": "year", "impute": UNIFORM}, [366 / 731, 365 / 731]),
    "uniform weekday": (
        {"type": "date", "bounds": ["2020-01-01", "2020-01-09"], "bins": "weekday", "impute": UNIFORM},
        [1 / 9, 1 / 9, 2 / 9, 2 / 9, 1 / 9, 1 / 9, 1 / 9],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_missing_values_follow_the_declared_distribution(kind: str) -> None:
    """Chi-square of 40,000 imputed values against the public shares, false alarm 1e-6; a value without weight never occurs."""
    column, shares = KINDS[kind]
    config = configuration(columns={"c": column, "other": SEX})
    table = completed(encoded([["", ""]] * ROWS, config), config, fixed_streams)
    counts = np.bincount(table.codes[0], minlength=table.sizes[0] + 1)
    expected = np.array([*shares, 0.0]) * ROWS
    assert len(counts) == len(expected)
    assert counts[expected == 0].sum() == 0
    assert (
        stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-6
        or (expected > 0).sum() == 1
    )
    assert (table.codes[1] == 3).all()
    assert config.optional == (False, True)


def test_values_that_are_there_stay() -> None:
    """Imputation looks at one cell: present values keep their codes, also where others are missing."""
    config = configuration(
        columns={"c": {**SEX, "impute": UNIFORM}, "n": {**NUMBER, "impute": UNIFORM}}
    )
    rows = [["f", "5"], ["", "99"], ["m", ""], ["x", "29"]]
    table = completed(encoded(rows, config), config, fixed_streams)
    assert table.codes[0][[0, 2, 3]].tolist() == [0, 1, 2]
    assert table.codes[1][[0, 1, 3]].tolist() == [0, 2, 1]
    assert max(table.codes[0].max(), table.codes[1].max()) < 3


def test_a_missing_value_is_imputed_by_its_own_word() -> None:
    """Coupling: what one record becomes does not depend on which other records lack a value."""
    config = configuration(columns={"c": {**SEX, "impute": UNIFORM}})
    some = completed(encoded([["f"], [""], ["m"], [""]] * 500, config), config, fixed_streams)
    every = completed(encoded([[""]] * 2000, config), config, fixed_streams)
    assert np.array_equal(some.codes[0][1::2], every.codes[0][1::2])


def test_a_private_domain_is_imputed_with_declared_values() -> None:
    """Declared weights join the labels, whether they occur in the data or not; the rest of the labels stays in order."""
    private = {
        "type": "category",
        "domain": "private",
        "impute": {"weights": {"unknown": 1, "b": 1}},
    }
    config = configuration(columns={"c": private, "other": SEX})
    table = completed(
        encoded([["z", ""], ["b", ""], *[["", ""]] * 100], config), config, fixed_streams
    )
    assert table.labels[0] == ("b", "unknown", "z")
    assert table.codes[0][:2].tolist() == [2, 0]
    assert set(table.codes[0][2:].tolist()) == {0, 1}


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=6).filter(lambda w: sum(w) > 0),
    st.integers(0, 2**64 - 1),
)
@settings(deadline=None)
def test_a_word_selects_the_code_whose_share_holds_it(weights: list[float], word: int) -> None:
    """Exactly: w/2^64 lies below the cumulative share of the code, and above the one before it but for less than 2^-64."""
    code = int(imputed_codes(tuple(weights), np.array([word], np.uint64))[0])
    total = sum(map(Fraction, weights))
    below = sum(map(Fraction, weights[:code]), Fraction(0)) / total
    above = sum(map(Fraction, weights[: code + 1]), Fraction(0)) / total
    assert below * 2**64 < word + 1
    assert word < above * 2**64
    assert weights[code] > 0


@pytest.mark.parametrize("asked", ["mean", "mode", "median", {"distribution": "mean"}])
def test_imputation_from_the_data_is_refused_by_name(asked: Any) -> None:
    """The mean, median or mode of the column would be read off the data for free."""
    with pytest.raises(
        InputError,
        match=r"columns\.age\.impute .* must not be the (mean|mode|median) of the column",
    ):
        configuration(columns__age__impute=asked)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"columns__sex__impute": {"distribution": "gaussian", "mean": 0, "deviation": 1}},
            "the column is no number",
        ),
        (
            {"columns__sex__impute": {"weights": {"f": 1, "z": 1}}},
            "must name declared values, each once",
        ),
        ({"columns__sex__impute": {"weights": {"f": -1}}}, "not negative and not all 0"),
        ({"columns__sex__impute": {"weights": {}}}, "must be a mapping"),
        ({"columns__grade__impute": {"weights": {"1": 1, "1.0": 1}}}, "each once"),
        ({"columns__age__impute": {"weights": {"5": 1}}}, "no declared values"),
        (
            {"columns__age__impute": {"distribution": "gaussian", "mean": 0, "deviation": 0}},
            "must be positive",
        ),
        (
            {"columns__sex": {"type": "category", "domain": "private", "impute": UNIFORM}},
            "must be weights",
        ),
    ],
)
def test_imputations_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each by the key that has to change."""
    with pytest.raises(InputError, match=message):
        configuration(**changes)
