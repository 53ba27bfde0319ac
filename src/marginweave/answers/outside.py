"""Counts of conditions whose columns no measured table has together, by what was measured of some of them.

DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from marginweave.answers.bounds import KnownSums, subset_sums
from marginweave.answers.intervals import EstimateInterval, Reach
from marginweave.answers.least_squares import LeastSquares, NotMeasuredError, Weights
from marginweave.answers.merged import count_between
from marginweave.answers.model import ModelAnswers
from marginweave.answers.rules import RuledOut
from marginweave.base.arrays import Flags, Floats

MOST_CONDITIONS = 6
"""Of more columns, counts of so many of them bound that of all."""


def count_outside(
    squares: LeastSquares, model: ModelAnswers, rules: RuledOut, weights: Weights, reach: Reach
) -> EstimateInterval:
    """The count of one query, weights of shape (1, codes) that are 0 or 1: bounds of it, and what the model expects inside.

    Counts of fewer conditions are measured, or between what was measured around them; or they are the model's, where it is
    known how far that may be off.
    """
    narrow = {axis: weights[axis] for axis in list(weights)[:MOST_CONDITIONS]}
    found = _Sums(squares=squares, model=model, reach=replace(reach, level=1 - (1 - reach.level) / 2 ** len(narrow)))
    for subset in sorted(range(2 ** len(narrow)), key=lambda number: (number.bit_count(), number)):
        found.add(subset, {axis: own for place, (axis, own) in enumerate(narrow.items()) if subset >> place & 1})
    known = found.known(len(narrow), possible_cells(rules, narrow))
    asked = np.zeros(2 ** len(narrow))
    asked[-1] = 1.0
    low, high = known.bounds(asked, reach)
    low = low if len(narrow) == len(weights) else 0.0
    low, high = max(np.ceil(low - 0.5 - 1e-9), 0.0), max(np.floor(high + 0.5 + 1e-9), 0.0)
    return EstimateInterval.around(float(np.rint(model.expected(weights)[0])), low, high)


@dataclass(kw_only=True)
class _Sums:
    """Counts of subsets of conditions, as they are found."""

    squares: LeastSquares
    model: ModelAnswers
    reach: Reach
    measured: dict[int, Weights] = field(default_factory=dict)
    beside: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def add(self, subset: int, weights: Weights) -> None:
        """Add what is known of a subset: of the others low, high and variance."""
        if any(part not in self.measured and part not in self.beside for part in _parts(subset)):
            return
        try:
            self.squares.check_measured(weights)
        except NotMeasuredError as error:
            if error.merged:
                found = count_between(self.squares, weights, self.reach)
                self.beside[subset] = found.low, found.high, 0.0
            elif self.model.fits(weights) and self.model.tells_of(len(weights)):
                self._add_modelled(subset, weights)
            return
        self.measured[subset] = weights

    def _add_modelled(self, subset: int, weights: Weights) -> None:
        try:
            solved = self.model.solve(weights)
        except NotMeasuredError:
            return
        estimate = float(solved.values[0])
        self.beside[subset] = estimate, estimate, float(solved.covariance[0, 0])

    def known(self, conditions: int, possible: Flags) -> KnownSums:
        """All of them, with their covariance."""
        solved = self.squares.solve_jointly(list(self.measured.values()))
        low, high, variances = np.array(list(self.beside.values()), np.float64).reshape(-1, 3).T
        number = len(self.measured)
        covariance = np.diag(np.concatenate((np.zeros(number), variances)))
        covariance[:number, :number] = solved.covariance
        return KnownSums(
            sums=subset_sums(conditions, [*self.measured, *self.beside]),
            low=np.concatenate((solved.values, low)),
            high=np.concatenate((solved.values, high)),
            covariance=covariance,
            possible=possible,
        )


def _parts(subset: int) -> list[int]:
    """A subset without each of its conditions."""
    return [subset & ~(1 << place) for place in range(subset.bit_length()) if subset >> place & 1]


def possible_cells(rules: RuledOut, weights: Mapping[int, Floats]) -> Flags:
    """Which cells of conditions a record may be in."""
    chosen = {axis: own[0] > 0 for axis, own in weights.items()}
    found = []
    for met in itertools.product((False, True), repeat=len(chosen)):  # bit i of a cell is condition i
        sides = zip(chosen.items(), reversed(met), strict=True)
        found.append(rules.allow({axis: codes if inside else ~codes for (axis, codes), inside in sides}))
    return np.array(found)
