"""The distribution of each attribute: the released counts of its values beside those of the synthetic records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marginweave.tasks.publish.reader import PublishedRelease
from marginweave.tasks.publish.records import ShownRecords, sections_of

MOST_VALUES = 25


@dataclass(frozen=True, kw_only=True)
class ValueCounts:
    """One value: its released count with an interval, None where none was released, and the synthetic count."""

    label: str
    reported: int | None
    low: int | None
    high: int | None
    synthetic: int


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One attribute, or one set column; `more` values are left out; `missing` is how many synthetic records have no value."""

    name: str
    kind: str
    values: tuple[ValueCounts, ...]
    more: int
    missing: int


def distributions(published: PublishedRelease, shown: ShownRecords, scale: float) -> list[Distribution]:
    """Values in declared order; of more than `MOST_VALUES` the most frequent ones.

    Args:
        published: The release.
        shown: What is shown of its synthetic records.
        scale: What a synthetic record counts for. DP: post-processing.
    """
    return [
        _distribution(name, places, published, shown, scale)
        for name, places in sections_of(published.configuration).items()
    ]


def _distribution(
    name: str, places: Sequence[int], published: PublishedRelease, shown: ShownRecords, scale: float
) -> Distribution:
    configuration = published.configuration
    values = [value for j in places for value in _values(published, j, shown.values[j], scale)]
    kept = values if len(values) <= MOST_VALUES else sorted(values, key=_frequency, reverse=True)[:MOST_VALUES]
    return Distribution(
        name=name,
        kind="group" if name not in configuration.columns else configuration.columns[name].type,
        values=tuple(kept),
        more=len(values) - len(kept),
        missing=round(shown.empty[name] * scale),
    )


def _values(published: PublishedRelease, j: int, made: NDArray[np.int64], scale: float) -> list[ValueCounts]:
    first, intervals = published.aggregates.levels[0], published.intervals[0]
    labels = published.aggregates.domain.labels[j]
    rows = np.flatnonzero(first.columns[:, 0] == j)
    row_of = dict(zip(first.values[rows, 0].tolist(), rows.tolist(), strict=True))
    return [
        ValueCounts(
            label=label,
            reported=None if (row := row_of.get(v)) is None else int(first.counts[row]),
            low=None if row is None else int(intervals.low[row]),
            high=None if row is None else int(intervals.high[row]),
            synthetic=round(float(made[v]) * scale),
        )
        for v, label in enumerate(labels)
    ]


def _frequency(value: ValueCounts) -> tuple[int, int]:
    return value.reported or 0, value.synthetic
