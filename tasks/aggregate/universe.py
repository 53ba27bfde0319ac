"""The canonical superset of the candidates of one set of columns, in which every combination has a number.

U = {(s, a)}: s a survivor of all columns but the last, a a value of the last column that survived together with the columns
that s has in the middle (all but its first). It contains every candidate once, in canonical order, and its size is a sum;
of length 2 it is the candidates themselves, less what is forbidden. A function of released survivors only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marginweave.schemas.arrays import Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class Universe:
    """Pairs of survivors (s, t) of the columns but the last, and but the first, that agree in the middle.

    `left` and `right` are their sorted flat keys, `radix` that of the last column, `start` where in `right` the partners of
    each s begin, `before` (one longer) how many pairs come before those of each s.
    """

    left: Integers
    right: Integers
    radix: int
    start: Integers
    before: Integers

    @classmethod
    def of_values(cls, size: int) -> Universe:
        """All values of one column."""
        one = np.zeros(1, np.int64)
        return cls(left=one, right=np.arange(size), radix=size + 1, start=one, before=np.array([0, size], np.int64))

    @classmethod
    def join(cls, left: Integers, right: Integers, *, middle: int, radix: int) -> Universe:
        """The pairs of sorted keys; `middle` is the product of the radices of the columns in the middle."""
        shared = left % middle * radix
        start, stop = np.searchsorted(right, shared), np.searchsorted(right, shared + radix)
        before = np.concatenate([[0], np.cumsum(stop - start)])
        return cls(left=left, right=right, radix=radix, start=start, before=before)

    @property
    def size(self) -> int:
        """How many pairs there are."""
        return int(self.before[-1])

    def pairs(self, positions: Integers) -> tuple[Integers, Integers]:
        """Rows of `left` and of `right` that stand at each position; shape of `positions`."""
        row = np.searchsorted(self.before, positions, side="right") - 1
        return row, self.start[row] + positions - self.before[row]

    def stretch(self, first: int, last: int) -> tuple[Integers, Integers]:
        """As `pairs`, of all positions from `first` up to `last`."""
        begin, end = (int(row) for row in np.searchsorted(self.before, [first, last - 1], side="right") - 1)
        edges = np.clip(self.before[begin : end + 2], first, last)
        row = np.repeat(np.arange(begin, end + 1), np.diff(edges))
        return row, self.start[row] + np.arange(first, last) - self.before[row]

    def flat(self, pairs: tuple[Integers, Integers]) -> Integers:
        """Flat keys of pairs, which grow with their position."""
        return self.left[pairs[0]] * self.radix + self.right[pairs[1]] % self.radix
