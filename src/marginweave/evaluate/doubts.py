"""Doubts about single columns from noisy counts: lost values, values that look drawn, a bad mean. DP: post-processing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from marginweave.base.arrays import Codes, Floats
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import (
    OTHER,
    Column,
    DateColumn,
    MeasuredColumn,
    NumberColumn,
)
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.shares import share_ends
from marginweave.observations.combinations import Aggregates
from marginweave.released.verdict import CARE
from marginweave.texts.sentences import Sentence, Share, verdict_sentence

# Above this share of the records, values that are missing or `other` are reported.
_MUCH = 0.25
# Above this share of the records, by the lower end of its interval, values of a private domain that were not released are
# reported.
_SOME_HIDDEN = 0.01
# Above this share, likewise, they are a doubt.
_MUCH_HIDDEN = 0.1
# Half of a 95 % interval, in standard deviations of the noise.
_DEVIATIONS = 1.96
# A column of at most so few values can look drawn only if it was counted with others: a relation to one of them would show.
_DRAWN_FEW_VALUES = 4
# A column can look drawn only with more records of each value than this, on average;
_DRAWN_RECORDS = 500.0
# and with more than this many standard deviations of the noise, which could not hide a distance from the weights.
_DRAWN_DEVIATIONS = 5.0
# Probability that random draws are not recognized as such.
_DRAWN_CHANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """Facts of one column from noisy counts: shares of the records, whether its values look drawn, and its mean.

    `missing_share` is the share without a value, `other_share` that with `other` for a value that is not declared; both are
    what noise does not explain. `hidden` is the share whose value of a private domain was not released, 1 where no value was;
    `hidden_ends` is an interval of it. `may_include_missing` says that these may include cells without any value. `mean` is the
    reason not to trust the mean, if there is one (`mean_doubt`).
    """

    name: str
    missing_share: float = 0.0
    other_share: float = 0.0
    hidden: float = 0.0
    hidden_ends: tuple[float, float] = (0.0, 1.0)
    may_include_missing: bool = False
    is_nothing: bool = False
    looks_drawn: bool = False
    mean: Sentence | None = None

    @property
    def is_mostly_other(self) -> bool:
        """Whether so many records are `other` that the list of values may be a wrong one, and nothing worse is known."""
        is_lost = self.is_nothing or self.hidden_ends[0] > _MUCH_HIDDEN
        return self.other_share > _MUCH and not is_lost

    @property
    def has_gaps(self) -> bool:
        """Whether so many records have no value that a reader should know."""
        return self.missing_share > _MUCH


def column_facts(
    counts: Aggregates,
    configuration: Configuration,
    deviation: float,
    paired: Collection[str],
    related: Collection[str],
    unreleased: Mapping[str, tuple[float, float]] | None = None,
) -> list[ColumnFacts]:
    """Return the facts of the columns that have one value a record.

    With `impute` a cell that cannot be read becomes a draw by public weights (`uniform_weights`). If no cell of a column was
    read as it was meant, its counts follow the weights, and it is related to no other column. Columns of few values often
    look drawn by chance; they are doubted only where they were counted with others (`paired`) and are not `related`.

    Args:
        counts: The counts as released.
        configuration: What is declared.
        deviation: Standard deviation of the noise of the counts of single columns.
        paired: Names of columns that were counted with others.
        related: Names of columns that have an association with another one above noise.
        unreleased: For private domains the noisy number of records whose value was not released, and the standard deviation
            of its noise, where that number was drawn.
    """
    unreleased = unreleased or {}
    explained = {*related, *_known_columns(configuration)}
    structure = configuration.structure
    conditional = structure.conditional_columns if structure else ()
    level_rows = dict(counts.levels[0].by_columns()) if counts.levels else {}
    result: list[ColumnFacts] = []
    for place, attribute in enumerate(configuration.attributes):
        if attribute.is_set or attribute.of_set:
            continue
        name = attribute.name
        if (place,) not in level_rows:
            if attribute.private:  # no value was frequent enough
                result.append(ColumnFacts(name=name, hidden=1.0, is_nothing=True))
            continue
        rows = level_rows[place,]
        codes = counts.levels[0].values[rows, 0]
        values = counts.levels[0].counts[rows].astype(np.float64)
        column = configuration.columns[attribute.column]
        facts = ColumnFacts(name=name)
        if name not in explained:
            looks_drawn = _looks_drawn(
                values, attribute, column, deviation, is_paired=name in paired
            )
            facts = replace(facts, looks_drawn=looks_drawn)
        if isinstance(column, NumberColumn):
            facts = replace(facts, mean=mean_doubt(column, codes, values, deviation))
        count_of_code = dict(zip(codes.tolist(), values.tolist(), strict=True))
        if attribute.private:
            facts = _add_hidden(
                facts, attribute, counts, count_of_code, deviation, unreleased.get(name)
            )
        elif name not in conditional:  # where a column does not apply, nothing is lost
            missing_share = _missing_share(
                attribute, counts, configuration, count_of_code, deviation
            )
            other_share = _other_share(attribute, counts, configuration, count_of_code, deviation)
            facts = replace(facts, missing_share=missing_share, other_share=other_share)
        result.append(facts)
    return result


def _known_columns(configuration: Configuration) -> set[str]:
    """Return the names of columns with known counts."""
    names: set[str] = set()
    for table in configuration.totals:
        names.update(configuration.attributes[a].name for a in table.attributes)
    return names


def _looks_drawn(
    values: Floats,
    attribute: Attribute,
    column: Column,
    deviation: float,
    *,
    is_paired: bool,
) -> bool:
    """Return whether counts are those that draws by the public weights of the column would give.

    False where they are too few or too noisy to tell.
    """
    is_complete = attribute.imputed and len(attribute.labels) == len(values) > 1
    is_enough = values.sum() / len(values) > max(_DRAWN_RECORDS, _DRAWN_DEVIATIONS * deviation)
    # events are often spread evenly over a year: a date is treated as a column of few values
    has_few_values = len(values) <= _DRAWN_FEW_VALUES or isinstance(column, DateColumn)
    if not is_complete or not is_enough or (has_few_values and not is_paired):
        return False
    weights = np.ones(len(values))
    if isinstance(column, MeasuredColumn):
        weights = np.array(column.uniform_weights(attribute.labels))
    # chi^2 = sum (counts - drawn)^2 / (drawn + deviation^2)
    drawn = values.sum() * weights / weights.sum()
    variances = drawn + deviation**2
    chi2 = float(((values - drawn) ** 2 / variances).sum())
    return chi2 <= float(chdtri(len(values) - 1, _DRAWN_CHANCE))


def _missing_share(
    attribute: Attribute,
    counts: Aggregates,
    configuration: Configuration,
    count_of_code: Mapping[int, float],
    deviation: float,
) -> float:
    """Return the share of records without a value that noise does not explain.

    Counts of k-tuples lack what bounding and thresholds took. So the share is 0 where bounding takes any, and a value below
    the threshold may have had that many records. Cells that are not as declared are reported separately.
    """
    noise = counts.noise[0]
    is_unbounded = counts.measured is not None or noise.contribution_bound >= len(
        configuration.attributes
    )
    if not attribute.optional or attribute.undeclared or not is_unbounded:
        return 0.0
    records = max(1.0, float(counts.record_count))
    absent = records - sum(count_of_code.values())
    values = len(attribute.labels)
    suppressed = (values - len(count_of_code)) * noise.threshold
    half_width = _DEVIATIONS * deviation * math.sqrt(values + 1)
    half_of_records = _DEVIATIONS * counts.record_deviation
    return share_ends(absent - suppressed, half_width, records, half_of_records)[0]


def _other_share(
    attribute: Attribute,
    counts: Aggregates,
    configuration: Configuration,
    count_of_code: Mapping[int, float],
    deviation: float,
) -> float:
    """Return the share of records with `other` for a value that is not declared, as far as noise does not explain it."""
    column = configuration.columns[attribute.column]
    if not isinstance(column, ValuedColumn):
        return 0.0
    if OTHER not in attribute.labels or OTHER in (column.values or ()):
        return 0.0
    records = max(1.0, float(counts.record_count))
    count = count_of_code.get(attribute.labels.index(OTHER), 0.0)
    half_of_records = _DEVIATIONS * counts.record_deviation
    return share_ends(count, _DEVIATIONS * deviation, records, half_of_records)[0]


def _add_hidden(
    facts: ColumnFacts,
    attribute: Attribute,
    counts: Aggregates,
    count_of_code: Mapping[int, float],
    deviation: float,
    unreleased: tuple[float, float] | None,
) -> ColumnFacts:
    """Return the facts with the share of a private domain that was not released.

    `unreleased` is the noisy number of such records and the standard deviation of its noise; without it the number is the
    rest of the records.
    """
    records = max(1.0, float(counts.record_count))
    if unreleased is None:
        absent = records - sum(count_of_code.values())
        noise_sd = deviation * math.sqrt(len(count_of_code) + 1)
    else:
        absent, noise_sd = unreleased
    ends = share_ends(
        absent, _DEVIATIONS * noise_sd, records, _DEVIATIONS * counts.record_deviation
    )
    return replace(
        facts,
        hidden=min(1.0, max(0.0, absent / records)),
        hidden_ends=ends,
        may_include_missing=unreleased is None or attribute.optional,
    )


def mean_doubt(
    column: NumberColumn, codes: Codes, counts: Floats, deviation: float
) -> Sentence | None:
    """Return why the mean of a column is not to be trusted: noise, most records in one wide bin, or open bins; else None.

    Open bins matter where they hold more than noise explains.
    With c_i records in bin i of middle m_i, the noise of the mean m has variance sigma^2 sum_i (m_i - m)^2 / (sum_i c_i)^2. All
    bins have noise, also those in which none is left: where that is most of it, the next release has records there.
    """
    in_bins = codes < len(column.bin_labels)
    bins = codes[in_bins]
    bin_counts = counts[in_bins]
    records = float(bin_counts.sum())
    if records <= 0:
        return None
    open_bins = _open_bins_doubt(column, bins, bin_counts, deviation)
    if open_bins is not None:
        return open_bins

    # an open bin is as wide as its neighbor
    ends = np.clip(np.array(column.number_limits), column.edges[0], column.edges[-1])
    middles = ends[bins].mean(axis=1)
    mean = float(bin_counts @ middles) / records
    distances = ends.mean(axis=1) - mean
    half_width = _DEVIATIONS * deviation * float(np.linalg.norm(distances)) / records
    if half_width > CARE * abs(mean):
        if not mean:
            return verdict_sentence("mean.noise")
        return verdict_sentence("mean.moved", percent=100 * half_width / abs(mean))

    largest = int(np.argmax(bin_counts))
    largest_bin = int(bins[largest])
    first, last = column.grid(largest_bin)
    width = (last - first) / 10**column.resolution
    if bin_counts[largest] > records / 2 and width > abs(mean) / 2:
        return verdict_sentence("mean.one-bin", bin=column.bin_labels[largest_bin])
    return None


def _open_bins_doubt(
    column: NumberColumn,
    bins: Codes,
    counts: Floats,
    deviation: float,
) -> Sentence | None:
    """Return a doubt about records in bins without an end, where these are more than noise explains; else None."""
    has_ends = np.isfinite(column.ends).all(axis=1)
    is_open = ~np.asarray(has_ends)[bins]
    open_count = float(counts[is_open].sum())
    if open_count <= _DEVIATIONS * deviation * math.sqrt(np.count_nonzero(is_open)):
        return None
    labels = [column.bin_labels[place] for place in bins[is_open].tolist()]
    percent = 100 * open_count / float(counts.sum())
    return verdict_sentence("mean.open-bins", percent=percent, bins=listed(labels))


def doubts(columns: Sequence[ColumnFacts]) -> Iterator[Sentence]:
    """Yield a sentence for each column that loses much that another configuration could keep."""
    for column in columns:
        if column.is_nothing:
            yield verdict_sentence("column.nothing", name=column.name)
        elif column.hidden_ends[0] > _MUCH_HIDDEN:
            yield _hidden_sentence(column)
        elif column.is_mostly_other:
            yield verdict_sentence(
                "column.other", name=column.name, share=Share(column.other_share)
            )


def _hidden_sentence(column: ColumnFacts) -> Sentence:
    """Return the sentence on values of a private domain that were not released."""
    low, high = column.hidden_ends
    return verdict_sentence(
        "column.hidden-or-none" if column.may_include_missing else "column.hidden",
        name=column.name,
        share=Share(column.hidden),
        low=math.floor(100 * low),
        high=math.ceil(100 * high),
    )


def questions(columns: Sequence[ColumnFacts]) -> Iterator[Sentence]:
    """Yield what may be intended: declared gaps, rare values, values that look drawn. The verdict does not depend on them."""
    for column in columns:
        if _SOME_HIDDEN < column.hidden_ends[0] <= _MUCH_HIDDEN and not column.is_nothing:
            yield _hidden_sentence(column)
        if column.has_gaps:
            yield verdict_sentence(
                "column.gaps", name=column.name, share=Share(column.missing_share)
            )
        if column.looks_drawn:
            yield verdict_sentence("column.even", name=column.name)


def column_advice(columns: Sequence[ColumnFacts]) -> Iterator[Sentence]:
    """Yield what the steward can do about doubts and questions: a sentence for all columns with the same one."""
    for key, names in (
        ("nothing", [column.name for column in columns if column.is_nothing]),
        ("other", [column.name for column in columns if column.is_mostly_other]),
        ("gaps", [column.name for column in columns if column.has_gaps]),
        ("even", [column.name for column in columns if column.looks_drawn]),
    ):
        if names:
            yield verdict_sentence(f"column-advice.{key}", names=listed(names))
