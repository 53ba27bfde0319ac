"""Bounds a count whose columns were never measured jointly, by what was measured of some of them.

DP: post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from marginweave.answers.bounds import KnownSums, subset_sums
from marginweave.answers.intervals import EstimateInterval, Reach
from marginweave.answers.least_squares import LeastSquares, NotMeasuredError, Weights
from marginweave.answers.merged import count_between
from marginweave.answers.model import ModelAnswers
from marginweave.answers.rules import AnswerRules
from marginweave.base.arrays import Flags, Floats

MOST_CONDITIONS = 6
"""Conditions that are looked at. A count with more conditions is bounded by the count with this many of them."""


def count_unmeasured(
    squares: LeastSquares,
    model: ModelAnswers,
    rules: AnswerRules,
    weights: Weights,
    reach: Reach,
) -> EstimateInterval:
    """Return bounds of the count of one query, weights of shape (1, codes) that are 0 or 1.

    The estimate is the model's, clipped to the bounds. Counts of fewer conditions are measured, or between what was
    measured around them; or they are the model's, where it is known how far that may be off.
    """
    axes = list(weights)[:MOST_CONDITIONS]
    conditions = {axis: weights[axis] for axis in axes}
    cells = 2 ** len(axes)
    counts = _SubsetCounts(
        squares=squares,
        model=model,
        subset_reach=reach.shared_by(cells),
    )
    for subset in sorted(range(cells), key=lambda number: (number.bit_count(), number)):
        subset_axes = [axis for place, axis in enumerate(axes) if subset >> place & 1]
        counts.add(subset, {axis: conditions[axis] for axis in subset_axes})
    sums = counts.known_sums(len(axes), possible_cells(rules, conditions))
    query = np.zeros(cells)
    query[-1] = 1.0
    low, high = sums.bounds(query, reach)
    if len(axes) < len(weights):
        low = 0.0
    # Round to an integer; ties widen.
    low = max(np.ceil(low - 0.5 - 1e-9), 0.0)
    high = max(np.floor(high + 0.5 + 1e-9), 0.0)
    expected = float(np.rint(model.expected(weights)[0]))
    return EstimateInterval.around(expected, low, high)


@dataclass(kw_only=True)
class _SubsetCounts:
    """Counts of subsets of conditions, collected one by one.

    `measured` has the weights of subsets that a table has, `bounded` low, high and variance of others. `subset_reach` is
    the reach of each subset's interval, such that all of them cover with the level that was asked for.
    """

    squares: LeastSquares
    model: ModelAnswers
    subset_reach: Reach
    measured: dict[int, Weights] = field(default_factory=dict)
    bounded: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def add(self, subset: int, weights: Weights) -> None:
        """Add the count of a subset, if it and those of all subsets one condition smaller are known."""
        if not all(self._has(smaller) for smaller in _smaller_subsets(subset)):
            return
        try:
            self.squares.check_measured(weights)
        except NotMeasuredError as error:
            if error.merged:
                count = count_between(self.squares, weights, self.subset_reach)
                self.bounded[subset] = count.low, count.high, 0.0
            elif self.model.fits(weights) and self.model.knows_length(len(weights)):
                self._add_modelled(subset, weights)
            return
        self.measured[subset] = weights

    def _has(self, subset: int) -> bool:
        return subset in self.measured or subset in self.bounded

    def _add_modelled(self, subset: int, weights: Weights) -> None:
        try:
            solved = self.model.solve(weights)
        except NotMeasuredError:
            return
        estimate = float(solved.values[0])
        variance = float(solved.covariance[0, 0])
        self.bounded[subset] = estimate, estimate, variance

    def known_sums(self, conditions: int, possible: Flags) -> KnownSums:
        """Return the counts of all subsets, with their covariance."""
        solved = self.squares.solve_jointly(list(self.measured.values()))
        bounded = np.array(list(self.bounded.values()), np.float64)
        low, high, variances = bounded.reshape(-1, 3).T
        number = len(self.measured)
        all_variances = np.concatenate((np.zeros(number), variances))
        covariance = np.diag(all_variances)
        covariance[:number, :number] = solved.covariance
        return KnownSums(
            sums=subset_sums(conditions, [*self.measured, *self.bounded]),
            low=np.concatenate((solved.values, low)),
            high=np.concatenate((solved.values, high)),
            covariance=covariance,
            possible=possible,
        )


def _smaller_subsets(subset: int) -> list[int]:
    """Return a subset without each of its conditions."""
    places = [place for place in range(subset.bit_length()) if subset >> place & 1]
    return [subset & ~(1 << place) for place in places]


def possible_cells(rules: AnswerRules, weights: Mapping[int, Floats]) -> Flags:
    """Return which cells of conditions a record may be in. Bit i of the number of a cell is condition i."""
    sides = []
    for axis, vectors in weights.items():
        meets = vectors[0] > 0
        sides.append([(axis, codes, bool(codes.any())) for codes in (~meets, meets)])
    possible = []
    for cell in range(1 << len(sides)):
        chosen = [pair[cell >> place & 1] for place, pair in enumerate(sides)]
        is_possible = all(has_codes for _, _, has_codes in chosen)
        if is_possible and rules.rules:
            is_possible = rules.allow({axis: codes for axis, codes, _ in chosen})
        possible.append(is_possible)
    return np.array(possible)
