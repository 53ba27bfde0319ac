"""Means, medians and quantiles of number columns: of tables, and of released counts with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from marginweave.base.arrays import Codes, Floats, Integers
from marginweave.columns import values_of
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.release import Configuration
from marginweave.estimate.intervals import LEVEL
from marginweave.mechanisms.catalogue import count_noise
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Marginals
from marginweave.records.decode import column_codes, column_counts, label_counts
from marginweave.released.numbers import ExactStatistic, ExactSummary, NumberStatistic, NumberSummary

Statistics: TypeAlias = tuple[float | None, ...]
"""The mean, and the quantiles of `PROBABILITIES`; None of no value."""

PROBABILITIES = (0.1, 0.25, 0.5, 0.75, 0.9)
# Parts of a bin within which a quantile is not told apart, and of all bins together; and values that stand for a bin.
_PARTS, _ALL_PARTS, _VALUES = 256, 1 << 16, 64


@dataclass
class NumberTally:
    """The values of one column, as far as its mean and its quantiles need them: exact sums, and counts of parts of bins."""

    parts: Floats
    counts: Integers
    codes: tuple[float, ...] = ()
    total: float = 0.0

    @classmethod
    def of(cls, column: NumberColumn) -> NumberTally:
        """An empty tally; a part is a point of the column's grid, or a 256th of a bin where this has more points."""
        bins, scale = len(column.bin_labels), 10**column.resolution
        most, starts = max(1, min(_PARTS, _ALL_PARTS // bins)), []
        for first, last in map(column.grid, range(bins)):
            number = min(most, last - first + 1)
            starts.append(first + (last - first + 1) * np.arange(number) // number)
        parts = np.concatenate(starts) / scale
        return cls(parts=parts, counts=np.zeros(len(parts), np.int64), codes=column.special)

    def add(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Count more values; missing ones and special codes are left out."""
        numbers = values.drop_null().to_numpy().astype(np.float64)
        numbers = numbers[~np.isin(numbers, self.codes)]
        place = np.maximum(np.searchsorted(self.parts, numbers, side="right") - 1, 0)
        self.counts += np.bincount(place, minlength=len(self.parts))
        self.total += float(numbers.sum())

    def statistics(self) -> Statistics:
        """The mean, exactly, and each quantile, to the part that it lies in."""
        below = np.cumsum(self.counts)
        if not below[-1]:
            return (None,) * (1 + len(PROBABILITIES))
        at = np.searchsorted(below, np.array(PROBABILITIES) * below[-1])
        return (self.total / int(below[-1]), *self.parts[at].tolist())


@dataclass
class NumberTallies:
    """The tallies of all counted number columns of a table that is read block by block."""

    configuration: Configuration
    by_column: dict[str, NumberTally] = field(init=False)

    def __post_init__(self) -> None:
        self.by_column = {name: NumberTally.of(column) for name, column in number_columns(self.configuration)}

    def add(self, table: pa.Table) -> None:
        """Count a block of clean or decoded records."""
        for name, tally in self.by_column.items():
            tally.add(table.column(name))

    def join(self, other: NumberTallies) -> None:
        """Count what another one has counted."""
        for name, tally in other.by_column.items():
            own = self.by_column[name]
            own.counts, own.total = own.counts + tally.counts, own.total + tally.total

    def statistics(self) -> dict[str, Statistics]:
        """Those of each column."""
        return {name: tally.statistics() for name, tally in self.by_column.items()}


def number_columns(configuration: Configuration) -> Iterator[tuple[str, NumberColumn]]:
    """The counted number columns, in declared order, their bins resolved."""
    for name in configuration.names:
        column = configuration.columns[name]
        if isinstance(column, NumberColumn):
            yield name, column


def number_summaries(
    configuration: Configuration, counts: Aggregates, drawn: Marginals | None, synthetic: Mapping[str, Statistics]
) -> tuple[NumberSummary, ...]:
    """Statistics of released counts, with intervals from marginals, beside those of synthetic records.

    The released value is that of the normalized counts, their values where `draw` puts them. DP: post-processing.

    Args:
        configuration: What is declared, bins resolved.
        counts: Normalized counts.
        drawn: The marginals as they were drawn; None of k-tuples, of which no interval is known.
        synthetic: Statistics of the synthetic records.
    """
    by_column, found = column_counts(label_counts(counts), counts.domain, configuration), []
    for name, column in number_columns(configuration):
        released = _released(column, configuration.missing_texts(name), by_column[name])
        inside = [(None, None)] * len(released) if drawn is None else _intervals(name, column, drawn, configuration)
        rows = zip((None, *PROBABILITIES), released, inside, synthetic[name], strict=True)
        statistics = tuple(
            NumberStatistic(quantile=p, released=value, low=low, high=high, synthetic=made)
            for p, value, (low, high), made in rows
        )
        found.append(NumberSummary(column=name, statistics=statistics))
    return tuple(found)


def exact_summaries(sensitive: NumberTallies, synthetic: NumberTallies) -> tuple[ExactSummary, ...]:
    """Statistics of the sensitive rows beside those of the synthetic records. Private."""
    made, found = synthetic.statistics(), []
    for name, values in sensitive.statistics().items():
        rows = zip((None, *PROBABILITIES), values, made[name], strict=True)
        statistics = (ExactStatistic(quantile=p, sensitive=own, synthetic=other) for p, own, other in rows)
        found.append(ExactSummary(column=name, statistics=tuple(statistics)))
    return tuple(found)


def _released(column: NumberColumn, missing: tuple[str, ...], counts: Floats) -> Statistics:
    """Those of the released counts: some values of each bin, evenly spread over what its draw can give, stand for it."""
    each, generator = max(1, min(_VALUES, _ALL_PARTS // len(counts))), np.random.default_rng(0)  # post-processing
    if not counts.any():
        return (None,) * (1 + len(PROBABILITIES))

    def spread(number: int) -> Floats:  # its order is chance, as two draws of a value are independent
        places = np.tile((np.arange(each) + 0.5) / each, (number // each, 1))
        return generator.permuted(places, axis=1).ravel()

    kind, codes = values_of(column, missing, counts), np.repeat(np.arange(len(counts)), each)
    values = kind.decode(codes, column.labels, spread).to_numpy(zero_copy_only=False)
    order, weights = np.argsort(values), np.repeat(counts / each, each)
    below = np.cumsum(weights[order])
    at = np.searchsorted(below, np.array(PROBABILITIES) * below[-1])
    return (float(weights @ values / below[-1]), *values[order][np.minimum(at, len(order) - 1)].tolist())


def _intervals(
    name: str, column: NumberColumn, drawn: Marginals, configuration: Configuration
) -> list[tuple[float | None, float | None]]:
    """An interval for each statistic, of the rows as prepared, wherever their values lie inside the bins.

    A quantile that may lie in an open bin has one end, and a mean has no interval where there are open bins, or where noise
    takes its ends past each other.
    """
    attribute, codes = column_codes(drawn.domain, configuration)[name]
    measured = drawn.one_way[attribute]
    if not measured.complete or not count_noise(measured.noise).is_normal:
        return [(None, None)] * (1 + len(PROBABILITIES))
    lows, highs = np.array(column.held).T
    known = codes < len(column.bin_labels)
    counts, bins = measured.counts[: len(codes)].astype(np.float64)[known], codes[known]
    sigma = float(np.sqrt(measured.deviation**2 + 1 / 12))
    mean: tuple[float | None, float | None] = (None, None)
    if np.isfinite([lows, highs]).all():
        low, high = mean_floor(counts, lows[bins], sigma), -mean_floor(counts, -highs[bins], sigma)
        mean = (low, high) if low <= high else mean
    quantiles = (quantile_interval(counts, bins, (lows, highs), sigma, p) for p in PROBABILITIES)
    return [mean, *((_end(low), _end(high)) for low, high in quantiles)]


def _end(edge: float) -> float | None:
    """An end of an interval; None where the bin has none."""
    return edge if np.isfinite(edge) else None


def mean_floor(counts: Floats, values: Floats, sigma: float, level: float = LEVEL) -> float:
    """A lower bound of the mean m of `values` weighted by counts without noise, wrong with probability (1 - level) / 2.

    sum_i c_i (v_i - t) is normal with mean 0 and variance sigma^2 sum_i (v_i - t)^2 at t = m (Fieller 1954): the least t at
    which it is no more than z of its standard deviations is at most m. Where the counts do not exceed their noise it is the
    least value. DP: post-processing.
    """
    z = -float(ndtri((1 - level) / 2)) * sigma
    low, high = float(values.min()), float(values.max())
    if counts.sum() <= z * np.sqrt(len(counts)):
        return low

    def beyond(mean: float) -> bool:
        away = values - mean
        return bool(counts @ away > z * np.sqrt(away @ away))

    if not beyond(low):
        return low
    for _ in range(60):  # it falls, as the sum of the counts exceeds its noise
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) else (low, middle)
    return low


def quantile_interval(
    counts: Floats, bins: Codes, held: tuple[Floats, Floats], sigma: float, probability: float, level: float = LEVEL
) -> tuple[float, float]:
    """The bins that a quantile may lie in, from the least number of the first to the largest of the last.

    A bin is out where the share below its high edge is clearly less than `probability`, or that below its low edge clearly
    more: sum_i c_i (1[bin i is below] - p) is normal, of variance sigma^2 sum_i (1[...] - p)^2. Of the bin that the quantile
    lies in either is so with probability (1 - level) / 2 at most. DP: post-processing.
    """
    z = -float(ndtri((1 - level) / 2)) * sigma
    lows, highs = held
    places = range(len(lows) + 1)
    weights = [(bins < place) - probability for place in places]
    scores = np.array([counts @ weight / max(z * np.sqrt(weight @ weight), 1e-300) for weight in weights])
    first = next((j for j, (_, high) in enumerate(pairwise(scores)) if high >= -1), 0)
    last = next((j for j in reversed(range(len(lows))) if scores[j] <= 1), len(lows) - 1)
    return float(lows[min(first, last)]), float(highs[max(first, last)])
