"""What noisy counts say of columns: whether one was read as it was meant, and its mean is near. DP: post-processing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from marginweave.base.arrays import Codes, Floats
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import OTHER, Column, DateColumn, MeasuredColumn, NumberColumn
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.release import Configuration
from marginweave.measurements.combinations import Aggregates
from marginweave.released.verdict import CARE

MOST_MISSING, _MUCH = 0.5, 0.25
_DEVIATIONS = 1.96
# A column can look drawn only where it has many records of each value, and noise that could not hide how far they are from its
# weights, and, with so few values, no known relation to another: random draws pass for others once in a million times.
EVEN_VALUES, _EVEN_RECORDS, _EVEN_DEVIATIONS, _EVEN_CHANCE = 4, 500.0, 5.0, 1e-6
_LOOK = ": look whether the column was read as it was meant"
_EVEN = (
    "the released counts of {name} cannot be told from evenly spread ones, as they would be if no value had been read"
)
_EVEN += ": fine if {name} really is even; if not, look whether it was read as it was meant"
_EMPTY = "{name} is missing in {share:.0f} % of the records" + _LOOK
_LOST = "{name} is missing or outside what is declared in at least {share:.0f} % of the records" + _LOOK


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What noisy counts say of one column: share of missing records, whether its values are as draws, and its mean.

    `lost` is what noise leaves of the share of records that are missing or, as `other`, outside the declared values.
    """

    name: str
    missing: float
    is_even: bool
    lost: float = 0.0
    values: int = 0
    mean: str | None = None


def column_facts(
    counts: Aggregates,
    configuration: Configuration,
    deviation: float,
    paired: Collection[str],
    related: Collection[str],
) -> list[ColumnFacts]:
    """What the released counts say of the columns that have one value a record.

    With `impute` a cell that cannot be read becomes a draw by public weights (`uniform_weights`). So does a column that nobody
    has read as it was meant: its counts follow the weights, and it is related to no other. Columns of few values are often that
    even; they are doubted only where they were counted with others (`paired`) and are not `related`.
    """
    records, found = max(1.0, float(counts.record_count)), []
    structure = configuration.structure
    elsewhere = {name for rule in (structure and structure.applies) or () for name in rule.columns}
    elsewhere |= {level.column for level in (structure and structure.levels) or () if level.by in elsewhere}
    known = {configuration.attributes[a].name for table in configuration.totals for a in table.attributes}
    released = dict(counts.levels[0].by_columns()) if counts.levels else {}
    for place, attribute in enumerate(configuration.attributes):
        if attribute.is_set or attribute.of_set:
            continue
        if (place,) not in released:  # a private domain of which no value was often enough
            found.append(ColumnFacts(name=attribute.name, missing=1.0, is_even=False))
            continue
        rows = released[place,]
        codes, values = counts.levels[0].values[rows, 0], counts.levels[0].counts[rows].astype(np.float64)
        missing, column = max(0.0, 1 - values.sum() / records), configuration.columns[attribute.columns[0]]
        enough = values.sum() / len(values) > max(_EVEN_RECORDS, _EVEN_DEVIATIONS * deviation)
        told = attribute.name not in {*related, *known} and (len(values) > EVEN_VALUES or attribute.name in paired)
        is_whole = attribute.imputed and len(attribute.labels) == len(values) > 1
        is_even = is_whole and enough and told and _is_even(values, attribute, column, deviation)
        if attribute.name in elsewhere or attribute.undeclared:  # nothing is lost, or it is said by itself
            missing = 0.0
        held = dict(zip(codes.tolist(), values.tolist(), strict=True))
        lost = 0.0 if attribute.name in elsewhere else _lost(counts, configuration, place, held, deviation)
        number = column if isinstance(column, NumberColumn) and len(attribute.columns) == 1 else None
        mean = mean_doubt(number, codes, values, deviation) if number else None
        facts = ColumnFacts(name=attribute.name, missing=missing, is_even=is_even, lost=lost)
        # what happens through a year is often even: a date is looked at as a column of few values is
        most = EVEN_VALUES if isinstance(column, DateColumn) else len(values)
        found.append(replace(facts, values=min(len(values), most), mean=mean))
    return found


def _is_even(values: Floats, attribute: Attribute, column: Column, deviation: float) -> bool:
    """Whether counts are what draws by the public weights of the column make of so many records."""
    weights = np.ones(len(values))
    if len(attribute.columns) == 1 and isinstance(column, MeasuredColumn):
        weights = np.array(column.uniform_weights(attribute.labels))
    drawn = values.sum() * weights / weights.sum()
    chi2 = float(((values - drawn) ** 2 / (drawn + deviation**2)).sum())
    return chi2 <= float(chdtri(len(values) - 1, _EVEN_CHANCE))


def _lost(counts: Aggregates, configuration: Configuration, place: int, held: Mapping[int, float], sd: float) -> float:
    """The share of records without a value, or with `other` for one that is not declared, less what noise explains of it.

    Counts of k-tuples lack what bounding and thresholds took: nothing is said of a missing value where bounding takes any, and
    a value below the threshold may have had that many.
    """
    attribute, noise = configuration.attributes[place], counts.noise[0]
    records = max(1.0, float(counts.record_count))
    column, lost = configuration.columns[attribute.columns[0]], 0.0
    is_whole = counts.measured is not None or noise.contribution_bound >= len(configuration.attributes)
    if attribute.optional and not attribute.private and is_whole:
        lost += records - sum(held.values()) - (len(attribute.labels) - len(held)) * noise.threshold
    if isinstance(column, ValuedColumn) and OTHER in set(attribute.labels) - {*(column.values or ())}:
        lost += held.get(attribute.labels.index(OTHER), 0.0)
    return max(0.0, lost - _DEVIATIONS * sd * math.sqrt(len(attribute.labels) + 1)) / records


def mean_doubt(column: NumberColumn, codes: Codes, counts: Floats, deviation: float) -> str | None:
    """Why the mean of a column is not to be trusted: noise in its counts, or most records in one wide bin; None where it is.

    With c_i records in bin i of middle m_i, the noise of the mean m has variance sigma^2 sum_i (m_i - m)^2 / (sum_i c_i)^2.
    """
    edges, inside = np.array(column.edges), codes < len(column.bin_labels)
    bins, held = codes[inside], counts[inside]
    if (records := float(held.sum())) <= 0:
        return None
    middles, most = (edges[bins] + edges[bins + 1]) / 2, int(np.argmax(held))
    mean = float(held @ middles) / records
    noise = _DEVIATIONS * deviation * float(np.linalg.norm(middles - mean)) / records
    first, last = column.grid(int(bins[most]))
    if noise > CARE * abs(mean):
        return f"noise can move it by {100 * noise / abs(mean):,.0f} %" if mean else "it is noise"
    if held[most] > records / 2 and (last - first) / 10**column.resolution > abs(mean) / 2:
        return f"most records are in one bin, {column.bin_labels[int(bins[most])]}, and where in it is not known"
    return None


def doubts(columns: Sequence[ColumnFacts]) -> Iterator[str]:
    """Columns that look as if they had not been read."""
    for column in columns:
        if column.missing > MOST_MISSING:
            yield _EMPTY.format(name=column.name, share=100 * column.missing)
        elif column.lost > _MUCH:
            yield _LOST.format(name=column.name, share=100 * column.lost)
        elif column.is_even:
            yield _EVEN.format(name=column.name)
