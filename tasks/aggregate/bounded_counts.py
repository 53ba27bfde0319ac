"""Counts of candidate combinations with every record's contribution bounded.

Two passes over the sets of columns, vectorized over records: how many candidates a record holds, and, for a record that
holds more than the bound, a uniform choice of exactly that many (selection sampling: Knuth, TAOCP 2, 3.4.2, Algorithm S).
A record holds one combination of a set of columns, unless sets of values are among them: then one for every choice of a value
of each. A choice is one step: in it, a record holds one combination at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, product
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from marginweave.tasks.aggregate.candidates import CandidateSet, Mask
from marginweave.tasks.budget.randomness import UniformWords
from marginweave.tasks.encode.codes import Codes, value_slots

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class BoundedCounts:
    """Sparse exact counts of one level: private.

    `cells[i]` and `counts[i]` are the flat positions (in the dense array of `column_sets[i]`) and counts of the cells that
    occur; every other candidate has the count 0.
    """

    column_sets: tuple[tuple[int, ...], ...]
    cells: tuple[NDArray[np.int64], ...]
    counts: tuple[Counts, ...]

    def dense(self, index: int, size: int) -> Counts:
        """All counts of column set `index`, zero cells included; shape (size,)."""
        counts = np.zeros(size, np.int64)
        counts[self.cells[index]] = self.counts[index]
        return counts


def contributions(codes: tuple[Codes, ...], candidates: CandidateSet) -> NDArray[np.int32]:
    """How many candidates each record holds, w_u = |M_k(X_u) ∩ V_k|; shape (records,). Private."""
    held = np.zeros(len(codes[0]), np.int32)
    for _, flat, mask in _cells(codes, candidates):
        held += mask.ravel()[flat]
    return held


def contribution_histogram(held: NDArray[np.int32], cap: int) -> Counts:
    """Number of records that hold c candidates, c = 0 … cap, clipped to the public cap; shape (cap + 1,). Private."""
    return np.bincount(np.minimum(held, cap), minlength=cap + 1).astype(np.int64)


def bounded_counts(
    codes: tuple[Codes, ...], candidates: CandidateSet, held: NDArray[np.int32], bound: int, words: UniformWords
) -> BoundedCounts:
    """Count candidates with at most `bound` a record.

    A record that holds more keeps a uniformly chosen subset of `bound` of them, by randomness of its own that does not
    depend on any other record, so that adding or removing one record changes at most `bound` counts by one each: L0 and
    squared L2 sensitivity `bound`, Linf 1 (twice the L0 under replace-one). Null or outside values hold nothing.
    """
    over = np.flatnonzero(held > bound)
    within = held <= bound
    chooser = _Chooser(left=held[over].astype(np.int64), bound=bound, words=words)
    sets, cells, counts = [], [], []
    for columns, steps in groupby(_cells(codes, candidates), key=itemgetter(0)):
        dense = np.zeros(0, np.int64)
        for _, flat, mask in steps:
            valid = mask.ravel()
            found = np.bincount(flat if within.all() else flat[within], minlength=valid.size)
            found[~valid] = 0
            if len(over):
                mine = flat[over]
                found += np.bincount(mine[chooser.choose(valid[mine])], minlength=valid.size)
            dense = dense + found if len(dense) else found
        occurring = np.flatnonzero(dense)
        sets.append(columns)
        cells.append(occurring)
        counts.append(dense[occurring].astype(np.int64))
    return BoundedCounts(column_sets=tuple(sets), cells=tuple(cells), counts=tuple(counts))


class _Chooser:
    """Selection sampling: in every step keep a candidate with probability needed / left."""

    def __init__(self, *, left: NDArray[np.int64], bound: int, words: UniformWords) -> None:
        self._left = left
        self._needed = np.full(len(left), bound, np.int64)
        self._words = words

    def choose(self, valid: Mask) -> Mask:
        """Which of the records (all of them over the bound) keep their candidate of this step."""
        uniform = (self._words.uniform_words(len(valid)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        chosen: Mask = valid & (uniform * self._left < self._needed)
        self._needed -= chosen
        self._left -= valid
        return chosen


def _cells(
    codes: tuple[Codes, ...], candidates: CandidateSet
) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64], Mask]]:
    """Each set of columns, and each choice among the values of a set, with the flat cell of every record and the mask.

    A cell with a missing value is no candidate of the mask, so that a slot without a value holds nothing. Prefixes are shared
    between steps.
    """
    slots = [list(value_slots(code)) for code in codes]
    prefixes: list[tuple[tuple[int, int], NDArray[np.int64]]] = []
    for columns in candidates.column_sets():
        mask = candidates.mask(columns)
        for choice in product(*(range(len(slots[j])) for j in columns)):
            places = list(zip(columns, choice, strict=True))
            common = 0
            while common < len(prefixes) and prefixes[common][0] == places[common]:
                common += 1
            del prefixes[common:]
            for j, slot in places[len(prefixes) :]:
                flat = slots[j][slot].astype(np.int64)
                if prefixes:
                    flat += prefixes[-1][1] * (candidates.sizes[j] + 1)
                prefixes.append(((j, slot), flat))
            yield columns, prefixes[-1][1], mask
