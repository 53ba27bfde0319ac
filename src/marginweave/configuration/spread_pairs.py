"""Pairs of columns that are measured where there are too many for all: some of each column, and as many of each."""

from __future__ import annotations

import itertools
import math
import random


def spread_pairs(columns: int, number: int) -> tuple[tuple[int, int], ...]:
    """Return at most `number` different pairs of columns, in order, of which each column has equally many, but for few.

    They are neighbors on circles of all columns, each in a random order that is the same for every table of as many columns.
    Of c columns n pairs say as much of a common factor as all would: with fewer, each has less noise. Columns that are next
    to each other in the table are no more often in a pair than others: what they have together would pass for something that
    all have. DP: arithmetic on public numbers.
    """
    if number >= math.comb(columns, 2):
        return tuple(itertools.combinations(range(columns), 2))
    generator = random.Random(0)  # noqa: S311 - public; its numbers are the same in every version of Python
    pairs = set[tuple[int, int]]()
    while len(pairs) < number:
        keys = [generator.random() for _ in range(columns)]
        circle = sorted(range(columns), key=keys.__getitem__)
        for first, second in itertools.pairwise([*circle, circle[0]]):
            if len(pairs) < number:
                pairs.add((min(first, second), max(first, second)))
    return tuple(sorted(pairs))
