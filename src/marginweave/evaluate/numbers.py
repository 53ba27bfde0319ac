"""Means, medians and quantiles of number columns: of tables, and of released counts with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from marginweave.base.arrays import Codes, Floats, Integers
from marginweave.base.arrow import to_numpy
from marginweave.columns import values_of
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.release import Configuration
from marginweave.estimate.intervals import LEVEL
from marginweave.mechanisms.catalogue import count_noise
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Marginals
from marginweave.records.decode import column_codes, column_counts, label_counts
from marginweave.released.numbers import (
    ExactStatistic,
    ExactSummary,
    NumberStatistic,
    NumberSummary,
)

Statistics: TypeAlias = tuple[float | None, ...]
"""The mean, and the quantiles of `PROBABILITIES`; None for a column without values."""

Interval: TypeAlias = tuple[float | None, float | None]
_NO_INTERVAL: Interval = (None, None)

PROBABILITIES = (0.1, 0.25, 0.5, 0.75, 0.9)
# The greatest number of parts of a bin, and of all bins of a column. A quantile is exact up to the part that it lies in.
_PARTS = 256
_ALL_PARTS = 1 << 16
# The greatest number of values that represent a bin.
_VALUES = 64


@dataclass
class NumberTally:
    """The values of one column, as far as its mean and its quantiles need them: the exact sum, and counts of parts of bins.

    `parts` are the lower ends of the parts, ascending, `counts` the values in each, shape (parts,). `special` are values that
    are left out.
    """

    parts: Floats
    counts: Integers
    special: tuple[float, ...] = ()
    total: float = 0.0

    @classmethod
    def of(cls, column: NumberColumn) -> NumberTally:
        """Return an empty tally.

        A part is a point of the column's grid. A bin of more points has at most 256 parts, fewer if the column has many bins.
        """
        bins = len(column.bin_labels)
        most_parts = max(1, min(_PARTS, _ALL_PARTS // bins))
        starts: list[Integers] = []
        for place in range(bins):
            first, last = column.grid(place)
            points = last - first + 1
            parts_of_bin = min(most_parts, points)
            starts.append(first + points * np.arange(parts_of_bin) // parts_of_bin)
        scale = 10**column.resolution
        parts = np.concatenate(starts) / scale
        counts = np.zeros(len(parts), np.int64)
        return cls(parts=parts, counts=counts, special=column.special)

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Count values; missing ones and special ones are left out."""
        numbers = values.drop_null().to_numpy().astype(np.float64)
        numbers = numbers[~np.isin(numbers, self.special)]
        places = np.maximum(np.searchsorted(self.parts, numbers, side="right") - 1, 0)
        self.counts += np.bincount(places, minlength=len(self.parts))
        self.total += float(numbers.sum())

    def statistics(self) -> Statistics:
        """Return the mean, exactly, and each quantile, to the part that it lies in."""
        cumulative = np.cumsum(self.counts)
        number = cumulative[-1]
        if not number:
            return (None,) * (1 + len(PROBABILITIES))
        places = np.searchsorted(cumulative, np.array(PROBABILITIES) * number)
        return (self.total / int(number), *self.parts[places].tolist())


@dataclass
class NumberTallies:
    """The tallies of all counted number columns of a table that is read block by block."""

    configuration: Configuration
    by_column: dict[str, NumberTally] = field(init=False)

    def __post_init__(self) -> None:
        self.by_column = {
            name: NumberTally.of(column) for name, column in number_columns(self.configuration)
        }

    def add(self, table: pa.Table) -> None:
        """Count a block of clean or decoded records."""
        for name, tally in self.by_column.items():
            tally.add(table.column(name))

    def join(self, tallies: NumberTallies) -> None:
        """Add the counts of other tallies of the same columns."""
        for name, tally in tallies.by_column.items():
            joined = self.by_column[name]
            joined.counts = joined.counts + tally.counts
            joined.total = joined.total + tally.total

    def statistics(self) -> dict[str, Statistics]:
        """Return the statistics of each column."""
        return {name: tally.statistics() for name, tally in self.by_column.items()}


