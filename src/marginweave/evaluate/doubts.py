"""What noisy counts say of columns: whether one was read as it was meant, and its mean is near. DP: post-processing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtri

from marginweave.base.arrays import Codes, Floats
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import OTHER, Column, DateColumn, MeasuredColumn, NumberColumn
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.shares import share_ends
from marginweave.observations.combinations import Aggregates
from marginweave.released.verdict import CARE

_MUCH = 0.25
# Of a private domain, by the lower end: from where on what was not released is said, and from where on it is a doubt.
_SOME_HIDDEN, _MUCH_HIDDEN = 0.01, 0.1
_DEVIATIONS = 1.96
# A column can look drawn only where it has many records of each value, and noise that could not hide how far they are from its
# weights, and, with so few values, no known relation to another: random draws pass for others once in a million times.
_EVEN_VALUES, _EVEN_RECORDS, _EVEN_DEVIATIONS, _EVEN_CHANCE = 4, 500.0, 5.0, 1e-6
_EVEN = (
    "the released counts of {name} cannot be told from evenly spread ones, as they would be if no value had been read"
)
_EVEN += ": fine if {name} really is even; if not, look whether it was read as it was meant"
_GAPS = (
    "{name} is missing in at least {share:.0f} % of the records: fine if so many have none, or its values do not apply"
)
_OTHER = (
    "{name} is “other” in at least {share:.0f} % of the records: look whether the list of its values is the right one"
)
_RARE = "about {share:.0f} % ({low:.0f} to {high:.0f}) of {name} hold values that were not released{none}"
_NOTHING = "{name} has no released value, as none is frequent enough: leave it out, or write coarser values"


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What noisy counts say of one column: shares of the records, whether its values are as draws, and its mean.

    Of `missing` and `other` it is what noise leaves of the share. `hidden` are those of a private domain whose value was not
    released, 1 where none was, `hidden_ends` an interval of it; `can_lack` says that cells without any value are among them.
    """

    name: str
    missing: float = 0.0
    other: float = 0.0
    hidden: float = 0.0
    hidden_ends: tuple[float, float] = (0.0, 1.0)
    can_lack: bool = False
    is_nothing: bool = False
    is_even: bool = False
    mean: str | None = None


def column_facts(
    counts: Aggregates,
    configuration: Configuration,
    deviation: float,
    paired: Collection[str],
    related: Collection[str],
    unreleased: Mapping[str, tuple[float, float]] | None = None,
) -> list[ColumnFacts]:
    """What the released counts say of the columns that have one value a record.

    With `impute` a cell that cannot be read becomes a draw by public weights (`uniform_weights`). So does a column that nobody
    has read as it was meant: its counts follow the weights, and it is related to no other. Columns of few values are often that
    even; they are doubted only where they were counted with others (`paired`) and are not `related`.
    """
    found = []
    structure = configuration.structure
    elsewhere = {name for rule in (structure and structure.applies) or () for name in rule.columns}
    known = {configuration.attributes[a].name for table in configuration.totals for a in table.attributes}
    released = dict(counts.levels[0].by_columns()) if counts.levels else {}
    for place, attribute in enumerate(configuration.attributes):
        if attribute.is_set or attribute.of_set:
            continue
        if (place,) not in released:
            if attribute.private:  # no value was often enough
                found.append(ColumnFacts(name=attribute.name, hidden=1.0, is_nothing=True))
            continue
        rows = released[place,]
        codes, values = counts.levels[0].values[rows, 0], counts.levels[0].counts[rows].astype(np.float64)
        column = configuration.columns[attribute.column]
        enough = values.sum() / len(values) > max(_EVEN_RECORDS, _EVEN_DEVIATIONS * deviation)
        # what happens through a year is often even: a date is looked at as a column of few values is
        few = len(values) <= _EVEN_VALUES or isinstance(column, DateColumn)
        told = attribute.name not in {*related, *known} and (attribute.name in paired or not few)
        is_whole = attribute.imputed and len(attribute.labels) == len(values) > 1
        is_even = is_whole and enough and told and _is_even(values, attribute, column, deviation)
        number = column if isinstance(column, NumberColumn) else None
        mean = mean_doubt(number, codes, values, deviation) if number else None
        facts = ColumnFacts(name=attribute.name, is_even=is_even, mean=mean)
        if attribute.private or attribute.name not in elsewhere:  # where it does not apply, nothing is lost
            held = dict(zip(codes.tolist(), values.tolist(), strict=True))
            facts = replace(facts, **_shares(counts, configuration, place, held, deviation))
            if attribute.private:
                own = (unreleased or {}).get(attribute.name)
                facts = replace(facts, **_hidden(attribute, counts, held, deviation, own))
        found.append(facts)
    return found


def _is_even(values: Floats, attribute: Attribute, column: Column, deviation: float) -> bool:
    """Whether counts are what draws by the public weights of the column make of so many records."""
    weights = np.ones(len(values))
    if isinstance(column, MeasuredColumn):
        weights = np.array(column.uniform_weights(attribute.labels))
    drawn = values.sum() * weights / weights.sum()
    chi2 = float(((values - drawn) ** 2 / (drawn + deviation**2)).sum())
    return chi2 <= float(chdtri(len(values) - 1, _EVEN_CHANCE))


