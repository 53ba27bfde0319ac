"""Bounds of counts that no measured table has: what every table with the measured counts has in common.

k conditions divide the records into 2^k cells x, one for each subset of conditions that they meet. With A_S the sum over the
cells that meet all conditions in S, n_S = A_S x is measured for some S, and no cell is negative. By the duality of linear
programs, numbers y_S with sum_S y_S A_S >= o in every cell bound o x by sum_S y_S n_S (Hailperin 1965), whatever else is true
of the table: no model is involved. Cells that a rule forbids hold nobody and need no bound.

Of noisy n_S any such y gives sum_S y_S n_S, which is off by noise of a known variance. Two programs find one: each n_S is paid
with as far as its noise reaches, or with a third of that, as noise of several adds up by squares. (Were it paid with less, a
count that noise made negative would be taken many times.) The lesser sum is taken. So y depends on the noise: the probability
that is allowed on a side is shared by 2^k such bounds, their number where a single S is free.
Where noise takes the two ends past each other, or the upper one below 0, a sum is beyond its reach. Then the ends are those
of all tables whose counts are as far from the measured ones as noise reaches. All measured counts are within that reach with
the requested probability. If there is hardly such a table, or none, the reach is doubled until there is one.
DP: post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from marginweave.answers.intervals import Reach
from marginweave.base.arrays import Flags, Floats

_LARGEST_MULTIPLIER = 8.0
"""Largest y of one measured count. Without it, a program whose counts contradict each other would be unbounded."""
_PRICE_SHARES = (1.0, 1 / 3)
"""Shares of the reach of noise that a count is paid with."""
_TABLE_SHARES = tuple(2.0**power for power in range(-1, 20))
"""Shares of the reach of noise by which counts may be off where they contradict each other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownSums:
    """Sums of cells that lie between `low` and `high`, but for noise of the given covariance.

    `sums`, shape (sums, cells), is 1 where a sum includes a cell, else 0. `possible` are the cells that a record may be in.
    """

    sums: Floats
    low: Floats
    high: Floats
    covariance: Floats
    possible: Flags

    def bounds(self, query: Floats, reach: Reach) -> tuple[float, float]:
        """Return ends between which a weighted sum of cells lies, with the probability of `reach`.

        `query` has the weight of each cell, shape (cells,).
        """
        shared_reach = reach.shared_by(len(query))
        margins = [self._margins(shared_reach, share) for share in _PRICE_SHARES]
        # an upper end of -o x is a lower end of o x, so both directions are minimized together
        queries = np.repeat([-query, query], len(_PRICE_SHARES), axis=0)
        margins_of_queries = np.tile(np.stack(margins), (2, 1))
        multipliers = self._multipliers(queries, margins_of_queries)
        upper_ends = [self._upper_end(row, shared_reach) for row in multipliers]
        negated_low_ends, high_ends = np.split(np.array(upper_ends), 2)
        low = -float(negated_low_ends.min())
        high = float(high_ends.min())
        is_count = bool((query >= 0).all())
        lowest_possible = max(low, 0.0) if is_count else low
        if lowest_possible <= high:
            return low, high
        return self._bounds_of_tables(query, shared_reach)

    def _bounds_of_tables(
        self,
        query: Floats,
        reach: Reach,
    ) -> tuple[float, float]:
        """Return the ends over all tables whose counts are within reach of the measured ones.

        The reach is doubled until there is such a table, and then doubled again.
        """
        for share in _TABLE_SHARES:
            low, high = self._bounds_within(query, reach, share)
            if low <= high:
                return self._bounds_within(query, reach, 2 * share)
        raise AssertionError("counts without noise that no table has")

    def _bounds_within(
        self,
        query: Floats,
        reach: Reach,
        share: float,
    ) -> tuple[float, float]:
        """Return the ends over all tables whose counts are within `share` of the reach; crossed if there is no such table."""
        margins = self._margins(reach, share)
        queries = np.stack((-query, query))
        multipliers = self._multipliers(queries, np.stack((margins, margins)))
        negated_low, high = multipliers @ self._prices(margins)
        return -float(negated_low), float(high)

    def _upper_end(self, multipliers: Floats, reach: Reach) -> float:
        """Return the bound sum_S y_S n_S and the reach of its noise, for y given as its positive and negative parts."""
        positive, negative = np.split(multipliers, 2)
        y = positive - negative
        variance = y @ self.covariance @ y
        sd = float(np.sqrt(max(variance, 0.0)))
        bound = float(positive @ self.high - negative @ self.low)
        return bound + reach.of(sd)

    def _margins(self, reach: Reach, share: float) -> Floats:
        """Return `share` of what noise reaches for each sum. Intervals of counts include one such reach already."""
        variances = np.diagonal(self.covariance)
        sds = np.sqrt(np.maximum(variances, 0.0))
        margins: Floats = share * reach.of(1.0) * sds
        widths = self.high - self.low
        return margins + max(share - 1, 0.0) * widths / 2

    def _prices(self, margins: Floats) -> Floats:
        """Return the prices of the positive parts of y, then of its negative parts."""
        return np.concatenate((self.high + margins, margins - self.low))

    def _multipliers(self, queries: Floats, margins: Floats) -> Floats:
        """Return the y_S that give each query its least upper bound, over all tables within the margins.

        Args:
            queries: weights of the cells, shape (queries, cells).
            margins: how far each sum may be off, shape (queries, sums).

        Returns:
            Positive parts of y, then negative parts, shape (queries, 2 * sums). One call solves all programs, which share
            nothing.
        """
        cells = self.sums.T[self.possible]
        prices = np.stack([self._prices(row) for row in margins])
        # minimize prices @ y, with sum_S y_S A_S >= o in every possible cell
        of_query = -np.hstack((cells, -cells))
        constraints = np.kron(np.eye(len(queries)), of_query)
        solution = linprog(
            prices.ravel(),
            A_ub=constraints,
            b_ub=-queries[:, self.possible].ravel(),
            bounds=(0.0, _LARGEST_MULTIPLIER),
            method="highs",
        )
        multipliers = np.asarray(solution.x, np.float64)
        return multipliers.reshape(len(queries), -1)


def subset_sums(conditions: int, subsets: Sequence[int]) -> Floats:
    """Return 1 where a cell meets all conditions of a subset, else 0, shape (subsets, cells).

    Subsets and cells are numbers whose bit i is condition i.
    """
    cells = np.arange(1 << conditions)
    meets = [(cells & subset) == subset for subset in subsets]
    return np.stack(meets).astype(np.float64)
