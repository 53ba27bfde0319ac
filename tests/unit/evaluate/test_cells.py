"""Counting in two tables at once, against counting record by record, on every path."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.domain.labels import Domain
from marginweave.evaluate import cells as counting
from marginweave.evaluate.cells import Cells, Comparison, Records, Released, number_set
from tests.support.noisy_counts import SIZES, aggregates_of, domain_of, tally

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
        padded = np.array(
            [[*values, *[size] * width][:width] for values in (r[j] for r in table)], np.int64
        )
        columns.append(
            padded.reshape(len(table), width)[:, 0]
            if width == 1
            else padded.reshape(len(table), width)
        )
    return columns


def slow_counts(table: list, chosen: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    """Complete combinations, record by record."""
    return Counter(values for r in table for values in product(*(r[j] for j in chosen)))


def cells_of(comparison: Comparison, chosen: tuple[int, ...]) -> Cells:
    """The cells of one set of attributes."""
    return comparison.measure([chosen], lambda cells: cells)[0]


def named(found: Cells, side: np.ndarray) -> dict[tuple[int, ...], int]:
    """The complete cells that a side has, by their values."""
    kept = found.complete & (side > 0)
    values = np.array(found.numbering.codes(found.keys[kept])).T.tolist()
    return {tuple(v): int(n) for v, n in zip(values, side[kept], strict=True)}


@pytest.mark.parametrize("dense", [True, False])
@given(st.data())
def test_counts_equal_brute_force(dense: bool, data: st.DataObject) -> None:
    """Complete combinations of all lengths, sets of values included, whether cells are added up or sorted."""
    tables = [data.draw(st.lists(record(), min_size=1, max_size=12)) for _ in range(2)]
    sides = [Records([codes_of(table)], domain_of()) for table in tables]
    comparison = Comparison(reference=sides[0], synthetic=sides[1], sizes=SIZES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "FEW_CELLS", 10**6 if dense else -(10**6))
        for k in (1, 2, 3, 4):
            for chosen in combinations(range(4), k):
                found = cells_of(comparison, chosen)
                assert named(found, found.reference) == slow_counts(tables[0], chosen)
                assert named(found, found.synthetic) == slow_counts(tables[1], chosen)
                assert found.one_cell_per_record == all(WIDTHS[j] == 1 for j in chosen)
                assert (np.diff(found.keys) > 0).all()
                if found.one_cell_per_record:
                    assert [found.reference.sum(), found.synthetic.sum()] == list(map(len, tables))


@pytest.mark.parametrize("dense", [True, False])
def test_released_counts_weigh_what_they_count(
    dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A released combination has its count, a suppressed one none, and records stay records."""
    monkeypatch.setattr(counting, "FEW_CELLS", 10**6 if dense else -(10**6))
    rng = np.random.default_rng(1)
    table = rng.integers(0, np.array(SIZES) + 1, (400, 4))
    released = {t: 3 * n for t, n in tally(table, 3).items() if n % 2}
    comparison = Comparison(
        reference=Released(aggregates=aggregates_of(released)),
        synthetic=Records([list(table.T)], domain_of()),
        sizes=SIZES,
    )
    for k in (1, 2, 3):
        for chosen in combinations(range(4), k):
            found = cells_of(comparison, chosen)
            wanted = {
                tuple(v for _, v in t): n
                for t, n in released.items()
                if tuple(j for j, _ in t) == chosen
            }
            assert named(found, found.reference) == wanted
            made = {
                tuple(v for _, v in t): n
                for t, n in tally(table, k).items()
                if tuple(j for j, _ in t) == chosen
            }
            assert named(found, found.synthetic) == made