def number_columns(configuration: Configuration) -> Iterator[tuple[str, NumberColumn]]:
    """Yield the counted number columns, in declared order, their bins resolved."""
    for name in configuration.names:
        column = configuration.columns[name]
        if isinstance(column, NumberColumn):
            yield name, column


def number_summaries(
    configuration: Configuration,
    counts: Aggregates,
    drawn: Marginals | None,
    synthetic: Mapping[str, Statistics],
) -> tuple[NumberSummary, ...]:
    """Return statistics of released counts, with intervals from marginals, and those of synthetic records.

    The released value is that of the normalized counts, with their values where `draw` puts them. DP: post-processing.

    Args:
        configuration: What is declared, bins resolved.
        counts: Normalized counts.
        drawn: The marginals as they were drawn; None for k-tuples, for which no interval is known.
        synthetic: Statistics of the synthetic records.
    """
    counts_of_column = column_counts(label_counts(counts), counts.domain, configuration)
    summaries: list[NumberSummary] = []
    for name, column in number_columns(configuration):
        released = _released(column, configuration.missing_texts(name), counts_of_column[name])
        intervals: list[Interval] = [_NO_INTERVAL] * len(released)
        if drawn is not None:
            intervals = _intervals(name, column, drawn, configuration)
        statistics: list[NumberStatistic] = []
        for quantile, value, interval, record_value in zip(
            (None, *PROBABILITIES), released, intervals, synthetic[name], strict=True
        ):
            low, high = interval
            statistics.append(
                NumberStatistic(
                    quantile=quantile, released=value, low=low, high=high, synthetic=record_value
                )
            )
        summaries.append(NumberSummary(column=name, statistics=tuple(statistics)))
    return tuple(summaries)


def exact_summaries(sensitive: NumberTallies, synthetic: NumberTallies) -> tuple[ExactSummary, ...]:
    """Return statistics of the sensitive rows and those of the synthetic records. Private."""
    synthetic_statistics = synthetic.statistics()
    summaries: list[ExactSummary] = []
    for name, values in sensitive.statistics().items():
        rows = zip((None, *PROBABILITIES), values, synthetic_statistics[name], strict=True)
        statistics = (
            ExactStatistic(quantile=quantile, sensitive=sensitive_value, synthetic=record_value)
            for quantile, sensitive_value, record_value in rows
        )
        summaries.append(ExactSummary(column=name, statistics=tuple(statistics)))
    return tuple(summaries)


