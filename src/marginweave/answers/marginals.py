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

from marginweave.answers.answer import MAY_BE_NONE, Answer, How, Note
from marginweave.answers.codes import Chosen, Codes, DecidingBounds, Group, ValueRange
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
from marginweave.answers.rules import NO_RULES, AnswerRules
from marginweave.answers.tables import Part
from marginweave.base.arrays import Flags, Floats
from marginweave.base.errors import InputError
from marginweave.base.progress import listener
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.question import Question
from marginweave.configuration.values import listed

if TYPE_CHECKING:
    from marginweave.answers.model import ModelAnswers  # numba

_RESTS = Note("rests on the model")
_BETWEEN = Note("not measured: low and high follow from what was, the estimate from the model")
_BETWEEN_FITS = Note(
    "not measured: low and high follow from what was, and from how far left-out sets are from a fit"
)
_NONE_TO_ALL = Note(f"{MAY_BE_NONE}, or as many as its single columns allow")
_UNCLAIMED = Note("rests on the model: nothing says how often such an interval covers the truth")
_CHOSEN = Note(
    "the columns were measured together because they depend in these rows: nothing says how often such an interval covers a "
    "population; ask of the table, or name them in aggregate.cliques before anybody looks"
)
_NO_MORE = Note("it may be anything that its single columns allow", unusable=True)
_NOBODY = Note("no value meets the conditions")
_NO_SUCH = Note("a rule allows no such record")
_ALL_BUT_GAPS = Note("all, but for cells that are missing or not as declared")
_ALL_BUT_UNRELEASED = Note("all, but for values that were not released")
_NOTHING = 0.9
"""Share of the range that an answer may have, or that single columns leave a count; an interval that long says nothing."""
_SMALL = 0.05
"""Share of all records; a count that is known to be no larger is known well enough, whatever its single columns say."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupAnswer:
    """The answer for one group: an interval, notes on it, where it is from, and whether it is claimed to cover.

    `notes` say why the interval should not be used, else what it rests on. `claimed` is True where the interval covers the
    truth with the requested probability.
    """

    interval: EstimateInterval | None
    notes: tuple[Note, ...] = ()
    how: How | None = "measured"
    claimed: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class _CodedQuestion:
    """A question in the codes of a release: factors of its conditions, its numbers, and what notes on it need."""

    question: Question
    conditions: list[Factor]
    numbers: ValueRange | None
    notes_on_gaps: tuple[Note, ...]
    deciding_bounds: DecidingBounds


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginalAnswers:
    """Answers questions inside measured sets of attributes, which are `measured_together`, each by its names.

    `sampled` says why the table is no simple sample of a population; None where it may be one. `model` is asked for what is
    outside; None where there is none. `rules` are those that every record keeps. `undeclared` has, by attribute, how many of
    its cells were found not to be as declared, in words; `lowered`, by its place, by how many records the low end of a count of
    these is lower, because they are known only where they are many (`UndeclaredCells.lowered`).
    """

    squares: LeastSquares | ModelAnswers
    codes: Codes
    measured_together: Sequence[tuple[str, ...]]
    sampled: str | None = None
    model: Callable[[], ModelAnswers | None] = lambda: None
    rules: AnswerRules = NO_RULES
    undeclared: Mapping[str, str] = field(default_factory=dict)
    lowered: Mapping[int, int] = field(default_factory=dict)
    _counts_of_codes: dict[tuple[int, bytes], float] = field(init=False, default_factory=dict)

    def ask(self, question: Question) -> Iterator[Answer]:
        """Yield an answer for each group of a question.

        Raises:
            InputError: it names what was not counted, or records without any value of a set whose values were not measured
                together, or a population that the table is no simple sample of.
        """
        conditions = [_factor(chosen) for chosen in self.codes.conditions(question)]
        self._check_sets(question, conditions)
        coded = _CodedQuestion(
            question=question,
            conditions=conditions,
            numbers=self.codes.numbers(question.column) if question.column else None,
            notes_on_gaps=self.codes.notes_on_gaps(question),
            deciding_bounds=self.codes.deciding_bounds(question),
        )
        groups = list(self.codes.groups(question))
        if question.of == "population":
            self._check_sample(coded, groups)
        say = listener()
        for number, group in enumerate(groups, 1):
            say(f"answer {number:,} of {len(groups):,}")
            yield self._answer_in_words(coded, group)

    def _check_sample(self, coded: _CodedQuestion, groups: Sequence[Group]) -> None:
        """Refuse a question about a population that the table is no simple sample of; raises InputError."""
        places = {place for place, _ in coded.conditions}
        places.update(chosen.place for group in groups[:1] for chosen in group.chosen)
        if coded.numbers is not None:
            places.add(coded.numbers.place)
        reason = self.codes.not_a_sample(places) or self.sampled
        if reason:
            raise InputError(
                f"no answer of the population is possible: {reason}; ask for one of the table"
            )

    def _answer_in_words(self, coded: _CodedQuestion, group: Group) -> Answer:
        """Return the answer for a group, with its notes."""
        question = coded.question
        group_factors = [_factor(chosen) for chosen in group.chosen]
        answer = self.answer_group(question, coded.conditions, group_factors, coded.numbers)
        interval = answer.interval
        records = [*coded.conditions, *group_factors]
        places = [place for place, _ in records]
        if coded.numbers is not None:
            places.append(coded.numbers.place)
        notes = [*answer.notes]
        if interval is not None:
            notes += self._left_out(records, coded.numbers)
        if answer.how not in ("rule", None):
            notes += coded.notes_on_gaps
        if interval is not None:
            notes += self._notes_on_bounds(coded, group, records, interval)
        return Answer(
            question=question.words,
            asked=question.asked,
            group=group.labels,
            estimate=_finite(interval.estimate) if interval else None,
            low=_finite(interval.low) if interval else None,
            high=_finite(interval.high) if interval else None,
            noise_sd=interval.sd if interval else None,
            level=question.level if answer.claimed and interval else None,
            about=self.codes.about(question.of, places),
            how=answer.how,
            notes=tuple(notes),
        )

    def _notes_on_bounds(
        self, coded: _CodedQuestion, group: Group, records: list[Factor], interval: EstimateInterval
    ) -> Iterable[Note]:
        """Return notes on what values beyond bounds count as, where an answer would be another one if they did not.

        A mean or a sum has all numbers, also those at the bounds, and a quantile those that its interval reaches.
        """
        notes = [*self.codes.notes_on_chosen_bounds(coded.deciding_bounds, group)]
        numbers = coded.numbers
        if numbers is not None:
            has_all = coded.question.asked in ("mean", "sum")
            low = -math.inf if has_all else interval.low
            high = math.inf if has_all else interval.high
            all_codes = np.ones(len(numbers.low), np.bool_)
            codes = self._chosen(records).get(numbers.place, all_codes)
            notes += self.codes.notes_on_reached_bounds(numbers, codes, low, high)
        return dict.fromkeys(notes)

    def _check_sets(self, question: Question, conditions: Sequence[Factor]) -> None:
        """Refuse records without any value of a set where no measured set has all of its values; raises InputError.

        Of records that a rule forbids there is an answer.
        """
        if not self.rules.allow(self._chosen(conditions)):
            return
        for column, names in self.codes.sets_without_value(question).items():
            is_measured = any(set(names) <= set(measured) for measured in self.measured_together)
            if len(names) > 1 and not is_measured:
                raise InputError(
                    f"records without any value of column {column!r} were not counted: each value was, by itself, and no "
                    f"measured set has all of them; name one of {listed(names)}"
                )

    def _left_out(self, records: list[Factor], numbers: ValueRange | None) -> Iterator[Note]:
        """Yield a note for each asked column with cells that are not as declared, which an answer leaves out."""
        places = [place for place, codes in self._chosen(records).items() if not codes[-1]]
        if numbers is not None and numbers.place not in places:
            places.append(numbers.place)
        for place in places:
            words = self.undeclared.get(self.codes.configuration.attributes[place].name, "")
            if words:
                yield Note(
                    f"in all that was counted {words[:1].lower()}{words[1:]}, and are left out"
                )

    def answer_group(
        self,
        question: Question,
        conditions: list[Factor],
        group: list[Factor],
        numbers: ValueRange | None,
    ) -> GroupAnswer:
        """Return what rules say of a group, else the best answer, with a note where it says nothing."""
        records = [*conditions, *group]
        chosen = self._chosen(records)
        limits = (0.0, 1.0) if numbers is None else numbers.limits
        if not self.rules.allow(chosen):
            excluded = self._excluded(question, self._chosen(group))
            has_codes = all(codes.any() for codes in chosen.values())
            return excluded if has_codes else replace(excluded, notes=(_NOBODY,))
        if numbers is not None:
            possible_codes = self._possible_values(numbers, chosen)
            if not numbers.is_number[possible_codes].any():
                return self._excluded(question, self._chosen(group))
            numbers = self._possible_numbers(numbers, possible_codes)
        answer = self._best(question, conditions, group, numbers)
        if question.asked == "share":
            all_but = self._all_but(conditions, group)
            if all_but == ():
                everybody = EstimateInterval(estimate=1.0, low=1.0, high=1.0)
                return GroupAnswer(interval=everybody, how="rule")
            answer = replace(answer, notes=(*answer.notes, *(all_but or ())))
        return self._with_notes(answer, question, records, limits)

    def _with_notes(
        self,
        answer: GroupAnswer,
        question: Question,
        records: list[Factor],
        limits: tuple[float, float],
    ) -> GroupAnswer:
        """Return an answer with a note where its interval says nothing. `limits` are the ends that any answer lies between."""
        interval = answer.interval
        if interval is None or any(note.unusable for note in answer.notes):
            return answer
        if question.asked == "count":
            return replace(answer, notes=self._count_notes(interval, records, answer.notes))
        # infinite for open bins; then `quantile_of` says whether one end is known
        range_length = limits[1] - limits[0]
        says_nothing = (
            math.isfinite(range_length) and interval.high - interval.low >= _NOTHING * range_length
        )
        if says_nothing and question.asked != "sum":
            return replace(answer, notes=(SAYS_NOTHING,))
        if question.asked == "share" and interval.low <= 0 < interval.high:
            return replace(answer, notes=(*answer.notes, MAY_BE_NONE))
        if question.asked == "mean" and interval.low <= limits[0]:
            least = Note(f"it may be {limits[0]:g}, the least that is possible")
            return replace(answer, notes=(*answer.notes, least))
        return answer

    def _unbounded(self, numbers: ValueRange) -> Note:
        """Return why numbers with open bins have no mean or sum, and what to ask instead."""
        attribute = self.codes.configuration.attributes[numbers.place]
        labels = self.codes.domain.labels[numbers.place]
        has_end = np.isfinite(numbers.low) & np.isfinite(numbers.high)
        is_open = numbers.is_number & ~has_end
        opened = listed(
            [label for label, is_open_bin in zip(labels, is_open, strict=False) if is_open_bin]
        )
        column = self.codes.configuration.columns[attribute.column]
        assert isinstance(column, NumberColumn)  # nothing else has open bins
        ends = np.array(column.ends)
        inner = ends[np.isfinite(ends).all(axis=1)]
        least = inner.min()
        most = inner.max()
        return Note(
            f"no mean or sum of {attribute.column!r} is known, as its bins {opened} have no end. Ask for records with "
            f"{attribute.column} >= {least:g} and {attribute.column} < {most:g}, or release it with bounds beyond its bins, to "
            "which numbers are clamped"
        )

    @cached_property
    def records(self) -> float:
        """Estimated number of records."""
        return float(self.solve([[]]).values[0])

    def _count_notes(
        self, interval: EstimateInterval, records: list[Factor], rests_on: tuple[Note, ...]
    ) -> tuple[Note, ...]:
        """Return why a count should not be used, else what it rests on, and whether there may be none."""
        length = interval.high - interval.low
        may_be_none = interval.low <= 0 < interval.high
        is_small = length <= _SMALL * self.records
        if length >= _NOTHING * self.records:
            return (SAYS_NOTHING,)
        if is_small and not may_be_none:
            return rests_on
        says_no_more = length >= _NOTHING * self._length_by_columns(records)
        if says_no_more and not is_small:
            return (_NO_MORE,)
        if may_be_none:
            return (*rests_on, _NONE_TO_ALL if says_no_more else MAY_BE_NONE)
        return rests_on

    def _length_by_columns(self, records: list[Factor]) -> float:
        """Return the length of the range that single columns leave a count."""
        columns = self._weights([records])
        if len(columns) < 2:
            return self.records
        counts = [self._count_of_codes(axis, codes) for axis, codes in columns.items()]
        most = min(counts)
        least = max(sum(counts) - (len(counts) - 1) * self.records, 0.0)
        return max(most - least, 1.0)

    def _count_of_codes(self, axis: int, codes: Floats) -> float:
        """Return the estimated number of records with these codes of a column, which many groups have in common."""
        key = axis, codes.tobytes()
        if key not in self._counts_of_codes:
            solved = self.squares.single_axes.solve({axis: codes})
            self._counts_of_codes[key] = float(solved.values[0])
        return self._counts_of_codes[key]

    def _excluded(self, question: Question, group: dict[int, Flags]) -> GroupAnswer:
        """Return the answer for records that no rule allows: there are none, and they have no mean, quantile or shares."""
        is_amount = question.asked in ("count", "sum")
        if is_amount or (question.asked == "share" and self.rules.allow(group)):
            nobody = EstimateInterval(
                estimate=0.0, low=0.0, high=0.0, sd=0.0 if is_amount else None
            )
            return GroupAnswer(interval=nobody, how="rule")
        return GroupAnswer(interval=None, notes=(_NO_SUCH,), how="rule")

    def _all_but(self, conditions: list[Factor], group: list[Factor]) -> tuple[Note, ...] | None:
        """Return by which gaps alone a record of a group can break a condition; none where rules forbid every such record.

        None where a record can break it by a value: also by another value of a set.
        """
        group_codes = self._chosen(group)
        notes = dict[Note, None]()
        for axis, codes in self._chosen([*conditions, *group]).items():
            all_codes = np.ones(len(codes), np.bool_)
            breaking_codes = group_codes.get(axis, all_codes) & ~codes
            if not self.rules.allow({**group_codes, axis: breaking_codes}):
                continue
            attribute = self.codes.configuration.attributes[axis]
            breaking_codes[len(self.codes.domain.labels[axis]) :] = False
            if attribute.of_set or self.rules.allow({**group_codes, axis: breaking_codes}):
                return None
            notes[_ALL_BUT_UNRELEASED if attribute.private else _ALL_BUT_GAPS] = None
        return tuple(notes)

    def _possible_values(self, numbers: ValueRange, chosen: dict[int, Flags]) -> Flags:
        """Return which codes of a column of numbers a record with chosen codes may have."""
        all_codes = np.ones(len(numbers.low), np.bool_)
        codes = chosen.get(numbers.place, all_codes)
        return self.rules.possible_codes(numbers.place, codes, chosen)

    def _possible_numbers(self, numbers: ValueRange, possible: Flags) -> ValueRange:
        """Return the numbers of possible codes, where tables tell these from the others; else all numbers."""
        weights = possible.astype(np.float64)
        for part in self.squares.measured.parts:
            if part.axis == numbers.place:
                of_blocks = part.values(weights[None])[0]
                if not np.array_equal(of_blocks[part.blocks], weights):
                    return numbers
        low = np.where(possible, numbers.low, np.nan)
        high = np.where(possible, numbers.high, np.nan)
        return replace(numbers, low=low, high=high)

    def _chosen(self, factors: Iterable[Factor]) -> dict[int, Flags]:
        """Return by axis the codes that factors, at least one for it, have weights of."""
        return {axis: weights[0] > 0 for axis, weights in self._weights([factors]).items()}

    def _best(
        self,
        question: Question,
        conditions: list[Factor],
        group: list[Factor],
        numbers: ValueRange | None,
    ) -> GroupAnswer:
        """Return the answer by what was measured, else by bounds or the model, else the reason why there is none."""
        if numbers is not None and question.asked in ("mean", "sum") and not numbers.is_bounded:
            return GroupAnswer(interval=None, notes=(self._unbounded(numbers),), how=None)
        factors = [*conditions, *group]
        if numbers is not None:
            factors.append((numbers.place, numbers.low))
        axes = {place for place, _ in factors}
        try:
            interval, note = self._answer(question, conditions, group, numbers)
            choices = [*self._choices(question, conditions, axes)]
            notes = [note, *choices] if note else choices
            return GroupAnswer(interval=interval, notes=tuple(notes), claimed=not choices)
        except NotMeasuredError as error:
            merged = self.squares.measured.parts if error.merged else ()
        model = None if merged else self.model()
        if model is not None:
            with suppress(NotMeasuredError):
                return self._outside(question, conditions, group, numbers, model)
            merged = model.finest_parts(axes)
        refusal = Note(self._refusal(factors, merged))
        return GroupAnswer(interval=None, notes=(refusal,), how=None)

    def _choices(
        self, question: Question, conditions: Iterable[Factor], axes: Iterable[int]
    ) -> Iterator[Note]:
        """Yield why an answer of a population claims nothing: the rows have decided what is there to be asked for."""
        if question.of != "population":
            return
        if self.squares.measured.is_chosen(axes):
            yield _CHOSEN
        attributes = self.codes.configuration.attributes
        named = [attributes[place] for place, _ in conditions]
        released = [*dict.fromkeys(attribute.column for attribute in named if attribute.private)]
        if question.asked == "share" and released:
            yield Note(
                f"which values of {listed(released)} are released follows from how many of these rows have them: nothing says "
                "how often such an interval covers a population"
            )

    def _outside(
        self,
        question: Question,
        conditions: list[Factor],
        group: list[Factor],
        numbers: ValueRange | None,
        model: ModelAnswers,
    ) -> GroupAnswer:
        """Return the answer to what no measured table has.

        It is by the model where its misfit is known, else by bounds, else by the model without a claim to cover. Where the rows
        have chosen sets, the misfit is that of the model of these rows, and of no population.
        """
        records = [*conditions, *group]
        factors = [*records]
        if numbers is not None:
            factors.append((numbers.place, np.ones(len(numbers.low))))
        of_population = question.of == "population"
        rows_chose = any(table.chosen for table in self.squares.measured.tables)
        is_knowable = not (of_population and rows_chose)
        is_known = is_knowable and model.knows([*self._weights([factors])])
        if is_known or of_population or question.asked in ("mean", "sum"):
            by_model = replace(self, squares=model)
            interval, note = by_model._answer(question, conditions, group, numbers)  # noqa: SLF001 - of the same class
            note = note or (_RESTS if is_known else _unclaimed(model))
            choices = [*self._choices(question, conditions, ())]
            return GroupAnswer(
                interval=interval,
                notes=(note, *choices),
                how="model",
                claimed=is_known and not choices,
            )
        reach = self._reach(question)
        if numbers is not None:
            interval, note = quantile_between(
                self._count_or_bound, records, numbers, reach, question.fraction
            )
        elif question.asked == "share":
            part = self._count_or_bound(records, reach.each)
            total = self._count_or_bound(group, reach.each)
            interval, note = share_between(part, total)
        else:
            interval = self._count_or_bound(records, reach)
            note = None
        axes = {place for place, _ in factors}
        note = note or (_BETWEEN_FITS if model.tells_of_part(axes) else _between(model))
        return GroupAnswer(interval=interval, notes=(note,), how="bounds")

    def _reach(self, question: Question) -> Reach:
        """Return how far noise goes with the confidence of a question."""
        return Reach(level=question.level, tails=self.squares.measured.tails)

    def _answer(
        self,
        question: Question,
        conditions: list[Factor],
        group: list[Factor],
        numbers: ValueRange | None,
    ) -> tuple[EstimateInterval, Note | None]:
        """Return the answer by `squares`, and its note. Raises NotMeasuredError."""
        records = [*conditions, *group]
        reach = self._reach(question)
        if numbers is not None:
            if question.asked in ("mean", "sum"):
                return self._mean_or_sum(question, records, numbers, reach)
            return self._quantile(question, records, numbers, reach)
        if question.asked == "share":
            return self._share(question, records, group, reach)
        return self._count(records, reach), None

    def _share(
        self,
        question: Question,
        records: list[Factor],
        group: list[Factor],
        reach: Reach,
    ) -> tuple[EstimateInterval, Note | None]:
        """Return the share of records in their group; where values were measured together, by the counts of both."""
        is_sampled = question.of == "population"
        try:
            solved = self.solve([records, group])
            interval, note = share_of(solved, reach, sampled=is_sampled)
            lowered = 0.0 if self._lowered(group) else self._lowered(records)
            return interval.lowered_by(lowered / max(float(solved.values[1]), 1.0)), note
        except NotMeasuredError as error:
            if not error.merged or is_sampled:
                raise
        part = self._count(records, reach.each)
        total = self._count(group, reach.each)
        return share_between(part, total)

    def _count(self, factors: Sequence[Factor], reach: Reach) -> EstimateInterval:
        """Return a count, also of values some of which were measured together with others; without its `sd` there."""
        interval = self._solve_count(self._weights([factors]), reach)
        return interval.lowered_by(self._lowered(factors))

    def _lowered(self, factors: Iterable[Factor]) -> float:
        """Return how many records lower a low end is that is of cells not as declared: nobody asks for them where few are."""
        lowered = 0.0
        for axis, codes in self._chosen(factors).items():
            if axis in self.lowered and codes.sum() == 1 and codes[-1]:
                lowered = max(lowered, self.lowered[axis])
        return lowered

    def _solve_count(self, weights: Weights, reach: Reach) -> EstimateInterval:
        """Return a count by the weights of its axes.

        Values that no rule allows together with the other conditions are left out where that has less noise.
        """
        try:
            solved = self.squares.solve(weights)
        except NotMeasuredError as error:
            if not error.merged:
                raise
            return count_between(self.squares, weights, reach)
        estimate = float(solved.values[0])
        variance = float(solved.covariance[0, 0])
        possible = self.rules.possible({axis: vectors[0] > 0 for axis, vectors in weights.items()})
        if any((vectors[0] * ~possible[axis]).any() for axis, vectors in weights.items()):
            with suppress(NotMeasuredError):
                solved = self.squares.solve(
                    {axis: vectors * possible[axis] for axis, vectors in weights.items()}
                )
                possible_variance = float(solved.covariance[0, 0])
                if possible_variance < variance:
                    estimate = float(solved.values[0])
                    variance = possible_variance
        return count_interval_of(estimate, variance, reach)

    def _count_or_bound(self, factors: Sequence[Factor], reach: Reach) -> EstimateInterval:
        """Return a count as it was measured, or between bounds."""
        try:
            return self._count(factors, reach)
        except NotMeasuredError as error:
            model = self.model()
            if error.merged or model is None or not isinstance(self.squares, LeastSquares):
                raise
        from marginweave.answers.outside import count_unmeasured  # numba

        return count_unmeasured(self.squares, model, self.rules, self._weights([factors]), reach)

    def _quantile(
        self,
        question: Question,
        records: list[Factor],
        numbers: ValueRange,
        reach: Reach,
    ) -> tuple[EstimateInterval, Note | None]:
        """Return a quantile; where values were measured together, between the counts of none and of all of them."""
        is_sampled = question.of == "population"
        try:
            return quantile_of(
                self.solve, records, numbers, reach, question.fraction, sampled=is_sampled
            )
        except NotMeasuredError as error:
            if not error.merged or is_sampled:
                raise
        return quantile_between(self._count, records, numbers, reach, question.fraction)

    def solve(self, queries: Sequence[Iterable[Factor]]) -> Estimates:
        """Return estimates of queries, each a product of weights of attributes. Raises NotMeasuredError."""
        weights = self._weights(queries)
        solved = self.squares.solve(weights)
        if weights or len(queries) == 1:
            return solved
        number = len(queries)  # all ask for the number of records
        return Estimates(
            values=np.repeat(solved.values, number),
            covariance=np.full((number, number), solved.covariance[0, 0]),
        )

    def _weights(self, queries: Sequence[Iterable[Factor]]) -> Weights:
        """Return the weights of queries by axis, in the order of the axes."""
        weights: dict[int, Floats] = {}
        for row, factors in enumerate(queries):
            for place, vector in factors:
                table = weights.setdefault(place, np.ones((len(queries), len(vector))))
                table[row] *= vector
        return {axis: weights[axis] for axis in sorted(weights)}

    def _mean_or_sum(
        self,
        question: Question,
        records: list[Factor],
        numbers: ValueRange,
        reach: Reach,
    ) -> tuple[EstimateInterval, Note | None]:
        """Return the mean or the sum; where records were measured together with others, by the counts of each value."""
        try:
            return self._mean_or_sum_of_ranges(question, records, numbers, reach)
        except NotMeasuredError as error:
            if not error.merged or question.of == "population":
                raise
        between = mean_between if question.asked == "mean" else sum_between
        return between(self._count, records, numbers, reach)

    def _mean_or_sum_of_ranges(
        self,
        question: Question,
        records: list[Factor],
        numbers: ValueRange,
        reach: Reach,
    ) -> tuple[EstimateInterval, Note | None]:
        """Return the mean or the sum; where values were measured together, each of them lies anywhere in their range."""
        try:
            return self._solve_mean_or_sum(question, records, numbers, reach)
        except NotMeasuredError:
            for part in self.squares.measured.parts:
                if part.axis == numbers.place and part.size < len(part.blocks):
                    merged = numbers.merge(part.blocks)
                    if merged.is_number.any() and merged.is_bounded:
                        with suppress(NotMeasuredError):
                            return self._solve_mean_or_sum(question, records, merged, reach)
            raise

    def _solve_mean_or_sum(
        self,
        question: Question,
        records: list[Factor],
        numbers: ValueRange,
        reach: Reach,
    ) -> tuple[EstimateInterval, Note | None]:
        """Return the mean or the sum of numbers that tables tell apart. Raises NotMeasuredError where they do not."""
        if question.asked == "sum":
            total = self.squares.measured.total
            most_records = math.inf if total is None else total
            return sum_of(self.solve, records, numbers, reach, most_records)
        return mean_of(self.solve, records, numbers, reach, sampled=question.of == "population")

    def _refusal(self, factors: Iterable[Factor], merged: Sequence[Part]) -> str:
        """Return why a question about these factors has no answer, and what to ask instead.

        `merged` are the parts that hold the factors, but with values together that these tell apart; empty if there are none.
        """
        attributes = self.codes.configuration.attributes
        vectors = {attributes[place].name: vector for place, vector in factors}
        if merged:
            descriptions = [
                self._merged_values(name, vector, merged) for name, vector in vectors.items()
            ]
            values = "; ".join(filter(None, descriptions))
            return f"not measured alone: rare values were measured together ({values}); ask for all of them at once"
        names = set(vectors)
        closest = sorted(
            self.measured_together, key=lambda measured: (-len(names & {*measured}), len(measured))
        )[:3]
        shown = "; ".join(", ".join(measured) for measured in closest) or "single columns"
        return f"not measured: {listed(sorted(names))} are in no measured set together; nearest: {shown}"

    def _merged_values(self, name: str, weights: Floats, parts: Sequence[Part]) -> str:
        """Return the values that parts have together, and of which a question asks for some; empty if there are none."""
        names = [attribute.name for attribute in self.codes.configuration.attributes]
        place = names.index(name)
        labels = self.codes.texts(place)
        merged_labels = dict[str, None]()
        for part in parts:
            if part.axis == place and len(weights):
                for block in np.flatnonzero(np.bincount(part.blocks) > 1).tolist():
                    codes = np.flatnonzero(part.blocks == block)
                    if np.unique(weights[codes]).size > 1:
                        merged_labels[", ".join(labels[code] for code in codes.tolist())] = None
        return f"{name}: {listed(list(merged_labels))}" if merged_labels else ""


def _unclaimed(model: ModelAnswers) -> Note:
    """Return the note of an answer by the model whose interval is not claimed to cover."""
    if not model.follows:
        return _UNCLAIMED
    return Note(
        f"rests on the model, which {_following(model)}: nothing says how often such an interval covers the truth"
    )


def _between(model: ModelAnswers) -> Note:
    """Return the note of an answer between bounds, of which the model gives the estimate alone."""
    if not model.follows:
        return _BETWEEN
    return Note(f"{_BETWEEN.words}, which {_following(model)}")


def _following(model: ModelAnswers) -> str:
    return f"follows the known counts of {model.follows}"


def _factor(chosen: Chosen) -> Factor:
    return chosen.place, chosen.codes.astype(np.float64)


def _finite(end: float | None) -> float | None:
    """Return an end as an answer has it: None where it is infinite, and 0 for a clipped -0.0."""
    if end is None or math.isinf(end):
        return None
    return end + 0