@pytest.mark.parametrize("parts", [1, 3, 200])
def test_more_cells_than_an_integer_holds(parts: int) -> None:
    """2^62 possible cells and more are numbered by rank, and counted as few are, in however many blocks."""
    rng = np.random.default_rng(2)
    sizes = (2**21 - 1,) * 3 + (7,)
    scale = np.array([1_000_003] * 3 + [1])
    tables = [rng.integers(0, [3, 3, 3, 8], (200, 4)) for _ in range(2)]
    domain = Domain(names=tuple("abcd"), labels=(range(sizes[0]),) * 3 + (range(7),))  # pyright: ignore[reportArgumentType]
    sides = [
        Records([list(part.T) for part in np.array_split(table * scale, parts)], domain)
        for table in tables
    ]
    comparison = Comparison(reference=sides[0], synthetic=sides[1], sizes=sizes)
    for chosen in ((0, 1, 2), (0, 1, 2, 3), (3, 0, 1, 2)):
        wide = cells_of(comparison, chosen)
        values = [Counter(map(tuple, table[:, chosen].tolist())) for table in tables]
        every = sorted({*values[0], *values[1]})
        assert wide.reference.tolist() == [values[0][v] for v in every]
        assert wide.synthetic.tolist() == [values[1][v] for v in every]
        assert wide.complete.tolist() == [
            all(c * scale[j] < sizes[j] for c, j in zip(v, chosen, strict=True)) for v in every
        ]
        (tally,) = sides[0].each([number_set(chosen, sizes, sides)])
        assert tally.counts.tolist() == [n for _, n in sorted(values[0].items())]


@pytest.mark.parametrize("few", [10**6, -(10**6)])
@pytest.mark.parametrize("room", [0, 300, 10**9])
@settings(max_examples=8, deadline=None)
@given(st.lists(record(), min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=4))
def test_blocks_are_the_table(few: int, room: int, rows: list[Any], cuts: list[int]) -> None:
    """However the records are cut into blocks, empty ones included, and however many sets are counted together."""
    whole = codes_of(rows)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    blocks = [[codes[low:high] for codes in whole] for low, high in pairwise(edges)]
    other = Records(blocks, domain_of(), 8 * room)
    assert (len(other), other.slots) == (len(rows), Records([whole], domain_of()).slots)
    sets = [chosen for k in (1, 2, 3) for chosen in combinations(range(4), k)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "FEW_CELLS", few)
        numberings = [number_set(chosen, SIZES, [other]) for chosen in sets]
        for _ in range(2):  # tallies are kept, or not
            for chosen, numbering, tally in zip(
                sets, numberings, other.each(numberings), strict=True
            ):
                values = np.array(list(product(*(range(SIZES[j]) for j in chosen))), np.int64)
                counts = tally.at(numbering.keys(values.T))
                found = {
                    tuple(v): n for v, n in zip(values.tolist(), counts.tolist(), strict=True) if n
                }
                assert found == slow_counts(rows, chosen)
                assert (np.diff(tally.keys) > 0).all()
                assert [
                    c.tolist() for c in numbering.codes(numbering.keys(values.T))
                ] == values.T.tolist()


def test_few_sets_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that are there together fit the room, and each pass counts as many sets as do; kept tallies need no pass."""
    table = np.random.default_rng(3).integers(0, np.array(SIZES), (500, 4))
    passes = []

    class Blocks(list):
        def __iter__(self) -> Any:
            passes.append(1)
            return super().__iter__()

    sets = list(combinations(range(4), 2))
    cells = [(SIZES[a] + 1) * (SIZES[b] + 1) for a, b in sets]
    records = Records(Blocks([list(table.T)]), domain_of(), 64 * max(cells))
    comparison = Comparison(
        reference=Released(aggregates=aggregates_of({})), synthetic=records, sizes=SIZES
    )
    del passes[:]
    comparison.measure(sets, lambda found: found.numbering.attributes)
    groups, held = 1, 0
    for size in cells:
        groups, held = (groups, held + size) if held + size <= max(cells) else (groups + 1, size)
    assert len(passes) == groups > 1
    again = Records(Blocks([list(table.T)]), domain_of())
    for _ in range(2):
        del passes[:]
        list(again.each([number_set(chosen, SIZES, [again]) for chosen in sets]))
    assert not passes
