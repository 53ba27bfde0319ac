"""Pairs of columns that are measured where there are too many for all: some of each column, and as many of each."""

from __future__ import annotations

import hashlib
import itertools
import math


def spread_pairs(columns: int, number: int) -> tuple[tuple[int, int], ...]:
    """Return at most `number` different pairs of columns, in order, of which each column has about equally many.

    They are neighbors on circles of all columns, each in the order of digests of the columns' numbers. So pairs are the same
    in every release, and columns that are next to each other in the table are no more often a pair than others: what they
    have together would pass for something that all have. DP: arithmetic on public numbers.
    """
    if number >= math.comb(columns, 2):
        return tuple(itertools.combinations(range(columns), 2))
    pairs = set[tuple[int, int]]()
    for circle in itertools.count():
        names = [f"{circle} {column}".encode() for column in range(columns)]
        digests = [hashlib.sha256(name).digest() for name in names]
        order = sorted(range(columns), key=digests.__getitem__)
        for first, second in itertools.pairwise([*order, order[0]]):
            pairs.add((min(first, second), max(first, second)))
            if len(pairs) == number:
                return tuple(sorted(pairs))
    raise AssertionError
