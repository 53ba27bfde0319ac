"""The best number of each value of a release, with its interval: what the explorer and `query` give, as the report shows it."""

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
"""Values of an attribute in an order, all of them beside each other."""


def best_records(published: PublishedRelease, level: float = LEVEL) -> EstimateInterval:
    """The number of records; of marginals at `LEVEL` alone."""
    if not published.cells:
        low, high = record_interval(published.aggregates, level)
        return EstimateInterval(estimate=published.aggregates.record_count, low=low, high=high)
    whole = published.cells[0]
    return count_interval_of(float(whole.estimates), float(whole.variances), published.reach)


def best_counts(published: PublishedRelease) -> list[tuple[Level, Intervals]]:
    """Counts of combinations with their intervals, by length: released k-tuples, or every single value that was measured."""
    if published.measured is None:
        pairs = zip(published.aggregates.levels, published.intervals, strict=True)
        return [(level, replace(inside, measured=inside.counts_to_show(level.counts))) for level, inside in pairs]
    found = []
    labels = published.aggregates.domain.labels
    for table in sorted((t for t in published.cells if len(t.attributes) == 1), key=lambda t: t.attributes):
        ends = count_ends(table.estimates, table.variances, published.reach)
        found.append((table.attributes, np.stack(ends, axis=1)[: len(labels[table.attributes[0]])].astype(np.int64)))
    level = Level.join(1, [(a, np.arange(len(own))[:, None], own[:, 0]) for a, own in found])
    measured, low, high = np.concatenate([own for _, own in found]).T
    return [(level, Intervals(low=low, high=high, measured=measured))]


def tuple_intervals(published: PublishedRelease, length: int, level: float) -> Intervals:
    """Those of k-tuples of one length, at another level than `LEVEL`."""
    aggregates, place = published.aggregates, slice(length - 1, length)
    (own,) = aggregates.levels[place]
    asked = replace(aggregates, levels=(own,), noise=aggregates.noise[place])
    drawn = replace(asked, levels=(replace(own, counts=published.intervals[length - 1].measured),))
    (found,) = release_intervals(asked, drawn, published.configuration, level=level)
    return found


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
    """One attribute, or one set column; `more` values are left out; `missing` is how many synthetic records have no value."""

    name: str
    kind: str
    values: tuple[ValueCounts, ...]
    more: int
    missing: int


def distributions(published: PublishedRelease, shown: ShownRecords, scale: float) -> list[Distribution]:
    """Values in declared order; of more than `MOST_VALUES` the most frequent ones.

    Of numbers and dates, in their order, it is up to `MOST_ORDERED` with none left out between them: those with most records.

    Args:
        published: The release.
        shown: What is shown of its synthetic records.
        scale: What a synthetic record counts for. DP: post-processing.
    """
    first, inside = best_counts(published)[0]
    released = zip(inside.measured.tolist(), inside.low.tolist(), inside.high.tolist(), strict=True)
    places = zip(first.columns[:, 0].tolist(), first.values[:, 0].tolist(), strict=True)
    counts, labels = dict(zip(places, released, strict=True)), titled_labels(published)

    def value_counts(j: int, v: int) -> ValueCounts:
        reported, low, high = counts.get((j, v), (None, None, None))
        synthetic = round(float(shown.values[j][v]) * scale)
        return ValueCounts(label=labels[j][v], reported=reported, low=low, high=high, synthetic=synthetic)

    found, columns = [], published.configuration.columns
    for name, attributes in sections_of(published.configuration).items():
        values = [value_counts(j, v) for j in attributes for v in range(len(labels[j]))]
        kept = values
        if {*attributes} <= {*published.configuration.ordered}:
            starts = range(max(1, len(values) - MOST_ORDERED + 1))
            start = max(starts, key=lambda i: sum(v.reported or 0 for v in values[i : i + MOST_ORDERED]))
            kept = values[start : start + MOST_ORDERED]
        elif len(values) > MOST_VALUES:
            kept = sorted(values, key=lambda v: (v.reported or 0, v.synthetic), reverse=True)[:MOST_VALUES]
        kind = columns[name].type
        missing, more = round(shown.empty[name] * scale), len(values) - len(kept)
        found.append(Distribution(name=name, kind=kind, values=tuple(kept), more=more, missing=missing))
    return found
