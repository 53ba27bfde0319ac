"""Counts of a release with their intervals: the best number of each value, as explorer, `query` and report show it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from marginweave.answers.intervals import EstimateInterval, count_ends, count_interval_of
from marginweave.domain.combinations import Level
from marginweave.estimate.intervals import LEVEL, Intervals, record_interval, release_intervals
from marginweave.publish.reader import PublishedRelease, ShownRecords, sections_of, titled_labels

MOST_VALUES = 25
"""Values of an attribute that the report shows: the most frequent ones."""
MOST_ORDERED = 60
"""Values of an ordered attribute that the report shows."""


def best_records(published: PublishedRelease, level: float = LEVEL) -> EstimateInterval:
    """Return the number of records with its interval; for marginals always at the confidence `LEVEL`."""
    if not published.cells:
        low, high = record_interval(published.aggregates, level)
        return EstimateInterval(estimate=published.aggregates.record_count, low=low, high=high)
    total = published.cells[0]
    return count_interval_of(float(total.estimates), float(total.variances), published.reach)


def best_counts(published: PublishedRelease) -> list[tuple[Level, Intervals]]:
    """Return counts of combinations with their intervals, by length.

    These are the released k-tuples, or every single value that was measured.
    """
    if published.measured is not None:
        return [_measured_values(published)]
    counts = []
    for level, intervals in zip(published.aggregates.levels, published.intervals, strict=True):
        measured = intervals.counts_to_show(level.counts)
        counts.append((level, replace(intervals, measured=measured)))
    return counts


def _measured_values(published: PublishedRelease) -> tuple[Level, Intervals]:
    """Return every value of every measured single column, with the interval of its count."""
    labels = published.aggregates.domain.labels
    tables = [table for table in published.cells if len(table.attributes) == 1]
    parts = []
    ends_of_parts = []
    for table in sorted(tables, key=lambda table: table.attributes):
        size = len(labels[table.attributes[0]])
        ends = np.stack(count_ends(table.estimates, table.variances, published.reach), axis=1)
        ends = ends[:size].astype(np.int64)  # without the codes of gaps
        parts.append((table.attributes, np.arange(len(ends))[:, None], ends[:, 0]))
        ends_of_parts.append(ends)
    measured, low, high = np.concatenate(ends_of_parts).T
    return Level.join(1, parts), Intervals(low=low, high=high, measured=measured)


def tuple_intervals(published: PublishedRelease, length: int, level: float) -> Intervals:
    """Return the intervals of k-tuples of one length at the confidence `level`, which may differ from `LEVEL`."""
    place = slice(length - 1, length)
    (tuples,) = published.aggregates.levels[place]
    noise = published.aggregates.noise[place]
    adjusted = replace(published.aggregates, levels=(tuples,), noise=noise)
    measured = replace(tuples, counts=published.intervals[length - 1].measured)
    drawn = replace(adjusted, levels=(measured,))
    (intervals,) = release_intervals(adjusted, drawn, published.configuration, level=level)
    return intervals


@dataclass(frozen=True, kw_only=True)
class ValueCounts:
    """One value: its synthetic count, and its released count with an interval, None where none was released."""

    label: str
    synthetic: int
    reported: int | None
    low: int | None
    high: int | None


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One attribute, or one set column.

    `left_out` is the number of values that are not in `values`; `missing` is the number of synthetic records without a value.
    """

    name: str
    kind: str
    values: tuple[ValueCounts, ...]
    left_out: int
    missing: int


def distributions(
    published: PublishedRelease, shown: ShownRecords, scale: float
) -> list[Distribution]:
    """Return the values that the report shows of each column, in declared order.

    If there are more than `MOST_VALUES`, these are the most frequent ones. Of numbers and dates, it is the run of up to
    `MOST_ORDERED` successive values that has the most records.

    Args:
        published: The release.
        shown: What is shown of its synthetic records.
        scale: What a synthetic record counts for. DP: post-processing.
    """
    released = _released_values(published)
    labels = titled_labels(published)
    columns = published.configuration.columns
    ordered = {*published.configuration.ordered}
    sections = []
    for name, attributes in sections_of(published.configuration).items():
        values = []
        for j in attributes:
            for v, label in enumerate(labels[j]):
                reported, low, high = released.get((j, v), (None, None, None))
                synthetic = round(float(shown.values[j][v]) * scale)
                values.append(
                    ValueCounts(
                        label=label,
                        reported=reported,
                        low=low,
                        high=high,
                        synthetic=synthetic,
                    )
                )
        shown_values = _values_to_show(values, is_ordered=ordered.issuperset(attributes))
        section = Distribution(
            name=name,
            kind=columns[name].type,
            values=tuple(shown_values),
            left_out=len(values) - len(shown_values),
            missing=shown.empty[name],
        )
        sections.append(section)
    return sections


def _released_values(published: PublishedRelease) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Return count, low and high of each released single value, by attribute and code."""
    level, intervals = best_counts(published)[0]
    columns = (
        level.columns[:, 0],
        level.values[:, 0],
        intervals.measured,
        intervals.low,
        intervals.high,
    )
    rows = np.stack(columns, axis=1).tolist()
    return {(attribute, code): (count, low, high) for attribute, code, count, low, high in rows}


def _values_to_show(values: list[ValueCounts], *, is_ordered: bool) -> list[ValueCounts]:
    """Return the values that fit into the report: successive ones with most records, or the most frequent ones."""

    def records_from(start: int) -> int:
        return sum(value.reported or 0 for value in values[start : start + MOST_ORDERED])

    if is_ordered:
        starts = range(max(1, len(values) - MOST_ORDERED + 1))
        start = max(starts, key=records_from)
        return values[start : start + MOST_ORDERED]
    if len(values) <= MOST_VALUES:
        return values
    by_count = sorted(
        values, key=lambda value: (value.reported or 0, value.synthetic), reverse=True
    )
    return by_count[:MOST_VALUES]