def _released(column: NumberColumn, missing: tuple[str, ...], counts: Floats) -> Statistics:
    """Return the statistics of the released counts.

    Each bin is represented by some values, evenly spread over the values that its draw can give.
    """
    if not counts.any():
        return (None,) * (1 + len(PROBABILITIES))
    per_bin = max(1, min(_VALUES, _ALL_PARTS // len(counts)))
    generator = np.random.default_rng(0)  # post-processing

    def spread(number: int) -> Floats:
        """Return places inside bins, in random order.

        A value may need two independent draws: one for a run inside its bin, one for its place in that run (`draw_among`).
        """
        places = (np.arange(per_bin) + 0.5) / per_bin
        of_bins = np.tile(places, (number // per_bin, 1))
        return generator.permuted(of_bins, axis=1).ravel()

    kind = values_of(column, missing, counts)
    codes = np.repeat(np.arange(len(counts)), per_bin)
    values = to_numpy(kind.decode(codes, column.labels, spread))
    weights = np.repeat(counts / per_bin, per_bin)
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    number = cumulative[-1]
    places = np.searchsorted(cumulative, np.array(PROBABILITIES) * number)
    quantiles = values[order][np.minimum(places, len(order) - 1)]
    return (float(weights @ values / number), *quantiles.tolist())


def _intervals(
    name: str,
    column: NumberColumn,
    drawn: Marginals,
    configuration: Configuration,
) -> list[Interval]:
    """Return an interval for each statistic, of the rows as prepared, wherever their values lie inside the bins.

    A quantile that may lie in an open bin has one end, and a mean has no interval where there are open bins, or where noise
    takes its ends past each other.
    """
    attribute, codes = column_codes(drawn.domain, configuration)[name]
    measured = drawn.one_way[attribute]
    if not measured.complete or not count_noise(measured.noise).is_normal:
        return [_NO_INTERVAL] * (1 + len(PROBABILITIES))
    lows, highs = np.array(column.number_limits).T
    has_bin = codes < len(column.bin_labels)
    bins = codes[has_bin]
    counts = measured.counts[: len(codes)].astype(np.float64)[has_bin]
    sigma = float(np.sqrt(measured.deviation**2 + 1 / 12))
    mean = _NO_INTERVAL
    if np.isfinite([lows, highs]).all():
        low = mean_floor(counts, lows[bins], sigma)
        high = -mean_floor(counts, -highs[bins], sigma)
        if low <= high:
            mean = (low, high)
    intervals = [mean]
    for probability in PROBABILITIES:
        low, high = quantile_interval(counts, bins, (lows, highs), sigma, probability)
        intervals.append((_end(low), _end(high)))
    return intervals


def _end(edge: float) -> float | None:
    """Return an end of an interval; None where the bin has none."""
    return edge if np.isfinite(edge) else None


def mean_floor(counts: Floats, values: Floats, sigma: float, level: float = LEVEL) -> float:
    """Return a lower bound of the mean m of `values` weighted by counts without noise, wrong with probability (1 - level) / 2.

    sum_i c_i (v_i - t) is normal with mean 0 and variance sigma^2 sum_i (v_i - t)^2 at t = m (Fieller 1954): the least t at
    which it is no more than z of its standard deviations is at most m. Where the counts do not exceed their noise it is the
    least value. DP: post-processing.
    """
    reach = -float(ndtri((1 - level) / 2)) * sigma  # z sigma
    low = float(values.min())
    high = float(values.max())
    if counts.sum() <= reach * np.sqrt(len(counts)):
        return low

    def is_below_mean(t: float) -> bool:
        """Return whether sum_i c_i (v_i - t) is more than z of its standard deviations."""
        differences = values - t
        return bool(counts @ differences > reach * np.sqrt(differences @ differences))

    if not is_below_mean(low):
        return low
    for _ in range(60):  # the sum falls with t, because the sum of the counts exceeds its noise
        middle = (low + high) / 2
        if is_below_mean(middle):
            low = middle
        else:
            high = middle
    return low


def quantile_interval(
    counts: Floats,
    bins: Codes,
    ends: tuple[Floats, Floats],
    sigma: float,
    probability: float,
    level: float = LEVEL,
) -> tuple[float, float]:
    """Return the interval of the bins that a quantile may lie in, from the low end of the first to the high end of the last.

    A bin is out where the share below its high edge is clearly less than `probability`, or that below its low edge clearly
    more: sum_i c_i (1[bin i is below] - p) is normal, of variance sigma^2 sum_i (1[...] - p)^2. Of the bin that the quantile
    lies in either is so with probability (1 - level) / 2 at most. DP: post-processing.

    Args:
        counts: Noisy counts c of bins, shape (n,).
        bins: The place of the bin of each count, shape (n,).
        ends: Least and largest values of all bins, ascending.
        sigma: Standard deviation of the noise of a count.
        probability: p.
        level: of confidence, in (0, 1).
    """
    reach = -float(ndtri((1 - level) / 2)) * sigma  # z sigma
    lows, highs = ends
    scores: list[float] = []
    for edge in range(len(lows) + 1):
        weights = (bins < edge) - probability
        noise = max(reach * np.sqrt(weights @ weights), 1e-300)
        scores.append(float(counts @ weights / noise))

    places = range(len(lows))
    first_places = [place for place in places if scores[place + 1] >= -1]
    last_places = [place for place in places if scores[place] <= 1]
    first = min(first_places, default=0)
    last = max(last_places, default=len(lows) - 1)
    return float(lows[min(first, last)]), float(highs[max(first, last)])
