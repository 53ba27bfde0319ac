"""Answers from measured marginals, by generalised least squares: counts, shares, means and quantiles.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from marginweave.answers.answer import MAY_BE_NONE, Answer, How
from marginweave.answers.codes import Chosen, Codes, ValueRange
from marginweave.answers.intervals import EstimateInterval, Reach, count_interval_of
from marginweave.answers.least_squares import Estimates, LeastSquares, NotMeasuredError, Weights
from marginweave.answers.merged import count_between
from marginweave.answers.quantities import (
    SAYS_NOTHING,
    Factor,
    mean_between,
    mean_of,
    quantile_between,
    quantile_of,
    share_between,
    share_of,
    sum_between,
    sum_of,
)
from marginweave.answers.rules import NO_RULES, RuledOut
from marginweave.base.arrays import Flags, Floats
from marginweave.base.errors import InputError
from marginweave.base.progress import listener
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.question import Question
from marginweave.configuration.values import listed

if TYPE_CHECKING:
    from marginweave.answers.model import ModelAnswers  # numba

_RESTS = "rests on the model"
_BETWEEN = "not measured: low and high follow from what was, the estimate from the model"
_BETWEEN_FITS = "not measured: low and high follow from what was, and from how far left-out sets are from a fit"
_NONE_TO_ALL = f"{MAY_BE_NONE}, or as many as its single columns allow"
_UNCLAIMED = "rests on the model: nothing says how often such an interval covers the truth"
_NO_MORE = "do not use: it may be anything that its single columns allow"
_NOBODY = "no value meets the conditions"
_NO_SUCH = "a rule allows no such record"
_NOTHING = 0.9
"""Of the range that an answer may have, or that single columns leave a count: an interval as long as that says nothing."""
_SMALL = 0.05
"""Of all records: a count that is known to be no larger is known well enough, whatever its single columns say."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Said:
    """What is said of one group: an interval, why it should not be used, where it is from, and whether it covers as asked."""

    found: EstimateInterval | None
    flag: str
    how: How | None = "measured"
    claimed: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginalAnswers:
    """Answers questions inside measured sets of attributes, which are `sets`, each by its names.

    `sampled` says why the table is no simple sample of a population; None where it may be one. `model` is asked for what is
    outside; None where there is none. `rules` are those that every record keeps. `undeclared` has, by attribute, how many of
    its cells were found not to be as declared, in words.
    """

    squares: LeastSquares | ModelAnswers
    codes: Codes
    sets: Sequence[tuple[str, ...]]
    sampled: str | None = None
    model: Callable[[], ModelAnswers | None] = lambda: None
    rules: RuledOut = NO_RULES
    undeclared: Mapping[str, str] = field(default_factory=dict)

    def ask(self, question: Question) -> Iterator[Answer]:
        """An answer for each group of a question.

        Raises:
            InputError: it names what was not counted, or a population that the table is no simple sample of.
        """
        if question.of == "population" and self.sampled:
            raise InputError(f"--of population is not possible: {self.sampled}; ask --of table")
        where = [_factor(chosen) for chosen in self.codes.conditions(question)]
        numbers = self.codes.numbers(question.column) if question.column else None
        groups = list(self.codes.groups(question))
        say = listener()
        for number, group in enumerate(groups, 1):
            say(f"answer {number:,} of {len(groups):,}")
            own = [_factor(chosen) for chosen in group.chosen]
            said = self.said(question, where, own, numbers)
            found = said.found
            ends = (None,) * 3 if found is None else (found.estimate, found.low, found.high)
            estimate, low, high = (  # what has no end has none in an answer, and a clipped -0.0 is 0
                None if end is None or math.isinf(end) else end + 0 for end in ends
            )
            yield Answer(
                question=question.words,
                group=group.labels,
                estimate=estimate,
                low=low,
                high=high,
                noise_sd=found.sd if found else None,
                level=question.level if said.claimed and found is not None else None,
                of=self.codes.about(question.of, (place for place, _ in (*where, *own))),
                how=said.how,
                flag="; ".join(filter(None, (said.flag, self._without_value(numbers if found else None)))),
            )

    def _without_value(self, numbers: ValueRange | None) -> str:
        """Of which cells of a column no mean, sum or quantile knows a number, though nothing declares that they lack one."""
        name = None if numbers is None else self.codes.configuration.attributes[numbers.place].name
        words = self.undeclared.get(name or "", "")
        return f"in the whole table {words[:1].lower()}{words[1:]}, and are left out" if words else ""

    def said(self, question: Question, where: list[Factor], own: list[Factor], numbers: ValueRange | None) -> Said:
        """What rules say of a group, else the best answer; flagged where it says nothing."""
        chosen = self._chosen([*where, *own])
        limits = (0.0, 1.0) if numbers is None else _limits(numbers)
        if not self.rules.allow(chosen):
            excluded = self._forbidden(question, self._chosen(own))
            conditions_exclude_each_other = not all(codes.any() for codes in chosen.values())
            return replace(excluded, flag=_NOBODY) if conditions_exclude_each_other else excluded
        if numbers is not None:
            possible = self._possible_values(numbers, chosen)
            if not numbers.known[possible].any():
                return self._forbidden(question, self._chosen(own))
            numbers = self._possible_numbers(numbers, possible)
        said = self._best(question, where, own, numbers)
        if question.asked == "share" and self._all_meet(where, own):
            return Said(found=EstimateInterval(estimate=1.0, low=1.0, high=1.0), flag="", how="rule")
        found = said.found
        if found is None or said.flag.startswith("do not"):
            return said
        if question.asked == "count":
            return replace(said, flag=self._count_flag(found, [*where, *own], said.flag))
        possible = limits[1] - limits[0]  # of open bins infinite, and then `quantile_of` says whether one end is known
        says_nothing = math.isfinite(possible) and found.high - found.low >= _NOTHING * possible
        return replace(said, flag=SAYS_NOTHING) if says_nothing and question.asked != "sum" else said

    def _unbounded(self, numbers: ValueRange) -> str:
        """Why numbers with open bins have no mean or sum, and what to ask instead."""
        attribute = self.codes.configuration.attributes[numbers.place]
        labels = self.codes.domain.labels[numbers.place]
        has_end = np.isfinite(numbers.low) & np.isfinite(numbers.high)
        opened = listed(
            [label for label, ends, known in zip(labels, has_end, numbers.known, strict=False) if known > ends]
        )
        column = self.codes.configuration.columns[attribute.column]
        assert isinstance(column, NumberColumn)  # nothing else has open bins
        ends = np.array(column.ends)
        inner = ends[np.isfinite(ends).all(axis=1)]
        least, most = inner.min(), inner.max()
        return (
            f"no mean or sum of {attribute.column!r} is known, as its bins {opened} have no end; ask for what lies between, "
            f'with --where "{attribute.column} >= {least:g}" --where "{attribute.column} < {most:g}", or release it with '
            "bounds beyond its bins, to which numbers are clamped"
        )

    @cached_property
    def records(self) -> float:
        """About how many records there are."""
        return float(self.solve([[]]).values[0])

    def _count_flag(self, found: EstimateInterval, records: list[Factor], rests_on: str) -> str:
        """Why a count should not be used, else what it rests on, and whether there may be none."""
        length = found.high - found.low
        may_be_none = found.low <= 0 < found.high
        is_small = length <= _SMALL * self.records
        if length >= _NOTHING * self.records:
            return SAYS_NOTHING
        if is_small and not may_be_none:
            return rests_on
        says_no_more = length >= _NOTHING * self._length_by_columns(records)
        if says_no_more and not is_small:
            return _NO_MORE
        none = _NONE_TO_ALL if says_no_more else MAY_BE_NONE
        return "; ".join(filter(None, (rests_on, none if may_be_none else "")))

    def _length_by_columns(self, records: list[Factor]) -> float:
        """The length of the range that single columns leave a count."""
        columns = self._weights([records])
        counts = [float(self.squares.single_axes.solve({axis: codes}).values[0]) for axis, codes in columns.items()]
        if len(counts) < 2:
            return self.records
        return max(min(counts) - max(sum(counts) - (len(counts) - 1) * self.records, 0.0), 1.0)

    def _forbidden(self, question: Question, group: dict[int, Flags]) -> Said:
        """What is said of records that no rule allows: there are none, and they have no mean, quantile or shares."""
        if question.asked in ("count", "sum") or (question.asked == "share" and self.rules.allow(group)):
            sd = None if question.asked == "share" else 0.0
            return Said(found=EstimateInterval(estimate=0.0, low=0.0, high=0.0, sd=sd), flag="", how="rule")
        return Said(found=None, flag=_NO_SUCH, how="rule")

    def _all_meet(self, where: list[Factor], own: list[Factor]) -> bool:
        """Whether rules forbid every record of a group that breaks a condition."""
        group = self._chosen(own)
        for axis, met in self._chosen([*where, *own]).items():
            others = group.get(axis, np.ones(len(met), np.bool_)) & ~met
            if self.rules.allow({**group, axis: others}):
                return False
        return True

    def _possible_values(self, numbers: ValueRange, chosen: dict[int, Flags]) -> Flags:
        """Which codes of a column of numbers a record with chosen codes may have."""
        everything = chosen.get(numbers.place, np.ones(len(numbers.low), np.bool_))
        return self.rules.possible_codes(numbers.place, everything, chosen)

    def _possible_numbers(self, numbers: ValueRange, kept: Flags) -> ValueRange:
        """The numbers of the codes that are kept, where tables tell them from the others."""
        axis = numbers.place
        parts = [part for part in self.squares.measured.parts if part.axis == axis]
        possible_rows = kept.astype(np.float64)
        apart = all(np.array_equal(part.values(possible_rows[None])[0][part.blocks], possible_rows) for part in parts)
        if not apart:
            return numbers
        return replace(numbers, low=np.where(kept, numbers.low, np.nan), high=np.where(kept, numbers.high, np.nan))

    def _chosen(self, factors: Iterable[Factor]) -> dict[int, Flags]:
        """By axis the codes that factors, at least one for it, have weights of."""
        return {axis: weights[0] > 0 for axis, weights in self._weights([factors]).items()}

    def _best(self, question: Question, where: list[Factor], own: list[Factor], numbers: ValueRange | None) -> Said:
        """The answer by what was measured, else by bounds or the model, else the reason why there is none."""
        if numbers is not None and question.asked in ("mean", "sum") and not numbers.is_bounded:
            return Said(found=None, flag=self._unbounded(numbers), how=None)
        try:
            found, flag = self._answer(question, where, own, numbers)
            return Said(found=found, flag=flag)
        except NotMeasuredError as error:
            merged, model = error.merged, None if error.merged else self.model()
        if model is not None:
            with suppress(NotMeasuredError):
                return self._outside(question, where, own, numbers, model)
            merged = True
        asked = [*where, *own, *([(numbers.place, numbers.low)] if numbers else [])]
        return Said(found=None, flag=self._refusal(asked, merged=merged), how=None)

    def _outside(
        self,
        question: Question,
        where: list[Factor],
        own: list[Factor],
        numbers: ValueRange | None,
        model: ModelAnswers,
    ) -> Said:
        """The answer to what no measured table has: by the model where its misfit is known, else by bounds, else unclaimed."""
        asked = [*where, *own, *([(numbers.place, np.ones(len(numbers.low)))] if numbers else [])]
        modelled, known = replace(self, squares=model), model.knows([*self._weights([asked])])
        if known or question.of == "population" or question.asked in ("mean", "sum"):
            found, flag = modelled._answer(question, where, own, numbers)  # noqa: SLF001 - its own
            return Said(found=found, flag=flag or (_RESTS if known else _UNCLAIMED), how="model", claimed=known)
        reach = Reach(level=question.level, tails=self.squares.measured.tails)
        if numbers is not None:
            found, flag = quantile_between(self._count_anyhow, [*where, *own], numbers, reach, question.fraction)
        elif question.asked == "share":
            counts = (self._count_anyhow(factors, reach.each) for factors in ([*where, *own], own))
            found, flag = share_between(*counts)
        else:
            found = self._count_anyhow([*where, *own], reach)
            flag = ""
        return Said(found=found, flag=flag or (_BETWEEN_FITS if model.chosen else _BETWEEN), how="bounds")

    def _answer(
        self, question: Question, where: list[Factor], own: list[Factor], numbers: ValueRange | None
    ) -> tuple[EstimateInterval, str]:
        reach = Reach(level=question.level, tails=self.squares.measured.tails)
        sampled = question.of == "population"
        if numbers is not None:
            if question.asked in ("mean", "sum"):
                try:
                    return self._adding(question, where + own, numbers, reach)
                except NotMeasuredError as error:
                    if not error.merged or sampled:
                        raise
                return self._adding_between(question, where + own, numbers, reach)
            return self._quantile(question, where + own, numbers, reach)
        if question.asked == "share":
            try:
                return share_of(self.solve([[*where, *own], own]), reach, sampled=sampled)
            except NotMeasuredError as error:
                if not error.merged or sampled:
                    raise
            return share_between(self._count([*where, *own], reach.each), self._count(own, reach.each))
        return self._count([*where, *own], reach), ""

    def _count(self, factors: Sequence[Factor], reach: Reach) -> EstimateInterval:
        """A count, also of values some of which were measured together with others; without its `sd` there.

        Values that no rule allows beside the others are left out where that has less noise.
        """
        weights = self._weights([factors])
        try:
            solved = self.squares.solve(weights)
        except NotMeasuredError as error:
            if not error.merged:
                raise
            return count_between(self.squares, weights, reach)
        possible = self.rules.possible({axis: own[0] > 0 for axis, own in weights.items()})
        if any((own[0] * ~possible[axis]).any() for axis, own in weights.items()):
            with suppress(NotMeasuredError):
                less = self.squares.solve({axis: own * possible[axis] for axis, own in weights.items()})
                solved = min(solved, less, key=lambda one: float(one.covariance[0, 0]))
        return count_interval_of(float(solved.values[0]), float(solved.covariance[0, 0]), reach)

    def _count_anyhow(self, factors: Sequence[Factor], reach: Reach) -> EstimateInterval:
        """A count as it was measured, or between bounds."""
        try:
            return self._count(factors, reach)
        except NotMeasuredError as error:
            model = self.model()
            if error.merged or model is None or not isinstance(self.squares, LeastSquares):
                raise
        from marginweave.answers.outside import count_outside  # numba

        return count_outside(self.squares, model, self.rules, self._weights([factors]), reach)

    def _quantile(
        self, question: Question, records: list[Factor], numbers: ValueRange, reach: Reach
    ) -> tuple[EstimateInterval, str]:
        """A quantile; where values were measured together, between the counts of none and of all of them."""
        sampled = question.of == "population"
        try:
            return quantile_of(self.solve, records, numbers, reach, question.fraction, sampled=sampled)
        except NotMeasuredError as error:
            if not error.merged or sampled:
                raise
        return quantile_between(self._count, records, numbers, reach, question.fraction)

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
                table = weights.setdefault(place, np.ones((len(queries), len(vector))))
                table[row] *= vector
        return {axis: weights[axis] for axis in sorted(weights)}

    def _adding(
        self, question: Question, records: list[Factor], numbers: ValueRange, reach: Reach
    ) -> tuple[EstimateInterval, str]:
        """The mean or the sum; where values were measured together, each of them lies anywhere in their range."""

        def found(numbers: ValueRange) -> tuple[EstimateInterval, str]:
            if question.asked == "sum":
                total = self.squares.measured.total
                return sum_of(self.solve, records, numbers, reach, math.inf if total is None else total)
            return mean_of(self.solve, records, numbers, reach, sampled=question.of == "population")

        try:
            return found(numbers)
        except NotMeasuredError:
            for part in self.squares.measured.parts:
                if part.axis == numbers.place and part.size < len(part.blocks):
                    together = numbers.together(part.blocks)
                    if together.known.any() and together.is_bounded:
                        with suppress(NotMeasuredError):
                            return found(together)
            raise

    def _adding_between(
        self, question: Question, records: list[Factor], numbers: ValueRange, reach: Reach
    ) -> tuple[EstimateInterval, str]:
        """The mean or the sum of records some of which were measured together with others, by the counts of each value."""
        between = mean_between if question.asked == "mean" else sum_between
        return between(self._count, records, numbers, reach)

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
        labels = self.codes.texts(place)
        found = dict[str, None]()
        for part in self.squares.measured.parts:
            if part.axis == place and len(weights):
                for block in np.flatnonzero(np.bincount(part.blocks) > 1).tolist():
                    mine = np.flatnonzero(part.blocks == block)
                    if np.unique(weights[mine]).size > 1:
                        found[", ".join(labels[code] for code in mine.tolist())] = None
        return f"{name}: {listed(list(found))}" if found else ""


def _factor(chosen: Chosen) -> Factor:
    return chosen.place, chosen.codes.astype(np.float64)


def _limits(numbers: ValueRange) -> tuple[float, float]:
    return float(np.nanmin(numbers.low)), float(np.nanmax(numbers.high))
