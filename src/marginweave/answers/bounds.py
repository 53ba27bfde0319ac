"""Bounds of counts that no measured table has: what every table with the measured counts has in common.

k conditions divide the records into 2^k cells x, one for each subset of conditions that they meet. With A_S the sum over the
cells that meet all conditions in S, n_S = A_S x is measured for some S, and no cell is negative. By the duality of linear
programs, numbers y_S with sum_S y_S A_S >= o in every cell bound o x by sum_S y_S n_S (Hailperin 1965), whatever else is true
of the table: no model is involved. Cells that a rule forbids hold nobody and need no bound.

Of noisy n_S any such y gives sum_S y_S n_S, which is off by noise of a known variance. Two programs find one: each n_S is paid
with as far as its noise reaches, or with a third of that, as noise of several adds up by squares. (Were it paid with less, a
count that noise made negative would be taken many times.) The lesser sum is taken. So y depends on the noise: the probability
that is allowed on a side is shared by 2^k such bounds, so many as there are where one S alone is free.
Where noise takes the two ends past each other, or the upper one below 0, a sum is beyond its reach. Then the ends are those
of all tables whose counts are as far from the measured ones as noise reaches, which all of them are together with the
probability that is asked for. If there is hardly such a table, or none, it is twice, four times, … as far.
DP: post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog

from marginweave.answers.intervals import Reach
from marginweave.base.arrays import Flags, Floats

_LARGEST = 8.0
"""Of one measured count; without it a program whose counts contradict each other had no end."""
_PAID = (1.0, 1 / 3)
"""Of how far noise reaches: what a count is paid with."""
_SHARES = tuple(2.0**power for power in range(-1, 20))
"""Of how far noise reaches: how far counts are off where they contradict each other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownSums:
    """Sums of cells between `low` and `high`, but for noise of this covariance; `sums`, shape (sums, cells), says of which.

    `possible` are the cells that a record may be in.
    """

    sums: Floats
    low: Floats
    high: Floats
    covariance: Floats
    possible: Flags

    def bounds(self, asked: Floats, reach: Reach) -> tuple[float, float]:
        """Ends between which the sum of cells lies, each times what `asked` has of it, with the probability of `reach`."""
        shared = replace(reach, level=1 - (1 - reach.level) / len(asked))
        margins = np.stack([self._margins(shared, share) for share in _PAID])
        taken = self._taken(np.repeat([-asked, asked], len(_PAID), axis=0), np.tile(margins, (2, 1)))
        below, above = np.split(np.array([self._upper(row, shared) for row in taken]), 2)
        low = -float(below.min())
        high = float(above.min())
        is_count = bool((asked >= 0).all())
        return (low, high) if (max(low, 0.0) if is_count else low) <= high else self._of_tables(asked, shared)

    def _of_tables(self, asked: Floats, reach: Reach) -> tuple[float, float]:
        """What all tables have whose counts are within their reach, or within twice the share of it that leaves a table."""
        for share in _SHARES:
            low, high = self._within(asked, reach, share)
            if low <= high:
                return self._within(asked, reach, 2 * share)
        raise AssertionError("counts without noise that no table has")

    def _within(self, asked: Floats, reach: Reach, share: float) -> tuple[float, float]:
        margins = self._margins(reach, share)
        less, most = self._taken(np.stack((-asked, asked)), np.stack((margins, margins))) @ self._prices(margins)
        return -float(less), float(most)

    def _upper(self, taken: Floats, reach: Reach) -> float:
        more, less = np.split(taken, 2)
        sd = float(np.sqrt(max((more - less) @ self.covariance @ (more - less), 0.0)))
        return float(more @ self.high - less @ self.low) + reach.of(sd)

    def _margins(self, reach: Reach, share: float) -> Floats:
        """This share of what noise reaches, which intervals of counts have inside."""
        margins: Floats = share * reach.of(1.0) * np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))
        return margins + max(share - 1, 0.0) * (self.high - self.low) / 2

    def _prices(self, margins: Floats) -> Floats:
        return np.concatenate((self.high + margins, margins - self.low))

    def _taken(self, asked: Floats, margins: Floats) -> Floats:
        """How often each sum is taken, from above and from below, for the least bound of all tables within the margins.

        A row for each row of both; one call solves all programs, which share nothing.
        """
        cells = self.sums.T[self.possible]
        prices = np.stack([self._prices(row) for row in margins])
        solved = linprog(
            prices.ravel(),
            A_ub=np.kron(np.eye(len(asked)), -np.hstack((cells, -cells))),
            b_ub=-asked[:, self.possible].ravel(),
            bounds=(0.0, _LARGEST),
            method="highs",
        )
        return np.asarray(solved.x, np.float64).reshape(len(asked), -1)


def subset_sums(conditions: int, subsets: Sequence[int]) -> Floats:
    """Which cells meet all conditions of a subset; subsets and cells are numbers whose bit i is condition i."""
    cells = np.arange(1 << conditions)
    return np.stack([(cells & subset) == subset for subset in subsets]).astype(np.float64)
