"""Answers from released k-tuples: counts of combinations.

One that was released reached a threshold, so its interval is the selected one. One that was not is at most what the threshold
leaves open. DP: post-processing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from marginweave.answers.answer import MAY_BE_NONE, Answer, How
from marginweave.answers.codes import Chosen, Codes
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import ForbiddenCodes
from marginweave.configuration.question import Question
from marginweave.configuration.sections import COMBINATIONS_CUT
from marginweave.estimate.intervals import Intervals, censored_bound, count_interval, selected_interval
from marginweave.estimate.normalize import find_rows
from marginweave.observations.combinations import Aggregates

_LEFT_OUT = (
    "not measured: a rule on a set or a private domain leaves this out of counts and records, and changes no row, so that rows "
    "may have it"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class TupleAnswers:
    """Answers questions for the count of one combination; `intervals` have the counts as they were drawn.

    `excluded` are combinations that no counted record has, by rules; `left_out` others that rules leave out of
    what is counted, and that a row may have. `cut` says of a length what bounding contributions may
    have taken from a count.
    """

    aggregates: Aggregates
    intervals: Sequence[Intervals]
    codes: Codes
    excluded: Sequence[ForbiddenCodes] = ()
    left_out: Sequence[ForbiddenCodes] = ()
    cut: Mapping[int, str] = field(default_factory=dict)

    def ask(self, question: Question) -> Iterator[Answer]:
        """An answer for each group of a question.

        Raises:
            InputError: it asks for anything but counts of one value of each column.
        """
        if question.asked != "count":
            raise InputError(
                f"a release of k-tuples answers counts, not a {question.words}: counts below a threshold were not released. "
                "A release with `method: marginals` answers it"
            )
        where = self.codes.conditions(question)
        for group in self.codes.groups(question):
            chosen = [*where, *group.chosen]
            ruled_out = _has_one_of(self.excluded, chosen)
            if ruled_out:
                found, flag = (0, 0, 0, 0.0), ""
            else:
                is_left_out = _has_one_of(self.left_out, chosen)
                found, flag = (None, _LEFT_OUT) if is_left_out else self._count(chosen, question.level)
            estimate, low, high, sigma = found or (None, None, None, None)
            how: How = "rule" if ruled_out else "measured"
            yield Answer(
                question=question.words,
                group=group.labels,
                estimate=estimate,
                low=low,
                high=high,
                noise_sd=sigma,
                level=question.level if found else None,
                of=self._about(chosen),
                how=how if found else None,
                flag="; ".join(filter(None, (flag, self._cut_words(chosen) if found and not ruled_out else ""))),
            )

    def _about(self, chosen: Sequence[Chosen]) -> str:
        """What a count is of: the table, or less where contributions were bounded."""
        about, length = self.codes.about("table", (one.place for one in chosen)), len(chosen)
        bound = self.aggregates.bounds.get(length)
        if bound is None or not self.codes.configuration.is_cut(length, bound):
            return about
        return COMBINATIONS_CUT if about == "table" else f"{about} and {COMBINATIONS_CUT}"

    def _cut_words(self, chosen: Sequence[Chosen]) -> str:
        words = self.cut.get(len(chosen), "")
        return f"may be too low by {words}" if words else ""

    def _count(self, chosen: Sequence[Chosen], level: float) -> tuple[tuple[int | None, int, int, float] | None, str]:
        sizes, cells = self.aggregates.domain.sizes, dict[int, int]()
        for one in chosen:
            codes = np.flatnonzero(one.codes).tolist()
            if len(codes) != 1 or one.place in cells:
                return (
                    None,
                    "not measured: k-tuples answer one value of each column, marginals several; ask for each by itself",
                )
            if codes[0] >= sizes[one.place]:
                return None, "not measured: cells without a value are not counted in k-tuples"
            cells[one.place] = codes[0]
        cells = dict(sorted(cells.items()))
        if len(cells) > self.aggregates.reporting_length:
            most = self.aggregates.reporting_length
            return None, f"not measured: combinations of at most {most} columns were counted; name fewer"
        if not cells:
            drawn, sigma = np.array([self.aggregates.record_count]), self.aggregates.record_deviation
            inside = count_interval(drawn, sigma, level=level)
            return (int(drawn[0]), int(inside.low[0]), int(inside.high[0]), sigma), ""
        row, (threshold, sigma) = self._row(cells), self._threshold(cells)
        if row < 0:
            most = min(
                censored_bound(*self._threshold(part), level=level)
                for part in self._parts(cells)
                if self._row(part) < 0
            )
            return (
                None,
                0,
                most,
                sigma,
            ), "not released: its noisy count, or that of a part of it, was below its threshold"
        drawn = self.intervals[len(cells) - 1].measured[[row]]
        inside = selected_interval(drawn, threshold, sigma, level=level)
        flag = MAY_BE_NONE if int(inside.low[0]) == 0 else ""
        return (int(drawn[0]), int(inside.low[0]), int(inside.high[0]), sigma), flag

    def _row(self, cells: Mapping[int, int]) -> int:
        """Where the combination is among those that were released; -1 where it is not."""
        columns, values = np.array([list(cells)]), np.array([list(cells.values())])
        return int(find_rows(self.aggregates.levels[len(cells) - 1], columns, values, self.aggregates.domain.sizes)[0])

    def _threshold(self, cells: Mapping[int, int]) -> tuple[int, float]:
        """The threshold that a combination had to reach, and the standard deviation of its noise."""
        noise = self.aggregates.noise[len(cells) - 1]
        private = len(cells) == 1 and self.codes.configuration.attributes[next(iter(cells))].private
        return (noise.private_threshold if private else noise.threshold), noise.deviation

    def _parts(self, cells: Mapping[int, int]) -> Iterator[Mapping[int, int]]:
        """The smallest parts that were not released, of which each was measured, as all parts of it were released."""
        for length in range(1, len(cells) + 1):
            parts = [dict(part) for part in itertools.combinations(cells.items(), length)]
            if any(self._row(part) < 0 for part in parts):
                yield from parts
                return


def _has_one_of(boxes: Sequence[ForbiddenCodes], chosen: Sequence[Chosen]) -> bool:
    """Whether all records with what was chosen have one of these combinations, also where several values of a column are."""
    codes = {part.place: set(np.flatnonzero(part.codes).tolist()) for part in chosen}
    return any(all(place in codes and codes[place] <= {*among} for place, among in box) for box in boxes)
