"""Counting in two tables at once, against counting record by record, on every path."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.tasks.evaluate import cells as counting
from marginweave.tasks.evaluate.cells import Comparison, Records, Released
from tests.unit.normalize.released import SIZES, aggregates_of, domain_of, tally

WIDTHS = (1, 3, 1, 2)


def record(widths: tuple[int, ...] = WIDTHS) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """One record: at most so many distinct values of each attribute."""
    return st.tuples(
        *(
            st.lists(st.integers(0, size - 1), max_size=width, unique=True).map(sorted)
            for size, width in zip(SIZES, widths, strict=True)
        )
    )


def codes_of(table: list, widths: tuple[int, ...] = WIDTHS) -> list[np.ndarray]:
    """The table as codes, missing slots last."""
    columns = []
    for j, (size, width) in enumerate(zip(SIZES, widths, strict=True)):
        padded = np.array([[*values, *[size] * width][:width] for values in (r[j] for r in table)], np.int64)
        columns.append(padded.reshape(len(table), width)[:, 0] if width == 1 else padded.reshape(len(table), width))
    return columns


def slow_counts(table: list, chosen: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    """Complete combinations, record by record."""
    return Counter(values for r in table for values in product(*(r[j] for j in chosen)))


def named(found: counting.Cells, side: np.ndarray) -> dict[tuple[int, ...], int]:
    """The complete cells that a side has, by their values."""
    kept = found.complete & (side > 0)
    values = np.array(np.unravel_index(found.keys[kept], found.radices)).T.tolist()
    return {tuple(v): int(n) for v, n in zip(values, side[kept], strict=True)}


@pytest.mark.parametrize("dense", [True, False])
@given(st.data())
def test_counts_equal_brute_force(dense: bool, data: st.DataObject) -> None:
    """Complete combinations of all lengths, sets of values included, whether cells are added up or sorted."""
    tables = [data.draw(st.lists(record(), min_size=1, max_size=12)) for _ in range(2)]
    sides = [Records.of(codes_of(table), domain_of()) for table in tables]
    comparison = Comparison(reference=sides[0], synthetic=sides[1], sizes=SIZES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_FEW", 10**6 if dense else -(10**6))
        for k in (1, 2, 3, 4):
            for chosen in combinations(range(4), k):
                found = comparison.cells(chosen)
                assert named(found, found.reference) == slow_counts(tables[0], chosen)
                assert named(found, found.synthetic) == slow_counts(tables[1], chosen)
                assert found.single == all(WIDTHS[j] == 1 for j in chosen)
                assert (np.diff(found.keys) > 0).all()
                if found.single:
                    assert [found.reference.sum(), found.synthetic.sum()] == list(map(len, tables))


@pytest.mark.parametrize("dense", [True, False])
def test_released_counts_weigh_what_they_count(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A released combination has its count, a suppressed one none, and records stay records."""
    monkeypatch.setattr(counting, "_FEW", 10**6 if dense else -(10**6))
    rng = np.random.default_rng(1)
    table = rng.integers(0, np.array(SIZES) + 1, (400, 4))
    released = {t: 3 * n for t, n in tally(table, 3).items() if n % 2}
    comparison = Comparison(
        reference=Released(aggregates=aggregates_of(released)),
        synthetic=Records.of(list(table.T), domain_of()),
        sizes=SIZES,
    )
    for k in (1, 2, 3):
        for chosen in combinations(range(4), k):
            found = comparison.cells(chosen)
            wanted = {tuple(v for _, v in t): n for t, n in released.items() if tuple(j for j, _ in t) == chosen}
            assert named(found, found.reference) == wanted
            made = {tuple(v for _, v in t): n for t, n in tally(table, k).items() if tuple(j for j, _ in t) == chosen}
            assert named(found, found.synthetic) == made


def test_more_cells_than_an_integer_holds() -> None:
    """2^63 possible cells are numbered by rank, and counted as few are."""
    rng = np.random.default_rng(2)
    small = [rng.integers(0, 3, (200, 3)) for _ in range(2)]
    sizes = (2**21 - 1,) * 3
    wide = Comparison(
        reference=Records(codes=(small[0] * 1_000_003).T.astype(np.int32), slots=(range(1), range(1, 2), range(2, 3))),
        synthetic=Records(codes=(small[1] * 1_000_003).T.astype(np.int32), slots=(range(1), range(1, 2), range(2, 3))),
        sizes=sizes,
    ).cells((0, 1, 2))
    values = [Counter(map(tuple, table.tolist())) for table in small]
    every = sorted({*values[0], *values[1]})
    assert wide.reference.tolist() == [values[0][v] for v in every]
    assert wide.synthetic.tolist() == [values[1][v] for v in every]
    assert wide.complete.tolist() == [max(v) * 1_000_003 < sizes[0] for v in every]


@pytest.mark.parametrize("few", [10**6, -(10**6)])
@settings(max_examples=30, deadline=None)
@given(st.lists(record(), min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=4), st.data())
def test_blocks_are_the_table(few: int, rows: list[Any], cuts: list[int], data: st.DataObject) -> None:
    """Records in blocks, empty ones included, are those of the whole table; so are the counts at any combinations."""
    whole = codes_of(rows)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    blocks = [[codes[low:high] for codes in whole] for low, high in pairwise(edges)]
    one, other = Records.of(whole, domain_of()), Records.of_blocks(blocks, domain_of())
    assert one.slots == other.slots
    assert (one.codes == other.codes).all()
    assert one.codes.dtype == np.uint8
    chosen = data.draw(st.sampled_from([c for k in (1, 2, 3) for c in combinations(range(4), k)]))
    values = np.array(list(product(*(range(SIZES[j]) for j in chosen))), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_FEW", few)
        counts = other.counts_at(chosen, values, SIZES)
    slow = slow_counts(rows, chosen)
    assert {tuple(v): n for v, n in zip(values.tolist(), counts.tolist(), strict=True) if n} == slow
