"""Distances of linked tables are those of their definition: pairs across, of one row, and of two rows of a unit."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.linked import Coded, compare, cross_tables, sibling_tables

SIZES = {"sex": 2, "kind": 3, "ward": 2}


def some_tables(seed: int) -> Coded:
    rng = np.random.default_rng(seed)
    owners = np.sort(rng.integers(0, 30, 80))
    return Coded(
        {"sex": rng.integers(0, 2, 30)},
        {"kind": rng.integers(0, 3, 80), "ward": rng.integers(0, 2, 80)},
        owners,
        30,
    )


def test_tables_are_those_of_all_rows_of_all_units() -> None:
    """Each unit weighs one, whatever it has: over its rows, and over its ordered pairs of different rows."""
    seen = some_tables(4)
    crossed = np.zeros((2, 3))
    siblings = np.zeros((3, 2))
    for unit in range(30):
        rows = np.flatnonzero(seen.owners == unit)
        for row in rows:
            crossed[seen.units["sex"][unit], seen.rows["kind"][row]] += 1 / len(rows)
        pairs = list(itertools.permutations(rows, 2))
        for one, other in pairs:
            siblings[seen.rows["kind"][one], seen.rows["ward"][other]] += 1 / len(pairs)
    assert np.allclose(cross_tables(seen, SIZES)["sex", "kind"], crossed / crossed.sum())
    assert np.allclose(sibling_tables(seen, SIZES)["kind", "ward"], siblings / siblings.sum())


def test_tables_are_at_no_distance_from_themselves() -> None:
    seen = some_tables(4)
    assert max(compare(seen, seen, SIZES)) < 1e-12
    other = compare(seen, some_tables(5), SIZES)
    assert min(other) > 0.01
