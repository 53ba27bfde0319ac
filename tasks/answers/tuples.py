"""Answers from released k-tuples: counts of combinations that were released, as they were drawn.

Every one was released because it reached a threshold, so its interval is the selected one. DP: post-processing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.schemas.errors import InputError
from marginweave.schemas.question import Question
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.tasks.answers.answer import Answer
from marginweave.tasks.answers.codes import Chosen, Codes
from marginweave.tasks.evaluate.intervals import Intervals, count_interval, selected_interval
from marginweave.tasks.normalize.normalize import find_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class TupleAnswers:
    """Answers questions for the count of one combination; `intervals` have the counts as they were drawn."""

    aggregates: Aggregates
    intervals: Sequence[Intervals]
    codes: Codes

    def ask(self, question: Question) -> Iterator[Answer]:
        """An answer for each group of a question.

        Raises:
            InputError: it asks for anything but counts of one value of each column.
        """
        if question.asked != "count":
            raise InputError(
                f"a release of k-tuples answers counts, not a {question.words}: counts below a threshold were not released"
            )
        where = self.codes.conditions(question)
        for group in self.codes.groups(question):
            found, flag = self._count([*where, *group.chosen], question.level)
            estimate, low, high, sigma = found or (None, None, None, None)
            yield Answer(
                question=question.words,
                group=group.labels,
                estimate=estimate,
                low=low,
                high=high,
                noise_sd=sigma,
                level=question.level,
                flag=flag,
            )

    def _count(self, chosen: Sequence[Chosen], level: float) -> tuple[tuple[int, int, int, float] | None, str]:
        sizes, cells = self.aggregates.domain.sizes, dict[int, int]()
        for one in chosen:
            codes = np.flatnonzero(one.codes).tolist()
            if len(codes) != 1 or one.place in cells:
                return (
                    None,
                    "not measured: a release of k-tuples answers one value of each column; ask for each by itself",
                )
            if codes[0] >= sizes[one.place]:
                return None, "not measured: missing values are not counted in k-tuples"
            cells[one.place] = codes[0]
        if len(cells) > self.aggregates.reporting_length:
            most = self.aggregates.reporting_length
            return None, f"not measured: combinations of at most {most} columns were counted; name fewer"
        if not cells:
            drawn, sigma = np.array([self.aggregates.record_count]), self.aggregates.record_deviation
            inside = count_interval(drawn, sigma, level=level)
            return (int(drawn[0]), int(inside.low[0]), int(inside.high[0]), sigma), ""
        columns = np.array([sorted(cells)])
        values = np.array([[cells[place] for place in sorted(cells)]])
        noise = self.aggregates.noise[len(cells) - 1]
        (row,) = find_rows(self.aggregates.levels[len(cells) - 1], columns, values, sizes).tolist()
        if row < 0:
            return None, f"not released: its noisy count was below {noise.threshold}, or that of a part of it was"
        private = len(cells) == 1 and self.codes.configuration.attributes[columns[0, 0]].private
        threshold = noise.private_threshold if private else noise.threshold
        drawn = np.maximum(
            self.intervals[len(cells) - 1].measured[[row]], threshold
        )  # 0.1.0 kept adjusted counts alone
        inside = selected_interval(drawn, threshold, noise.deviation, level=level)
        few = int(inside.low[0]) == 0
        flag = "do not use: it may be noise alone" if few else ""
        return (int(drawn[0]), int(inside.low[0]), int(inside.high[0]), noise.deviation), flag
