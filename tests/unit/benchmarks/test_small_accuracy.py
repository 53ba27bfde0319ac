"""The benchmark of small tables: its samples, measures and page; nothing is measured here."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats.contingency import association

from benchmarks.accuracy import small, small_page
from benchmarks.accuracy.figures import current, read
from benchmarks.accuracy.methods import settings
from benchmarks.accuracy.small_measures import cramers_v, measure_small
from benchmarks.accuracy.tables import sample_name, table
from tests.support.places import DATA


@pytest.fixture
def tables() -> None:
    """What a sample is drawn from."""
    if not DATA.is_dir():
        pytest.skip("the test tables are not here; MARGINWEAVE_TEST_DATA names their folder")


def test_cramers_v_is_what_its_formula_says() -> None:
    """1 of a column beside itself, 0 of independent ones, and scipy's own elsewhere; values that do not occur say nothing."""
    rows = np.array([[0, 0, 0], [0, 0, 2], [3, 1, 0], [3, 1, 2]])
    sizes = (4, 2, 3)
    assert [cramers_v(rows, pair, sizes) for pair in ((0, 1), (0, 2))] == [1.0, 0.0]
    made = np.random.default_rng(1).integers(0, (2, 2, 3), (50, 3)) @ np.array(
        [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    )
    counts = np.zeros((3, 5), np.int64)
    np.add.at(counts, (made[:, 0], made[:, 1]), 1)
    kept = counts[counts.any(axis=1)][:, counts.any(axis=0)]
    assert cramers_v(made, (0, 1), (4, 6, 9)) == pytest.approx(
        association(kept, method="cramer", correction=False)
    )


@pytest.mark.usefixtures("tables")
def test_samples_of_small_tables_are_parts_of_their_table() -> None:
    """Seeded, so that every method has the same one; the rest is outside, and a classifier of the sample itself learns."""
    name = sample_name("affairs", 500, 1)
    sample = table(name)
    assert sorted(sample.rows + sample.outside) == sorted(table("affairs").rows)
    assert sample.rows != table(sample_name("affairs", 500, 2)).rows
    perfect = measure_small(name, sample.rows)
    assert (perfect["tvd2"], perfect["tvd3"], perfect["v3"], perfect["v10"]) == (0, 0, 0, 0)
    assert perfect["auc"] > 0.6 > measure_small(name, sample.rows[:1] * 500)["auc"] == 0.5


@pytest.mark.usefixtures("tables")
def test_the_page_of_small_tables_is_made_of_the_figures() -> None:
    """After a change of methods, of the default or of the page: python -m benchmarks.accuracy.small --methods --write"""
    every = small.cells(small.ALL)
    kept = current(read(small.FIGURES), settings)
    assert small.PAGE.read_text(encoding="utf-8") == small_page.render(kept.values(), len(every))
