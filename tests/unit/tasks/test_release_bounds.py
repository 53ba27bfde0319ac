"""What the percentile mechanism is shown of a column with private bounds, and what becomes of its answers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.budget import Stability
from marginweave.configuration.columns import NumberColumn
from marginweave.measurements.quantile_bounds import candidate_histogram, released_bounds
from marginweave.mechanisms.gaussian import select_percentile
from marginweave.mechanisms.percentile import rank_scores
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.prepare.clean import clean_table
from tests.support.configurations import configuration

GRID = (0.0, 1.0, 2.5, 4.0, 10.0)
values = st.lists(st.one_of(st.none(), st.floats(0, 10), st.sampled_from(GRID)), max_size=30)


@given(values)
def test_the_histogram_counts_values_at_or_below_each_candidate(cells: list[float | None]) -> None:
    """F(i) is the number of values at most candidate i, nulls left out, and nothing lies below the first candidate."""
    histogram = candidate_histogram(pa.array(cells, pa.float64()), GRID)
    present = [cell for cell in cells if cell is not None]
    assert histogram[0] == 0
    assert np.cumsum(histogram)[1:].tolist() == [
        sum(cell <= point for cell in present) for point in GRID
    ]


@given(values, st.one_of(st.none(), st.floats(0, 10)))
def test_a_row_moves_one_entry_by_one(cells: list[float | None], cell: float | None) -> None:
    """What `score_sensitivity` rests on: a row is one point of the histogram, or none where it has no value."""
    change = candidate_histogram(
        pa.array([*cells, cell], pa.float64()), GRID
    ) - candidate_histogram(pa.array(cells, pa.float64()), GRID)
    assert change.sum() == np.abs(change).sum() == (cell is not None)


@pytest.mark.parametrize("percentile", [1.0, 99.0])
def test_the_best_candidate_is_the_quantile(percentile: float) -> None:
    """With epsilon 1000 the chosen candidate has at least q N values at or below it, its predecessor at most q N."""
    rng = np.random.default_rng(5)
    column = configuration(
        columns__age__bounds="private", columns__age__within=[0, 120], columns__age__bins=6
    ).columns["age"]
    assert isinstance(column, NumberColumn)
    cells = rng.normal(50, 12, 2000).clip(0, 120)
    histogram = candidate_histogram(pa.array(cells), column.bound_candidates)
    number = select_percentile(
        histogram, percentile, 1000.0, Stability(records=1, neighbors="add-remove"), fresh_bits()
    )
    wanted = Fraction(str(percentile)) / 100 * len(cells)
    chosen, before = column.bound_candidates[number - 1], column.bound_candidates[number - 2]
    assert rank_scores(histogram, percentile)[number - 1] == 0
    assert (cells <= before).sum() <= wanted <= (cells <= chosen).sum()


@pytest.mark.parametrize(("most", "decimals"), [(1e6, None), (1e6, 0), (120, 0), (120, None)])
def test_a_hundredth_of_the_values_lies_beyond_each_bound(
    most: float, decimals: int | None
) -> None:
    """However far the candidates are apart: ages among points of 0 to a million, 100 apart, lie between two of them."""
    column = _private_age(within=[0, most], decimals=decimals)
    cells = (
        np.random.default_rng(7)
        .normal(50, 12, 2000)
        .clip(0, 99)
        .round(6 if decimals is None else decimals)
    )
    histogram = candidate_histogram(pa.array(cells), column.bound_candidates)
    unit = Stability(records=1, neighbors="add-remove")
    low, high = (
        select_percentile(histogram, percentile, 1000.0, unit, fresh_bits())
        for percentile in (1.0, 99.0)
    )
    least, largest = released_bounds(low, high, column)
    assert (cells < least).mean() <= 0.01 >= (cells > largest).mean()
    distance = most / 9_999
    assert (cells < least + distance + 1).mean() >= 0.01 <= (cells > largest - distance - 1).mean()


def _private_age(**keys: Any) -> NumberColumn:
    """A number with private bounds."""
    changes = {f"columns__age__{key}": value for key, value in keys.items()}
    column = configuration(columns__age__bounds="private", columns__age__bins=6, **changes).columns[
        "age"
    ]
    assert isinstance(column, NumberColumn)
    return column


def test_bounds_that_came_out_the_wrong_way_round_are_swapped() -> None:
    """Candidates are numbered from 1; equal ones stay equal, and the column widens them inside its public range."""
    age = _private_age(within=[0, 120], decimals=0)
    assert age.bound_candidates[:3] == (0.0, 1.0, 2.0)
    assert released_bounds(2, 4, age) == released_bounds(4, 2, age) == (1.0, 3.0)
    assert released_bounds(5, 5, age) == (4.0, 4.0)
    config = configuration(
        columns__age__bounds="private", columns__age__within=[0, 120], columns__age__bins=6
    )
    for number in (0.0, 60.0, 120.0):
        age = config.with_bounds({"age": (number, number)}).columns["age"]
        assert isinstance(age, NumberColumn)
        assert isinstance(age.bounds, tuple)
        low, high = age.bounds
        assert 0 <= low < high <= 120
        assert low <= number <= high


def test_a_column_is_clamped_to_its_public_range_before_its_bounds_are_known() -> None:
    """Values outside `within` count at its ends; nothing of the data decides the range."""
    config = configuration(
        columns__age__bounds="private", columns__age__within=[0, 120], columns__age__bins=6
    )
    raw = pa.table(
        {name: pa.array([""] * 3 if name != "age" else ["-5", "500", ""]) for name in config.names}
    )
    assert clean_table(raw, config).column("age").to_pylist() == [0.0, 120.0, None]
