"""Whether cells that are not as declared are in a table, by their noisy counts. DP: post-processing.

Where a configuration says nothing of a cell that is empty or outside, it has a code of its own (`Sections.with_undeclared`);
of a value of a set it is counted which records have one (`Sections.indicated_sets`).
The test holds over all columns together: where all cells of a table are as declared, a code is kept in one of 1,000 releases at
most (Bonferroni: each of m columns is tested at 1/1,000 m, and noise alone is as large with half of this probability).
A code that is not kept had no more records than noise hides. What was counted there is left out of what makes records; tables
stay as they were drawn, so that a sum over all codes of a column has all records, with the noise of one cell more.
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
"""How often a release keeps a code at most, where all cells are as declared."""
_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class _NoisyCount:
    """A noisy count, of which `explained` records at most are of other cells."""

    count: int
    sigma: float
    explained: int = 0
    noise: NoiseName = "rounded-gaussian"

    def cells(self, name: str, columns: int) -> UndeclaredCells:
        """Of the attribute of that name, one of so many that are tested together.

        A count that is found is known because it passed the test, which lifts it: its lower end takes that back.
        """
        half = noise_reach(self.noise, self.sigma, _LEVEL)
        least = self.count - self.explained
        largest_noise = noise_reach(self.noise, self.sigma, 1 - FALSE_ALARMS / columns)
        found = least > largest_noise
        low = max(least - half, 0)
        if found and self.sigma:
            low = min(low, least_selected(self.noise, self.sigma, least, largest_noise + 1, _LEVEL))
        return UndeclaredCells(
            name=name,
            count=max(self.count, 0),
            deviation=self.sigma,
            low=low,
            high=max(self.count, 0) + half,
            found=found,
            kept=found,
        )


def measured_undeclared(
    configuration: Configuration, one_way: Sequence[Observation], larger: Sequence[Observation] = ()
) -> tuple[UndeclaredCells, ...]:
    """By the marginals of single attributes and all larger ones, in which the last code of an attribute is that of such cells.

    Each table with the attribute counts the same records, by the sum of the cells with this code; the count is the mean of
    these sums by precision (1 / variance). Behind the single attributes are the marginals of `indicated_sets`, which are in no
    larger one. Bounds of the configuration are those that were bought.
    """
    names = (*(attribute.name for attribute in configuration.attributes), *configuration.indicated_sets)
    places = {name: place for place, name in enumerate(names)}
    counts = {}
    for name in (*configuration.undeclared, *configuration.indicated_sets):
        place = places[name]
        tables = [one_way[place], *(m for m in larger if place in m.attributes and m.complete)]
        counts[name] = _counted(place, tables)
    return _decided(configuration, counts)


def _counted(place: int, tables: Sequence[Observation]) -> _NoisyCount:
    """How many records have the last code of an attribute, by all tables with it; the first is that of the attribute alone."""
    alone, *larger = tables
    last = [alone.counts[-1:], *(m.counts.take(-1, m.attributes.index(place)) for m in larger)]
    precision = np.array([1 / (cells.size * m.deviation**2) for cells, m in zip(last, tables, strict=True)])
    sums = np.array([float(cells.sum()) for cells in last])
    return _NoisyCount(
        count=round(float(sums @ precision / precision.sum())),
        sigma=float(precision.sum() ** -0.5),
        noise=alone.noise,
    )


def counted_undeclared(configuration: Configuration, aggregates: Aggregates, cut: int) -> tuple[UndeclaredCells, ...]:
    """By the combinations of length 1: what is left of the record count, which has noise of its own.

    Where a column does not always apply it is what is left of the records in which it does (`_applicable`). Of a value below
    the threshold up to so many records are none of these, and in every column as many as `cut`, the records that bounding
    contributions takes values from.
    """
    places = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    rows, noise = dict(aggregates.levels[0].by_columns()), aggregates.noise[0]
    counts = {}
    for name in configuration.undeclared:
        place = places[name]
        held = aggregates.levels[0].counts[rows.get((place,), slice(0, 0))]
        values = aggregates.domain.sizes[place]
        records, variance = _applicable(configuration, aggregates, name)
        sigma = float(np.sqrt(values * noise.deviation**2 + variance))
        below = (values - len(held)) * noise.threshold
        counts[name] = _NoisyCount(count=records - int(held.sum()), sigma=sigma, explained=below + cut)
    return _decided(configuration, counts)


def _applicable(configuration: Configuration, aggregates: Aggregates, name: str) -> tuple[int, float]:
    """How many records a column applies to, and the variance of the noise: the record count where it always does.

    Else it is the sum of the released combinations of the columns that decide. Thresholds and bounded contributions take from
    these, so that there are no fewer cells that are not as declared than follow from it.
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
    met = np.logical_and.reduce([np.isin(values[:, i], codes[place]) for i, place in enumerate(places)])
    return int(level.counts[rows][met].sum()), float(met.sum()) * noise.deviation**2


def declared_compression(
    configuration: Configuration, labels: Sequence[Sequence[str]], one_way: Sequence[Observation]
) -> Compression:
    """Return which rare values are measured together, of declared ones alone: no code of other cells is among them.

    So larger tables count such cells apart from all others, and what these say of them decides as well.
    DP: post-processing of the drawn marginals of single attributes.
    """
    declared = configuration.with_undeclared(())
    coded = ignored_attributes(declared, labels, one_way)
    alone = [m.without_last(coded) for m in one_way]
    return released_compression(alone, configuration.marginal_settings, structural_masks(declared, labels))


def ignored_attributes(
    estimated: Configuration, labels: Sequence[Sequence[str]], one_way: Sequence[Observation]
) -> frozenset[int]:
    """Return the attributes whose tables have one code, the last, that the configuration of estimates has not."""
    sizes = domain_sizes(estimated.attributes, labels)
    return frozenset(place for place, measured in enumerate(one_way) if measured.counts.size > sizes[place])


def _decided(configuration: Configuration, counts: Mapping[str, _NoisyCount]) -> tuple[UndeclaredCells, ...]:
    """The decision on each; neither a set nor a column of known counts has such a code."""
    known = {configuration.attributes[a].name for table in configuration.totals for a in table.attributes}
    found = {name: count.cells(name, len(counts)) for name, count in counts.items()}
    sets = configuration.indicated_sets
    found = {name: replace(cells, kept=cells.kept and name not in known) for name, cells in found.items()}
    found |= {name: replace(found[name], kept=False, of_set=True) for name in sets}
    return tuple(found[name] for name in counts)
