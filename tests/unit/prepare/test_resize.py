"""Resize: sizes, shares and copies of the three worked examples, and what the added records are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError
from marginweave.configuration.preparation import ResizeSettings
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.encode import sampled_rows
from tests.support.configurations import configuration
from tests.support.tables import completed, encoded, fixed_streams

TRIALS = 3_000
ROWS = 100
UNIFORM = {"distribution": "uniform"}
SEX = {"type": "category", "values": ["f", "m"], "impute": UNIFORM}
GRADE = {"type": "category", "values": [1, 2, 3], "impute": {"weights": {"1": 1, "3": 2}}}


def samples(records: int, proportion: float) -> list[np.ndarray]:
    """TRIALS samples of 100 rows under one fixed key: the tests below give the same numbers every time."""
    settings = ResizeSettings(records=records, proportion=proportion)
    return [
        sampled_rows(ROWS, settings, KeyedBits(key=bytes(range(32)), purpose=f"resize {i}"))
        for i in range(TRIALS)
    ]


def test_150_of_100() -> None:
    """The first example of the published notes: all 100 rows once; 50 records are to be imputed."""
    assert all(sample.tolist() == list(range(ROWS)) for sample in samples(150, 1.0)[:20])


def test_100_of_100_at_three_quarters() -> None:
    """Second example: Bin(100, 3/4) different rows, every row as often (chi-square over 3,000 samples, alarm 1e-6)."""
    drawn = samples(100, 0.75)
    sizes = np.array([len(sample) for sample in drawn])
    assert all(len(set(sample.tolist())) == len(sample) for sample in drawn)
    edges = np.array([0, 69, 71, 73, 75, 77, 79, 81, 101])
    expected = np.diff(stats.binom(ROWS, 0.75).cdf(edges - 1))
    assert stats.chisquare(np.histogram(sizes, edges)[0], expected * TRIALS).pvalue > 1e-6
    held = np.bincount(np.concatenate(drawn), minlength=ROWS)
    statistic = ((held - TRIALS * 0.75) ** 2).sum() / (TRIALS * 0.75 * 0.25)
    assert stats.chi2(ROWS).sf(statistic) > 1e-6
    assert stats.chi2(ROWS).cdf(statistic) > 1e-6


def test_90_of_100_at_one_and_a_half() -> None:
    """Third example: 90 of the 200 copies, min(m, n) and not max, nothing imputed; each row 0, 1 or 2 times as chance says.

    Cutting a sample to 90 is a sample of 90: a row's copies are hypergeometric (3,000 samples, false alarm 1e-6).
    """
    drawn = samples(90, 1.5)
    assert {len(sample) for sample in drawn} == {90}
    times = Counter[int]()
    for sample in drawn:
        # one row: rows of one sample are not independent
        times.update(np.bincount(sample, minlength=ROWS)[:1].tolist())
    expected = stats.hypergeom(2 * ROWS, 2, 90).pmf([0, 1, 2]) * TRIALS
    assert stats.chisquare([times[k] for k in range(3)], expected).pvalue > 1e-6


@pytest.mark.parametrize("rows", [0, 1, 7, 90])
def test_the_table_has_the_declared_size(rows: int) -> None:
    """Whatever the number of rows is, also none; what is added follows the imputation, and never is missing."""
    config = configuration(
        columns={
            "sex": SEX,
            "grade": GRADE,
            "signs": {"type": "set", "values": ["a", "b"], "max_values": 2},
        },
        resize={"records": 40, "proportion": 1.5},
    )
    table = completed(encoded([["f", "2", "a;b"]] * rows, config), config, fixed_streams)
    assert table.records == 40
    assert [
        codes.max() < size for codes, size in zip(table.codes[:2], table.sizes[:2], strict=True)
    ] == [True, True]
    # grade 2 has no weight: a record with it was sampled
    sampled = int((table.codes[1] == 1).sum())
    assert sampled == (40 if rows == 90 else sampled)
    assert sampled <= 2 * rows
    assert int((table.codes[2] == 2).all(axis=1).sum()) == 40 - sampled


def test_added_records_are_independent_draws_of_every_column() -> None:
    """20,000 added records: the 2 x 2 cells of two columns are products of the declared shares (chi-square, alarm 1e-6)."""
    config = configuration(columns={"sex": SEX, "grade": GRADE}, resize={"records": 20_000})
    table = completed(encoded([["", ""]] * 0, config), config, fixed_streams)
    cells = np.bincount(table.codes[0].astype(np.int64) * 3 + table.codes[1], minlength=6)
    assert cells[[1, 4]].tolist() == [0, 0]
    assert stats.chisquare(cells[[0, 2, 3, 5]], np.array([1, 2, 1, 2]) / 6 * 20_000).pvalue > 1e-6


def test_stability_counts_copies_and_rows() -> None:
    """One unit replaces at most c theta records; the functional budget answers for the copies where it is amplified."""
    three = Stability(records=3, neighbors="add-remove")
    assert ResizeSettings(records=9, proportion=1.5).stability(three) == Stability(
        records=6, neighbors="replace-one"
    )
    assert ResizeSettings(records=9, proportion=0.5).stability(three) == Stability(
        records=3, neighbors="replace-one"
    )
    amplified = ResizeSettings(records=9, proportion=2.5, amplify=True).stability(
        Stability(records=1, neighbors="add-remove")
    )
    assert amplified == Stability(records=1, neighbors="replace-one")


BOTH: dict[str, Any] = {"columns": {"sex": SEX, "grade": GRADE}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"columns__sex__impute": UNIFORM, "resize": {"records": 9}},
            "resize needs impute for column 'region'",
        ),
        ({**BOTH, "resize": {"records": 0}}, r"resize\.records \(0\) must be at least 1"),
        (
            {**BOTH, "resize": {"records": 9, "proportion": 0}},
            r"resize\.proportion \(0\) must be at least 1e-06",
        ),
        ({**BOTH, "resize": {"records": 9, "proportion": 11}}, "at most 10"),
        ({**BOTH, "resize": {"records": 9, "formula": "tight"}}, "needs amplify: true"),
        (
            {
                **BOTH,
                "resize": {"records": 9, "amplify": True},
                "privacy__unit": {"column": "id", "max_records": 2},
            },
            "must be false where a subject has several records",
        ),
    ],
)
def test_resizes_that_cannot_hold_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each by the key that has to change."""
    with pytest.raises(InputError, match=message):
        configuration(**changes)
