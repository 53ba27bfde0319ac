"""Test whether a table has cells that are not as declared, by their noisy counts. DP: post-processing.

Where a configuration does not declare a cell that is empty or outside, the cell has a separate code
(`Sections.with_undeclared`). For a set, the records with such a value are counted (`Sections.indicated_sets`).
The test holds for all columns jointly: where all cells of a table are as declared, a code is kept in one of 1,000 releases at
most (Bonferroni: each of m columns is tested at 1/1,000 m, and noise alone is as large with half of this probability).
A code that is not kept had no more records than noise hides. Records are made without its count. Tables remain as they
were drawn, so that a sum over all codes of a column has all records, with the noise of one cell more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.budget import NoiseName
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import UndeclaredCells
from marginweave.domain.zeros import domain_sizes, structural_masks
from marginweave.mechanisms.catalogue import least_selected, noise_reach
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression, released_compression
from marginweave.observations.tables import Observation

FALSE_ALARMS = 1e-3
"""The largest share of releases that keep a code where all cells are as declared."""
_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class NoisyCount:
    """A noisy count, in which at most `explained` records are records of other cells."""

    count: int
    sigma: float
    explained: int = 0
    noise: NoiseName = "rounded-gaussian"

    def cells(self, name: str, columns: int) -> UndeclaredCells:
        """Return the cells of the attribute `name`, one of `columns` that are tested jointly.

        A count that is found is known because it passed the test, which lifts it: its lower end takes that back.
        """
        half = noise_reach(self.noise, self.sigma, _LEVEL)
        least = self.count - self.explained
        largest_noise = noise_reach(self.noise, self.sigma, 1 - FALSE_ALARMS / columns)
        is_found = least > largest_noise
        low = max(least - half, 0)
        if is_found and self.sigma:
            selected = least_selected(
                self.noise, self.sigma, np.array(least), largest_noise + 1, _LEVEL
            )
            low = min(low, int(selected))
        return UndeclaredCells(
            name=name,
            count=max(self.count, 0),
            deviation=self.sigma,
            low=low,
            high=max(self.count, 0) + half,
            found=is_found,
            kept=is_found,
        )


def measured_undeclared(
    configuration: Configuration,
    one_way: Sequence[Observation],
    larger: Sequence[Observation] = (),
) -> tuple[UndeclaredCells, ...]:
    """Return the undeclared cells by the marginals, in which the last code of an attribute is that of such cells.

    Each table with the attribute counts the same records, by the sum of the cells with this code; the count is the mean of
    these sums by precision (1 / variance). In `one_way` the marginals of `indicated_sets` follow those of attributes; they are
    in no larger one. `configuration` has the bounds that were drawn.
    """
    names = (
        *(attribute.name for attribute in configuration.attributes),
        *configuration.indicated_sets,
    )
    places = {name: place for place, name in enumerate(names)}
    counts = {}
    for name in (*configuration.undeclared, *configuration.indicated_sets):
        place = places[name]
        larger_tables = [m for m in larger if place in m.attributes and m.complete]
        counts[name] = counted_last(place, [one_way[place], *larger_tables])
    return _decided(configuration, counts)


def counted_last(place: int, tables: Sequence[Observation]) -> NoisyCount:
    """Return how many records have the last code of an attribute, by all tables with it; the first is its own marginal."""
    precision = np.zeros(len(tables))
    sums = np.zeros(len(tables))
    for i, table in enumerate(tables):
        axis = table.attributes.index(place)
        last_cells = table.counts.take([-1], axis)
        precision[i] = 1 / (last_cells.size * table.deviation**2)
        sums[i] = float(last_cells.sum())
    mean = sums @ precision / precision.sum()
    return NoisyCount(
        count=round(float(mean)),
        sigma=float(precision.sum() ** -0.5),
        noise=tables[0].noise,
    )


def counted_undeclared(
    configuration: Configuration,
    aggregates: Aggregates,
    cut: int,
) -> tuple[UndeclaredCells, ...]:
    """Return the undeclared cells by the combinations of length 1: the record count, which has noise, less these.

    Where a column does not always apply, the records in which it does replace the record count (`_applicable`). Each value
    below the threshold may explain up to that many records. In every column `cut` records are explained: those that bounding
    contributions takes values from.
    """
    places = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    first_level = aggregates.levels[0]
    rows = dict(first_level.by_columns())
    noise = aggregates.noise[0]
    counts = {}
    for name in configuration.undeclared:
        place = places[name]
        rows_of_column = rows.get((place,), slice(0, 0))
        released = first_level.counts[rows_of_column]
        values = aggregates.domain.sizes[place]
        records, variance_of_records = _applicable(configuration, aggregates, name)
        variance_of_values = values * noise.deviation**2
        sigma = np.sqrt(variance_of_values + variance_of_records)
        values_below = values - len(released)
        counts[name] = NoisyCount(
            count=records - int(released.sum()),
            sigma=float(sigma),
            explained=values_below * noise.threshold + cut,
        )
    return _decided(configuration, counts)


def _applicable(
    configuration: Configuration,
    aggregates: Aggregates,
    name: str,
) -> tuple[int, float]:
    """Return how many records a column applies to, and the variance of the noise: the record count where it always does.

    Else it is the sum of the released combinations of the columns that decide. Thresholds and bounded contributions lower
    this sum, so that there are at least as many undeclared cells as follow from it.
    """
    if name not in configuration.missing_by_rule:
        return aggregates.record_count, aggregates.record_deviation**2
    assert configuration.structure is not None
    rule = next(rule for rule in configuration.structure.applies or () if name in rule.columns)
    codes = configuration.codes_of(rule.where)
    places = sorted(codes)
    level = aggregates.levels[len(places) - 1]
    noise = aggregates.noise[len(places) - 1]
    rows = dict(level.by_columns()).get(tuple(places), slice(0, 0))
    values = level.values[rows]
    applies = [np.isin(values[:, i], codes[place]) for i, place in enumerate(places)]
    is_met = np.logical_and.reduce(applies)
    counts = level.counts[rows]
    records = int(counts[is_met].sum())
    combinations = float(is_met.sum())
    return records, combinations * noise.deviation**2


def declared_compression(
    configuration: Configuration,
    labels: Sequence[Sequence[str]],
    one_way: Sequence[Observation],
) -> Compression:
    """Return which rare values are measured together, only among declared ones: no code of other cells is merged.

    So larger tables count such cells separately from all others, and their counts of these decide as well.
    DP: post-processing of the drawn marginals of single attributes.
    """
    declared = configuration.with_undeclared(())
    coded = ignored_attributes(declared, labels, one_way)
    declared_marginals = [m.without_last(coded) for m in one_way]
    masks = structural_masks(declared, labels)
    return released_compression(declared_marginals, configuration.marginal_settings, masks)


def ignored_attributes(
    estimated: Configuration,
    labels: Sequence[Sequence[str]],
    one_way: Sequence[Observation],
) -> frozenset[int]:
    """Return the attributes whose tables have one code, the last, that the configuration of estimates does not have."""
    sizes = domain_sizes(estimated.attributes, labels)
    tables = enumerate(one_way)
    return frozenset(place for place, table in tables if table.counts.size > sizes[place])


def _decided(
    configuration: Configuration, counts: Mapping[str, NoisyCount]
) -> tuple[UndeclaredCells, ...]:
    """Return the decision on each column; neither a set nor a column of known counts has such a code."""
    known_columns: set[str] = set()
    for table in configuration.totals:
        known_columns.update(configuration.attributes[a].name for a in table.attributes)
    decided = []
    for name, count in counts.items():
        cells = count.cells(name, len(counts))
        if name in configuration.indicated_sets:
            cells = replace(cells, kept=False, of_set=True)
        elif name in known_columns:
            cells = replace(cells, kept=False)
        decided.append(cells)
    return tuple(decided)
