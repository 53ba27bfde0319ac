"""Candidates of small tables, by name, and the bounded counts of all of them."""

from __future__ import annotations

import numpy as np

from marginweave.counts.candidates import CandidateSet
from marginweave.prepare.codes import EncodedTable, code_type
from tests.support.counting import count_bounded
from tests.support.tables import FixedWords, level_from

SIZES = (2, 3, 5, 7)


def all_candidates(table: EncodedTable, length: int) -> CandidateSet:
    """V_k when every combination of the level below survived."""
    candidates = CandidateSet(length=1, sizes=table.sizes)
    for k in range(1, length):
        survivors = dict.fromkeys(named_cells(candidates), 1)
        candidates = CandidateSet.above(level_from(survivors, k), table.sizes)
    return candidates


def named_cells(candidates: CandidateSet) -> list[tuple[tuple[int, int], ...]]:
    """Every candidate as ((column, value), …)."""
    cells = []
    for columns in candidates.column_sets():
        for values in np.argwhere(candidates.mask(columns)).tolist():
            cells.append(tuple(zip(columns, values, strict=True)))
    return cells


def counted(
    table: EncodedTable, length: int, bound: int = 10**6, seed: int = 0
) -> dict[tuple[tuple[int, int], ...], int]:
    """Bounded counts of a table as a dictionary, zero cells left out."""
    candidates = all_candidates(table, length)
    bounded = count_bounded(table, candidates, bound, FixedWords(seed))
    counts = {}
    for columns, cells, values in zip(
        bounded.column_sets, bounded.cells, bounded.counts, strict=True
    ):
        shape = tuple(table.sizes[j] + 1 for j in columns)
        for cell, value in zip(cells.tolist(), values.tolist(), strict=True):
            position = np.unravel_index(cell, shape)
            counts[tuple(zip(columns, (int(v) for v in position), strict=True))] = value
    return counts


def from_codes(rows: list[tuple[int, ...]]) -> EncodedTable:
    columns = np.array(rows, np.int64).reshape(-1, len(SIZES)).T
    labels = tuple(tuple(f"{'abcd'[j]}{v}" for v in range(size)) for j, size in enumerate(SIZES))
    return EncodedTable(
        codes=tuple(c.astype(code_type(s)) for c, s in zip(columns, SIZES, strict=True)),
        labels=labels,
    )
