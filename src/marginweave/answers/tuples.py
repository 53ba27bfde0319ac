"""Answers from released k-tuples: counts of combinations.

A released combination reached a threshold, so its interval is the selected one. A combination that was not released is at most
what the threshold leaves open. DP: post-processing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from marginweave.answers.answer import MAY_BE_NONE, About, Answer, Counted, How, Note
from marginweave.answers.codes import Chosen, Codes
from marginweave.base.arrays import Integers
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import ForbiddenCodes
from marginweave.configuration.question import Question
from marginweave.estimate.intervals import (
    Intervals,
    censored_bound,
    count_interval,
    selected_interval,
)
from marginweave.estimate.normalize import find_rows
from marginweave.observations.combinations import Aggregates
from marginweave.texts.sentences import counts_sentence

_LEFT_OUT = Note(
    "not measured: a rule on a set or a private domain leaves this out of counts and records, and changes no row, so that rows "
    "may have it"
)
_NOT_RELEASED = Note(
    "not released: its noisy count, or that of a part of it, was below its threshold"
)


@dataclass(frozen=True, kw_only=True)
class _TupleCount:
    """A count of records: its estimate, None where it was not released, the ends of its interval, and sigma of its noise."""

    estimate: int | None
    low: int
    high: int
    sigma: float


_NONE_ALLOWED = _TupleCount(estimate=0, low=0, high=0, sigma=0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class TupleAnswers:
    """Answers questions for the count of one combination; `intervals` have the counts as they were drawn.

    `excluded` are combinations that no counted record has, by rules; `left_out` others that rules leave out of what is
    counted, and that a row may have. `cut` says of a length what bounding contributions may have taken from a count.
    """

    aggregates: Aggregates
    intervals: Sequence[Intervals]
    codes: Codes
    excluded: Sequence[ForbiddenCodes] = ()
    left_out: Sequence[ForbiddenCodes] = ()
    cut: Mapping[int, str] = field(default_factory=dict)

    def ask(self, question: Question) -> Iterator[Answer]:
        """Yield an answer for each group of a question.

        Raises:
            InputError: it asks for anything but counts of one value of each column.
        """
        if question.asked != "count":
            raise InputError(
                f"a release of k-tuples answers counts, not a {question.words}: counts below a threshold were not released. "
                "A release with `method: marginals` answers it"
            )
        conditions = self.codes.conditions(question)
        on_gaps = self.codes.notes_on_gaps(question)
        deciding = self.codes.deciding_bounds(question)
        for group in self.codes.groups(question):
            chosen = [*conditions, *group.chosen]
            how: How = "measured"
            if _has_one_of(self.excluded, chosen):
                how = "rule"
                count: _TupleCount | None = _NONE_ALLOWED
                notes: tuple[Note, ...] = ()
            elif _has_one_of(self.left_out, chosen):
                count = None
                notes = (_LEFT_OUT,)
            else:
                count, notes = self._count(chosen, question.level)
                if count:
                    notes = (*notes, *self._cut_notes(chosen))
            yield Answer(
                question=question.words,
                asked=question.asked,
                group=group.labels,
                estimate=count.estimate if count else None,
                low=count.low if count else None,
                high=count.high if count else None,
                noise_sd=count.sigma if count else None,
                level=question.level if count else None,
                about=self._about(chosen),
                how=how if count else None,
                notes=(
                    *notes,
                    *(() if how == "rule" else on_gaps),
                    *(self.codes.notes_on_chosen_bounds(deciding, group) if count else ()),
                ),
            )

    def _about(self, chosen: Sequence[Chosen]) -> About:
        """Return what a count is about: the table, or less where contributions were bounded."""
        about = self.codes.about("table", (part.place for part in chosen))
        length = len(chosen)
        bound = self.aggregates.bounds.get(length)
        if bound is None or not self.codes.configuration.is_cut(length, bound):
            return about
        combinations = counts_sentence("of.combinations")
        if about.is_table:
            return About(Counted.PART, str(combinations))
        part = counts_sentence("of.and", first=str(about), second=combinations)
        return About(Counted.PART, str(part))

    def _cut_notes(self, chosen: Sequence[Chosen]) -> tuple[Note, ...]:
        """Return a note on how much bounded contributions may have taken from a count, if they may have."""
        words = self.cut.get(len(chosen), "")
        return (Note(f"may be too low by {words}"),) if words else ()

    def _count(
        self, chosen: Sequence[Chosen], level: float
    ) -> tuple[_TupleCount | None, tuple[Note, ...]]:
        """Return the count of records with what was chosen, and notes on it; None where k-tuples cannot answer."""
        refusal = self._refusal(chosen)
        if refusal:
            return None, (Note(refusal),)
        cells = dict[int, int]()
        for part in sorted(chosen, key=lambda part: part.place):
            cells[part.place] = int(np.flatnonzero(part.codes)[0])
        if not cells:
            sigma = self.aggregates.record_deviation
            drawn = np.array([self.aggregates.record_count])
            return _counted(drawn, count_interval(drawn, sigma, level=level), sigma), ()
        row = self._row(cells)
        threshold, sigma = self._threshold(cells)
        if row < 0:
            high = self._largest_count(cells, level)
            return _TupleCount(estimate=None, low=0, high=high, sigma=sigma), (_NOT_RELEASED,)
        drawn = self.intervals[len(cells) - 1].measured[[row]]
        count = _counted(drawn, selected_interval(drawn, threshold, sigma, level=level), sigma)
        return count, (MAY_BE_NONE,) if count.low == 0 else ()

    def _refusal(self, chosen: Sequence[Chosen]) -> str:
        """Return why k-tuples cannot answer for what was chosen; empty where they can."""
        places = set[int]()
        for part in chosen:
            codes = np.flatnonzero(part.codes).tolist()
            if len(codes) != 1 or part.place in places:
                return "not measured: k-tuples answer one value of each column, marginals several; ask for each by itself"
            if codes[0] >= self.aggregates.domain.sizes[part.place]:
                return "not measured: cells without a value are not counted in k-tuples"
            places.add(part.place)
        most = self.aggregates.reporting_length
        if len(places) > most:
            return f"not measured: combinations of at most {most} columns were counted; name fewer"
        return ""

    def _largest_count(self, cells: Mapping[int, int], level: float) -> int:
        """Return the largest count that a combination may have that was not released, by its parts that were not."""
        bounds = []
        for part in self._parts(cells):
            if self._row(part) < 0:
                threshold, sigma = self._threshold(part)
                bounds.append(censored_bound(threshold, sigma, level=level))
        return min(bounds)

    def _row(self, cells: Mapping[int, int]) -> int:
        """Return the row of the combination among those that were released; -1 where it was not."""
        level = self.aggregates.levels[len(cells) - 1]
        columns = np.array([list(cells)])
        values = np.array([list(cells.values())])
        rows = find_rows(level, columns, values, self.aggregates.domain.sizes)
        return int(rows[0])

    def _threshold(self, cells: Mapping[int, int]) -> tuple[int, float]:
        """Return the threshold that a combination had to reach, and the standard deviation of its noise."""
        noise = self.aggregates.noise[len(cells) - 1]
        if len(cells) == 1:
            [place] = cells
            if self.codes.configuration.attributes[place].private:
                return noise.private_threshold, noise.deviation
        return noise.threshold, noise.deviation

    def _parts(self, cells: Mapping[int, int]) -> Iterator[Mapping[int, int]]:
        """Yield the parts of the smallest length of which a part was not released.

        Each of them was measured, as all shorter parts were released.
        """
        for length in range(1, len(cells) + 1):
            parts = [dict(part) for part in itertools.combinations(cells.items(), length)]
            if any(self._row(part) < 0 for part in parts):
                yield from parts
                return


def _counted(drawn: Integers, interval: Intervals, sigma: float) -> _TupleCount:
    """Return a count that was drawn, with the ends of its interval."""
    return _TupleCount(
        estimate=int(drawn[0]),
        low=int(interval.low[0]),
        high=int(interval.high[0]),
        sigma=sigma,
    )


def _has_one_of(boxes: Sequence[ForbiddenCodes], chosen: Sequence[Chosen]) -> bool:
    """Return whether all records with the chosen codes, of which a column may have several, have one of these combinations."""
    codes = {part.place: set(np.flatnonzero(part.codes).tolist()) for part in chosen}
    return any(_is_inside(box, codes) for box in boxes)


def _is_inside(box: ForbiddenCodes, codes: Mapping[int, set[int]]) -> bool:
    """Return whether all chosen codes are in the combinations of a box."""
    return all(place in codes and codes[place] <= {*forbidden} for place, forbidden in box)
