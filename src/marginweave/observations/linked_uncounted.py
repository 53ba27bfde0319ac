"""How many rows of linked tables are in no count of rows, by released counts of the rows of a unit. DP: post-processing.

Where a column of the source is the number of rows that a unit has, each bin of it that lies beyond `at_most` says of how many
units some rows are left out, and by its lower end how many rows at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import UncountedRows
from marginweave.mechanisms.catalogue import noise_reach
from marginweave.observations.tables import Marginals, Observation

_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class LinkedUncounted:
    """The rows of a linked `table` that are in no count of rows, whose ids are in its column `by`.

    `total` is the noisy number of rows that are counted, and `total_deviation` the standard deviation of its noise.
    """

    table: str
    by: str
    rows: UncountedRows
    total: float
    total_deviation: float

    @property
    def shares(self) -> tuple[float, float]:
        """Least share of the rows that is not counted: an estimate, and its lower end at 97.5 %; 0 where noise explains all."""
        if not self.rows.found:
            return 0.0, 0.0
        return self.rows.least_share(self.total, self.total_deviation)


def linked_uncounted(
    marginals: Marginals, configuration: Configuration
) -> tuple[LinkedUncounted, ...]:
    """Return what is known of the rows of each counted linked table; tables of which nothing is known are not in it.

    `configuration` has the bounds that were drawn.
    """
    known = []
    for name in configuration.counted_tables:
        counted = list(_numbers_of_rows(name, marginals, configuration))
        if not counted:
            continue
        # of several columns the one that looks closest at the most of a unit
        rows = min(counted, key=lambda seen: seen[0])[1]
        totals = [
            (seen.deviation * math.sqrt(seen.counts.size), float(seen.counts.sum()))
            for seen in marginals.linked
            if seen.table == name and seen.count_of == "rows"
        ]
        deviation, total = min(totals)
        known.append(
            LinkedUncounted(
                table=name,
                by=_by(name, configuration),
                rows=rows,
                total=total,
                total_deviation=deviation,
            )
        )
    return tuple(known)


def _by(table: str, configuration: Configuration) -> str:
    """Return the column of a linked table that has the ids."""
    assert configuration.tables is not None
    assert configuration.privacy.subject is not None
    return configuration.tables[table].by or configuration.privacy.subject.column


def _numbers_of_rows(
    table: str, marginals: Marginals, configuration: Configuration
) -> Iterator[tuple[int, UncountedRows]]:
    """Yield what each column with the number of rows of a unit says, behind the least number that it tells from `at_most`.

    A column does not say it where cells of it were changed, or where no bin lies beyond `at_most`.
    """
    changed = {*configuration.repaired_columns, *configuration.imputed_columns}
    most = (configuration.tables or {})[table].at_most or 1
    for place, attribute in enumerate(configuration.attributes):
        of_table, derivation = configuration.derived.get(attribute.column, ("", None))
        if of_table != table or derivation is None or derivation.kind != "count":
            continue
        column = configuration.columns[attribute.column]
        if attribute.column in changed or not isinstance(column, BinnedColumn):
            continue
        beyond, possible = _beyond(column, most)
        single = marginals.one_way[place]
        if beyond.any():
            least = int(beyond[beyond > 0].min())
            yield least, _rows(single, beyond, possible, most)


def _beyond(column: BinnedColumn, most: int) -> tuple[Integers, Integers]:
    """Return how many rows beyond `most` a unit in each bin has at least, and the codes of units that may have any.

    The last bin has units with more rows than it says, too.
    """
    limits = column.label_limits
    beyond = np.zeros(len(limits), np.int64)
    possible = []
    last = column.bin_count - 1
    for code, ends in enumerate(limits):
        if ends is None:
            possible.append(code)
            continue
        beyond[code] = max(math.ceil(ends[0]) - most, 0)
        if ends[1] > most or code == last:
            possible.append(code)
    return beyond, np.array(possible, np.int64)


def _rows(single: Observation, beyond: Integers, possible: Integers, most: int) -> UncountedRows:
    """Return what the counts of a column say; codes of missing cells are behind those of bins, and may be of any number."""
    counts = np.asarray(single.counts, np.float64)
    surely = counts[: len(beyond)][beyond > 0]
    gaps = counts[len(beyond) :]
    maybe = np.concatenate([counts[possible], gaps])
    sigma_units, sigma_maybe = (single.deviation * math.sqrt(c.size) for c in (surely, maybe))
    sigma_rows = single.deviation * math.sqrt(float((beyond**2).sum()))
    half_units, half_maybe, half_rows = (
        noise_reach(single.noise, sigma, _LEVEL) for sigma in (sigma_units, sigma_maybe, sigma_rows)
    )
    units, rows = round(surely.sum()), round(float(counts[: len(beyond)] @ beyond))
    return UncountedRows(
        cap=most,
        most=int(beyond.max()),
        subjects=max(units, 0),
        subjects_deviation=sigma_units,
        subjects_ends=(max(units - half_units, 0), max(round(maybe.sum()), 0) + half_maybe),
        rows_at_least=max(rows, 0),
        rows_deviation=sigma_rows,
        rows_ends=(max(rows - half_rows, 0), max(rows, 0) + half_rows),
    )
