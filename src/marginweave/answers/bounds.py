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

from marginweave.answers.intervals import Reach
from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.compiled import kernel

_LARGEST_MULTIPLIER = 8.0
"""Largest y of one measured count. Without it, a program whose counts contradict each other would be unbounded."""
_PRICE_SHARES = (1.0, 1 / 3)
"""Shares of the reach of noise that a count is paid with."""
_TABLE_SHARES = tuple(2.0**power for power in range(-1, 20))
"""Shares of the reach of noise by which counts may be off where they contradict each other."""
_LEAST = 1e-9
"""What is closer to 0 in a program is rounding."""


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
        if self._are_in_order(lowest_possible, high):
            return min(low, high), high
        return self._bounds_of_tables(query, shared_reach)

    def _are_in_order(self, low: float, high: float) -> bool:
        """Return whether two ends are in order, but for rounding: without noise they are the same number, computed twice."""
        return low <= high + _LEAST * max(1.0, float(np.abs(self.high).max()))

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
            if self._are_in_order(low, high):
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
            Positive parts of y, then negative parts, shape (queries, 2 * sums).
        """
        sums = np.ascontiguousarray(self.sums[:, self.possible])
        multipliers = np.empty((len(queries), 2 * len(sums)))
        for row, query, margin in zip(multipliers, queries, margins, strict=True):
            row[:] = _least_multipliers(
                sums, query[self.possible], self.low - margin, self.high + margin
            )
        return multipliers


@kernel
def _least_multipliers(
    sums: Floats, query: Floats, low: Floats, high: Floats
) -> Floats:  # pragma: no cover - compiled
    """Return y+, then y-, that have the least high y+ - low y- with sum_S (y+ - y-)_S A_S >= query in every cell.

    They are the prices of the sums in the program over tables x: most query x - 8 (u + v), where A x <= high + u,
    A x >= low - v, and x, u, v >= 0. The simplex method (Dantzig 1951) begins with no records, u and v as large as needed.

    Its tableau has a row for each of these two ends of each sum, and a column for each cell, for what each row has left, and
    for the ends. The column of u or v is the negative of what is left in its row. `basis` has the variable of each row: the
    place of its column, and of u or v the number of columns more. After a step of length 0 the first column that gains enters
    in place of the one that gains most, so that steps do not go in circles (Bland 1977).

    Args:
        sums: shape (sums, cells), as `KnownSums.sums` but for the cells that are possible.
        query: shape (cells,).
        low: lower ends of the sums, shape (sums,).
        high: upper ends of the sums.
    """
    number, cells = sums.shape
    rows = 2 * number
    columns = cells + rows
    tableau = np.zeros((rows + 1, columns + 1))
    basis = np.empty(rows, np.int64)
    tableau[rows, :cells] = query
    for i in range(rows):
        # A x + left = high + u, or left - A x = v - low
        sign = 1.0 if i < number else -1.0
        end = high[i] if i < number else -low[i - number]
        is_beyond = end < 0
        row = tableau[i]
        row[:cells] = sign * sums[i % number]
        row[cells + i] = 1.0
        row[columns] = end
        basis[i] = cells + i
        if is_beyond:
            row *= -1.0
            basis[i] += columns
            tableau[rows] += _LARGEST_MULTIPLIER * row
    _solve_tableau(tableau, basis, cells)
    prices = -tableau[rows, cells:columns]
    return np.minimum(np.maximum(prices, 0.0), _LARGEST_MULTIPLIER)


@kernel
def _solve_tableau(
    tableau: Floats, basis: Integers, cells: int
) -> None:  # pragma: no cover - compiled
    """Change the variables of the basis until none improves the last row, which has the gain by each column."""
    rows = len(basis)
    columns = tableau.shape[1] - 1
    is_stuck = False
    while True:
        entering = _entering(tableau[rows, :columns], cells, is_stuck)
        if entering < 0:
            return
        sign = 1.0 if entering < columns else -1.0
        column = sign * tableau[:rows, entering % columns]
        leaving = -1
        least = np.inf
        for i in range(rows):
            if column[i] > _LEAST:
                length = tableau[i, columns] / column[i]
                is_first = leaving >= 0 and length == least and basis[i] < basis[leaving]
                if length < least or is_first:
                    leaving = i
                    least = length
        if leaving < 0:
            return
        is_stuck = least <= 0.0
        gain = sign * tableau[rows, entering % columns]
        if entering >= columns:
            gain -= _LARGEST_MULTIPLIER
        pivot = tableau[leaving]
        pivot /= column[leaving]
        for i in range(rows):
            if i != leaving and column[i] != 0.0:
                tableau[i] -= column[i] * pivot
                tableau[i, columns] = max(tableau[i, columns], 0.0)
        tableau[rows] -= gain * pivot
        basis[leaving] = entering


@kernel
def _entering(gains: Floats, cells: int, is_stuck: bool) -> int:  # pragma: no cover - compiled
    """Return the variable that improves most for its size, or the first that does; -1 if none does."""
    best = -1
    most = _LEAST
    for j in range(len(gains)):
        gain = gains[j]
        variable = j
        if j >= cells and -gain - _LARGEST_MULTIPLIER > gain:  # u or v in its place
            gain = -gain - _LARGEST_MULTIPLIER
            variable = j + len(gains)
        if gain > most:
            best = variable
            most = gain
            if is_stuck:
                return best
    return best


def subset_sums(conditions: int, subsets: Sequence[int]) -> Floats:
    """Return 1 where a cell meets all conditions of a subset, else 0, shape (subsets, cells).

    Subsets and cells are numbers whose bit i is condition i.
    """
    cells = np.arange(1 << conditions)
    meets = [(cells & subset) == subset for subset in subsets]
    return np.stack(meets).astype(np.float64)
