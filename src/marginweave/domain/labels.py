"""Attributes of a table with their public or released values, and the cells outside of these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from marginweave.domain.shares import ratio_ends, share_ends
from marginweave.texts.sentences import Sentence, Share, verdict_sentence


@dataclass(frozen=True, kw_only=True)
class UndeclaredCells:
    """The records with a cell of the attribute `name` that is not as declared: their noisy number and an interval.

    `count` is the noisy number and `deviation` the standard deviation of its noise, in records; `low` and `high` are an
    interval at 95 %. `found` says whether there are more than noise explains. `kept` says whether estimates and records have
    the code of such cells; else their count is ignored. `of_set`: `name` is a set, and such cells have a value that is not
    declared, which is left out of records.
    """

    name: str
    count: int
    deviation: float
    low: int
    high: int
    found: bool
    kept: bool
    of_set: bool = False

    @property
    def lowered(self) -> int:
        """How many records the lower end of their number is lower because it is known only where it is large.

        That is beside the interval of any count, at 95 %.
        """
        half = self.high - self.count
        return max(self.count - half - self.low, 0) if self.found else 0

    def share_ends(self, records: float, deviation: float) -> tuple[float, float]:
        """Return both ends, at 95 %, of the share of records that have such cells.

        `records` is a number with noise of this `deviation`.
        """
        half = float(self.high - self.count)
        of_records = half * deviation / self.deviation if self.deviation else 0.0
        low = 0.0
        if self.low:
            low, _ = share_ends(self.low + half, half, records, of_records)
        _, high = share_ends(self.count, half, records, of_records)
        return low, high

    def sentence(
        self,
        records: float,
        deviation: float,
        name: str,
    ) -> Sentence:
        """Return the share of records that have such cells, without a full stop; the column is called `name`.

        Arguments are those of `share_ends`.
        """
        share = Share(min(self.count / max(records, 1.0), 1.0))
        low, high = self.share_ends(records, deviation)
        digits = 0 if 100 * share >= 10 else 1
        low_percent = math.floor(100 * low * 10**digits) / 10**digits
        high_percent = math.ceil(100 * high * 10**digits) / 10**digits
        if not self.found:
            return verdict_sentence("undeclared.none", name=name, high=high_percent, digits=digits)
        return verdict_sentence(
            "undeclared.of-set" if self.of_set else "undeclared.share",
            share=share,
            low=low_percent,
            high=high_percent,
            digits=digits,
            name=name,
        )


_TWO_SIDED = 1.96
"""Deviations of a normal number that it is within with 95 %."""


def share_texts(share: float, least: float) -> dict[str, Any]:
    """Return a share and its lower end as sentences have them."""
    digits = 0 if share >= 0.1 else 1
    lowest = math.floor(least * 10 ** (digits + 2)) / 10**digits
    return {"share": Share(share), "least": lowest, "digits": digits}


@dataclass(frozen=True, kw_only=True)
class UncountedRows:
    """The noisy number of rows that are not counted, because subjects have more rows than the `cap`.

    `subjects` have more; `rows_at_least` are the rows beyond the cap, at most `most` of each subject: where some have more than
    that, there are more rows as well. Both are noisy counts, but never below 0. The deviations are of their noise, and each
    pair of ends is an interval at 95 %.
    """

    cap: int
    most: int
    subjects: int
    subjects_deviation: float
    subjects_ends: tuple[int, int]
    rows_at_least: int
    rows_deviation: float
    rows_ends: tuple[int, int]

    @property
    def found(self) -> bool:
        """True if more subjects have such rows than noise explains.

        `most` times their number is at least `rows_at_least`, and has the same noise: rows without subjects are noise.
        """
        return self.subjects_ends[0] > 0

    def sentence(
        self,
        records: float,
        deviation: float,
        column: str,
    ) -> Sentence:
        """Return the share of rows that is not counted, or the most subjects that can have any, where noise explains all.

        `column` tells subjects apart, and `records` is the number of records that are counted (`least_share`).
        """
        low, high = self.subjects_ends
        if not self.found:
            key = "uncounted.none-beyond-one" if self.cap == 1 else "uncounted.none-beyond"
            return verdict_sentence(key, high=high, cap=self.cap, column=column)
        return verdict_sentence(
            "uncounted.beyond-one" if self.cap == 1 else "uncounted.beyond",
            **share_texts(*self.least_share(records, deviation)),
            subjects=self.subjects,
            low=low,
            high=high,
            cap=self.cap,
            column=column,
            further=verdict_sentence(
                "uncounted.further-one" if self.most == 1 else "uncounted.further", most=self.most
            ),
        )

    def least_share(self, records: float, deviation: float) -> tuple[float, float]:
        """Return the least share of all rows that is not counted: an estimate, and its lower end at a confidence of 97.5 %.

        `records` is the number of counted records, `deviation` the standard deviation of its noise. Of x rows beyond the cap
        and n counted ones the share is x / (x + n), by the ratio x / n and its lower end. Each subject that has more rows has
        one beyond the cap at least, so x is no less than their number: at 95 % where that decides, as two ends are compared. It
        adds at most `most` of those that x counts.
        """
        counted = max(records, 1.0)
        half = float(self.rows_ends[1] - self.rows_at_least)
        of_records = half * deviation / self.rows_deviation if self.rows_deviation else 0.0
        low = 0.0
        if self.rows_ends[0]:
            low, _ = ratio_ends(self.rows_at_least, half, counted, of_records)
        low = max(low, self.subjects_ends[0] / (counted + _TWO_SIDED * deviation))
        about = min(max(self.rows_at_least, self.subjects), self.most * self.subjects) / counted
        low = min(low, about)
        return about / (1 + about), low / (1 + low)


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Column names and, for each, the labels of its values; code v of a column is `labels[column][v]`.

    A missing value has the code one past the last label. Only public or released labels are ever in it. `undeclared` has
    each attribute a cell of which may not be as declared, `uncounted` the rows that are left out of every number; None where
    that was not measured.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    undeclared: tuple[UndeclaredCells, ...] = ()
    uncounted: UncountedRows | None = None

    @property
    def with_undeclared(self) -> tuple[str, ...]:
        """Attributes whose missing code is that of cells that are not as declared."""
        return tuple(cells.name for cells in self.undeclared if cells.kept)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each column, the missing value not counted."""
        return tuple(len(values) for values in self.labels)