def _shares(
    counts: Aggregates, configuration: Configuration, place: int, held: Mapping[int, float], deviation: float
) -> dict[str, float]:
    """The shares of records without a value, or with `other` for one that is not declared, less what noise explains of them.

    Counts of k-tuples lack what bounding and thresholds took: nothing is said of a missing value where bounding takes any, and
    a value below the threshold may have had that many.
    """
    attribute, noise = configuration.attributes[place], counts.noise[0]
    records, of_records = max(1.0, float(counts.record_count)), _DEVIATIONS * counts.record_deviation
    absent, column = records - sum(held.values()), configuration.columns[attribute.column]
    if attribute.private:  # what is missing there is what `_hidden` says
        return {}
    reach, missing, other = _DEVIATIONS * deviation * math.sqrt(len(attribute.labels) + 1), 0.0, 0.0
    is_whole = counts.measured is not None or noise.contribution_bound >= len(configuration.attributes)
    if attribute.optional and not attribute.undeclared and is_whole:  # what is not as declared is said by itself
        explained = (len(attribute.labels) - len(held)) * noise.threshold
        missing = share_ends(absent - explained, reach, records, of_records)[0]
    if isinstance(column, ValuedColumn) and OTHER in set(attribute.labels) - {*(column.values or ())}:
        others = held.get(attribute.labels.index(OTHER), 0.0)
        other = share_ends(others, _DEVIATIONS * deviation, records, of_records)[0]
    return {"missing": missing, "other": other}


def _hidden(
    attribute: Attribute,
    counts: Aggregates,
    held: Mapping[int, float],
    deviation: float,
    own: tuple[float, float] | None,
) -> dict[str, Any]:
    """The share of a private domain that was not released, and its interval: by its `own` count and noise, where it has one."""
    records = max(1.0, float(counts.record_count))
    absent, noise = own or (records - sum(held.values()), deviation * math.sqrt(len(held) + 1))
    ends = share_ends(absent, _DEVIATIONS * noise, records, _DEVIATIONS * counts.record_deviation)
    return {
        "hidden": min(1.0, max(0.0, absent / records)),
        "hidden_ends": ends,
        "can_lack": own is None or attribute.optional,
    }


def mean_doubt(column: NumberColumn, codes: Codes, counts: Floats, deviation: float) -> str | None:
    """Why the mean of a column is not to be trusted, None where it is: noise, most records in one wide bin, or open bins.

    Open bins matter where they hold more than noise explains.
    With c_i records in bin i of middle m_i, the noise of the mean m has variance sigma^2 sum_i (m_i - m)^2 / (sum_i c_i)^2.
    """
    inside = codes < len(column.bin_labels)
    bins, held = codes[inside], counts[inside]
    if (records := float(held.sum())) <= 0:
        return None
    ends = np.clip(np.array(column.held), column.edges[0], column.edges[-1])  # an open bin is as wide as its neighbor
    middles, most = ends[bins].mean(axis=1), int(np.argmax(held))
    mean = float(held @ middles) / records
    noise = _DEVIATIONS * deviation * float(np.linalg.norm(middles - mean)) / records
    first, last = column.grid(int(bins[most]))
    has_end = np.asarray(np.isfinite(column.ends).all(axis=1))[bins]
    without_end = float(held[~has_end].sum())
    if without_end > _DEVIATIONS * deviation * math.sqrt(np.count_nonzero(~has_end)):
        labels = listed([column.bin_labels[place] for place in bins[~has_end].tolist()])
        return f"{100 * without_end / records:.0f} % of the records are in {labels}, which have no end"
    if noise > CARE * abs(mean):
        return f"noise can move it by {100 * noise / abs(mean):,.0f} %" if mean else "it is noise"
    if held[most] > records / 2 and (last - first) / 10**column.resolution > abs(mean) / 2:
        return f"most records are in one bin, {column.bin_labels[int(bins[most])]}, and where in it is not known"
    return None


def doubts(columns: Sequence[ColumnFacts]) -> Iterator[str]:
    """Columns of which much is lost: what would keep it makes a better release."""
    for column in columns:
        if column.is_nothing:
            yield _NOTHING.format(name=column.name)
        elif column.hidden_ends[0] > _MUCH_HIDDEN:
            yield _hidden_words(column)
        elif column.other > _MUCH:
            yield _OTHER.format(name=column.name, share=100 * column.other)


def _hidden_words(column: ColumnFacts) -> str:
    low, high = column.hidden_ends
    ends = {"low": math.floor(100 * low), "high": math.ceil(100 * high)}
    return _RARE.format(
        name=column.name, share=100 * column.hidden, none=", or none" if column.can_lack else "", **ends
    )


def questions(columns: Sequence[ColumnFacts]) -> Iterator[str]:
    """What may be as it should: declared gaps, rare values, a column that is even. The verdict does not depend on them."""
    for column in columns:
        if _SOME_HIDDEN < column.hidden_ends[0] <= _MUCH_HIDDEN and not column.is_nothing:
            yield _hidden_words(column)
        if column.missing > _MUCH:
            yield _GAPS.format(name=column.name, share=100 * column.missing)
        if column.is_even:
            yield _EVEN.format(name=column.name)
