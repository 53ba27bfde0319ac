"""Answers from measured marginals, by generalised least squares: counts, shares, means and quantiles.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from marginweave.answers.answer import Answer, How
from marginweave.answers.codes import MISSING, Chosen, Codes, ValueRange
from marginweave.answers.intervals import EstimateInterval, Reach, count_interval_of, quantile_bins, ratio_interval
from marginweave.answers.least_squares import Estimates, LeastSquares, NotMeasuredError, Weights
from marginweave.answers.merged import count_between
from marginweave.base.arrays import Floats, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.question import Question
from marginweave.configuration.values import listed

if TYPE_CHECKING:
    from marginweave.answers.model import ModelAnswers  # numba

Factor = tuple[int, Floats]
"""An attribute, by its place, and the weight of each of its codes."""

_RESTS = "rests on the model"
_TOO_FEW = "do not use: too few records for their noise"
_NOBODY = "no value meets the conditions"


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginalAnswers:
    """Answers questions inside measured sets of attributes, which are `sets`, each by its names.

    `axes` has the axis of each attribute, and its code for each code of the axis. `sampled` says why the table is no simple
    sample of a population; None where it may be one. `model` is asked for what is outside; None where there is none.
    """

    squares: LeastSquares | ModelAnswers
    codes: Codes
    axes: dict[int, tuple[int, Integers]]
    sets: Sequence[tuple[str, ...]]
    sampled: str | None = None
    model: Callable[[], ModelAnswers | None] = lambda: None

    def ask(self, question: Question) -> Iterator[Answer]:
        """An answer for each group of a question.

        Raises:
            InputError: it names what was not counted, or a population that the table is no simple sample of.
        """
        if question.of == "population" and self.sampled:
            raise InputError(f"--of population is not possible: {self.sampled}; ask --of table")
        where = [_factor(chosen) for chosen in self.codes.conditions(question)]
        numbers = self.codes.numbers(question.column) if question.column else None
        for group in self.codes.groups(question):
            own = [_factor(chosen) for chosen in group.chosen]
            found, flag, how = self._best(question, where, own, numbers)
            ends = (None,) * 3 if found is None else (found.estimate, found.low, found.high)
            estimate, low, high = (None if end is None else end + 0 for end in ends)  # a clipped -0.0 is 0
            yield Answer(
                question=question.words,
                group=group.labels,
                estimate=estimate,
                low=low,
                high=high,
                noise_sd=found.sd if found else None,
                level=question.level,
                of=question.of,
                how=how,
                flag=_NOBODY if _met_by_none([*where, *own]) else flag,
            )

    def _best(
        self, question: Question, where: list[Factor], own: list[Factor], numbers: ValueRange | None
    ) -> tuple[EstimateInterval | None, str, How]:
        """The answer by what was measured, else by the model, else the reason why there is none."""
        try:
            return *self._answer(question, where, own, numbers), "measured"
        except NotMeasuredError as error:
            merged, model = error.merged, None if error.merged else self.model()
        if model is not None:
            with suppress(NotMeasuredError):
                found, flag = replace(self, squares=model)._answer(question, where, own, numbers)  # noqa: SLF001 - its own
                return found, flag or _RESTS, "model"
            merged = True
        asked = [*where, *own, *([(numbers.place, numbers.low)] if numbers else [])]
        return None, self._refusal(asked, merged=merged), "measured"

    def _answer(
        self, question: Question, where: list[Factor], own: list[Factor], numbers: ValueRange | None
    ) -> tuple[EstimateInterval, str]:
        reach = Reach(level=question.level, pure=self.squares.measured.pure)
        sampled = question.of == "population"
        if numbers is not None:
            if question.asked in ("mean", "sum"):
                return self._adding(question, where + own, numbers, reach)
            return _quantile(self, [*where, *own], numbers, reach, question.fraction, sampled=sampled)
        if question.asked == "share":
            try:
                return _share(self.solve([[*where, *own], own]), reach, sampled=sampled)
            except NotMeasuredError as error:
                if not error.merged or sampled:
                    raise
            return _share_between(self._count([*where, *own], reach.each), self._count(own, reach.each))
        found = self._count([*where, *own], reach)
        alone = (found.high - found.low) / 2 if found.sd is None else reach.of(found.sd)
        return found, f"do not use: noise alone reaches {alone:.0f}" if (found.estimate or 0.0) < alone else ""

    def _count(self, factors: Iterable[Factor], reach: Reach) -> EstimateInterval:
        """A count, also of values some of which were measured together with others; without its `sd` there."""
        weights = self._weights([factors])
        try:
            solved = self.squares.solve(weights)
        except NotMeasuredError as error:
            if not error.merged:
                raise
            return count_between(self.squares, weights, reach)
        return count_interval_of(float(solved.values[0]), float(solved.covariance[0, 0]), reach)

    def solve(self, queries: Sequence[Iterable[Factor]]) -> Estimates:
        """Estimates of queries, each a product of weights of attributes. Raises NotMeasuredError."""
        found = self._weights(queries)
        solved = self.squares.solve(found)
        if found or len(queries) == 1:
            return solved
        return Estimates(  # all ask for the number of records
            values=np.repeat(solved.values, len(queries)),
            covariance=np.full((len(queries), len(queries)), solved.covariance[0, 0]),
        )

    def _weights(self, queries: Sequence[Iterable[Factor]]) -> Weights:
        weights: dict[int, Floats] = {}
        for row, factors in enumerate(queries):
            for place, vector in factors:
                axis, codes = self.axes[place]
                table = weights.setdefault(axis, np.ones((len(queries), len(codes))))
                table[row] *= vector[codes]
        return {axis: weights[axis] for axis in sorted(weights)}

    def _adding(
        self, question: Question, records: list[Factor], numbers: ValueRange, reach: Reach
    ) -> tuple[EstimateInterval, str]:
        """The mean or the sum; where values were measured together, each of them lies anywhere in their range."""

        def found(numbers: ValueRange) -> tuple[EstimateInterval, str]:
            if question.asked == "sum":
                return _sum(self, records, numbers, reach)
            return _mean(self, records, numbers, reach, sampled=question.of == "population")

        try:
            return found(numbers)
        except NotMeasuredError:
            for part in self.squares.measured.parts:
                if part.axis == numbers.place and part.size < len(part.blocks):
                    with suppress(NotMeasuredError):
                        return found(numbers.together(part.blocks))
            raise

    def _refusal(self, factors: Iterable[Factor], *, merged: bool) -> str:
        configuration = self.codes.configuration
        asked = {configuration.attributes[place].name: vector for place, vector in factors}
        names = set(asked)
        if merged:
            told = [words for name, vector in asked.items() if (words := self._merged(name, vector))]
            return f"not measured alone: rare values were measured together ({'; '.join(told)}); ask for all of them at once"
        near = sorted(self.sets, key=lambda s: (-len(names & {*s}), len(s)))[:3]
        shown = "; ".join(", ".join(s) for s in near) or "single columns"
        return f"not measured: {listed(sorted(names))} are in no measured set together; nearest: {shown}"

    def _merged(self, name: str, weights: Floats) -> str:
        """The values that were measured together, and of which a question asks for some."""
        place = next(j for j, a in enumerate(self.codes.configuration.attributes) if a.name == name)
        axis, codes = self.axes[place]
        labels, found = (*self.codes.domain.labels[place], MISSING), dict[str, None]()
        for part in self.squares.measured.parts:
            if part.axis == axis and len(weights):
                for block in np.flatnonzero(np.bincount(part.blocks) > 1).tolist():
                    mine = np.unique(codes[part.blocks == block])
                    if np.unique(weights[mine]).size > 1:
                        found[", ".join(labels[code] for code in mine.tolist())] = None
        return f"{name}: {listed(list(found))}" if found else ""


def _factor(chosen: Chosen) -> Factor:
    return chosen.place, chosen.codes.astype(np.float64)


def _met_by_none(factors: Iterable[Factor]) -> bool:
    met = dict[int, Floats]()
    for place, vector in factors:
        met[place] = vector * met.get(place, 1.0)
    return not all(vector.any() for vector in met.values())


def _share(solved: Estimates, reach: Reach, *, sampled: bool) -> tuple[EstimateInterval, str]:
    records = max(float(solved.values[1]), 0.0)
    sampling = (0.0, records, -records) if sampled else (0.0, 0.0, 0.0)
    ends = ratio_interval(solved.values, solved.covariance, reach, (0.0, 1.0), sampling)
    if ends is None:
        return EstimateInterval(estimate=None, low=0.0, high=1.0), _TOO_FEW
    estimate = float(solved.values[0] / solved.values[1])
    return EstimateInterval(estimate=min(max(estimate, ends[0]), ends[1]), low=ends[0], high=ends[1]), ""


def _share_between(part: EstimateInterval, whole: EstimateInterval) -> tuple[EstimateInterval, str]:
    if whole.low <= 0 or not whole.estimate:
        return EstimateInterval(estimate=None, low=0.0, high=1.0), _TOO_FEW
    low, high = part.low / whole.high, min(part.high / whole.low, 1.0)
    return EstimateInterval(
        estimate=min(max((part.estimate or 0.0) / whole.estimate, low), high), low=low, high=high
    ), ""


def _mean(
    answers: MarginalAnswers, records: list[Factor], numbers: ValueRange, reach: Reach, *, sampled: bool
) -> tuple[EstimateInterval, str]:
    """The mean of midpoints, between the means of lower and of upper ends, each with its noise."""
    known = np.isfinite(numbers.low)
    low, high = np.where(known, numbers.low, 0.0), np.where(known, numbers.high, 0.0)
    middle = (low + high) / 2
    weights = [low, high, middle, middle**2, known.astype(np.float64)]
    solved = answers.solve([[*records, (numbers.place, vector)] for vector in weights])
    limits = float(np.nanmin(numbers.low)), float(np.nanmax(numbers.high))
    count, squares = float(solved.values[4]), float(solved.values[3])
    ends: list[float] = []
    for place in (0, 1):
        both, total = [place, 4], float(solved.values[place])
        sampling = (max(squares, total**2 / count), -2 * total, count) if sampled and count > 0 else (0.0, 0.0, 0.0)
        found = ratio_interval(solved.values[both], solved.covariance[np.ix_(both, both)], reach, limits, sampling)
        if found is None:
            return EstimateInterval(estimate=None, low=limits[0], high=limits[1]), _TOO_FEW
        ends.append(found[place])
    estimate = float(solved.values[2]) / count
    return EstimateInterval(estimate=min(max(estimate, ends[0]), ends[1]), low=ends[0], high=ends[1]), ""


def _sum(
    answers: MarginalAnswers, records: list[Factor], numbers: ValueRange, reach: Reach
) -> tuple[EstimateInterval, str]:
    """The sum of midpoints, from that of lower to that of upper ends, each with its noise; what is no number adds nothing."""
    low, high = np.nan_to_num(numbers.low), np.nan_to_num(numbers.high)
    solved = answers.solve([[*records, (numbers.place, vector)] for vector in (low, high, (low + high) / 2)])
    sds = np.sqrt(np.maximum(np.diagonal(solved.covariance), 0.0)).tolist()
    ends = solved.values[0] - reach.of(sds[0]), solved.values[1] + reach.of(sds[1])
    found = EstimateInterval(estimate=float(solved.values[2]), low=float(ends[0]), high=float(ends[1]), sd=sds[2])
    alone = reach.of(sds[2])
    return found, f"do not use: noise alone reaches {alone:.0f}" if abs(solved.values[2]) < alone else ""


def _quantile(
    answers: MarginalAnswers, records: list[Factor], numbers: ValueRange, reach: Reach, q: float, *, sampled: bool
) -> tuple[EstimateInterval, str]:
    """The values between which the quantile lies, found by the intervals of the shares below; a bin counts with its ends."""
    order = np.argsort(np.where(np.isfinite(numbers.low), numbers.low, np.inf), kind="stable")
    order = order[: int(np.isfinite(numbers.low).sum())]
    known = np.isfinite(numbers.low).astype(np.float64)
    steps = []
    for place in range(len(order)):
        upto = np.zeros(len(known))
        upto[order[: place + 1]] = 1.0
        steps.append(upto)
    solved = answers.solve([[*records, (numbers.place, vector)] for vector in (*steps, known)])
    total = float(solved.values[-1])
    contrast = np.hstack((np.eye(len(order)), np.full((len(order), 1), -q)))
    below = contrast @ solved.values
    variances = np.einsum("ij,jk,ik->i", contrast, solved.covariance, contrast)
    variances += max(total, 0.0) * q * (1 - q) if sampled else 0.0
    below[-1], variances[-1] = max(below[-1], 0.0), max(variances[-1], 0.0)  # all records lie below the last end
    chosen = np.flatnonzero(quantile_bins(below, np.sqrt(np.maximum(variances, 0.0)), reach))
    lows, highs = numbers.low[order], numbers.high[order]
    few = total <= reach.of(math.sqrt(max(float(solved.covariance[-1, -1]), 0.0)))
    if few or not len(chosen):
        return EstimateInterval(estimate=None, low=float(lows[0]), high=float(highs[-1])), _TOO_FEW
    counts = np.maximum.accumulate(np.clip(solved.values[:-1], 0.0, None))
    place = int(np.searchsorted(counts, q * counts[-1]))
    before = counts[place - 1] if place else 0.0
    share = (q * counts[-1] - before) / (counts[place] - before) if counts[place] > before else 0.5
    low, high = float(lows[chosen[0]]), float(highs[chosen[-1]])
    estimate = float(lows[place] + share * (highs[place] - lows[place]))
    return EstimateInterval(estimate=min(max(estimate, low), high), low=low, high=high), ""
