"""The verdict: what a release is good for, with care, and not for, from its own noisy counts. DP: post-processing.

The expected distance of a set of columns is the larger of two: what the noise of its counts would add if the records followed
it (all measurements that hold the set combined), and how far the records are from these counts beyond that noise. It is on the
safe side: of samples of 1,000 rows at epsilon 1, all triples counted, pairs of affairs were .2 to .55 times as far from the
truth, in the middle .34, and pairs of adult_cat .26 to 1.18 times, in the middle .59. Counts of triples are each far noisier
than the records, which are smoothed by what triples share: the mean distance of triples was 1.6 to 2.1 times that of pairs
(docs/accuracy.md), and is taken as twice the mean of the three, where this is less.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

from marginweave.schemas.arrays import Codes, Floats
from marginweave.schemas.configuration.columns import MeasuredColumn, NumberColumn
from marginweave.schemas.configuration.privacy import MOST_EPSILON
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.schemas.released.evaluation import MarginalBound, Measure
from marginweave.schemas.released.verdict import CARE, GOOD, LengthVerdict, Publication, SetVerdict, Verdict, grade
from marginweave.tasks.aggregate.domain import Compression

_MISSING = 0.5
_DEVIATIONS = 1.96
_SHOWN = 4
# A column can look drawn only where it has many records of each value, and noise that could not hide how far they are from its
# weights, and, with so few values, no known relation to another: random draws pass for others once in a million times.
_EVEN_VALUES, _EVEN_RECORDS, _EVEN_DEVIATIONS, _EVEN_CHANCE = 4, 500.0, 5.0, 1e-6
_FEW_ROWS = 5_000  # `auto` takes a table for one of 10,000 rows where nothing is said of them
_SAY_ROWS = (
    "If about how many rows there are is published, say so (`rows:`): `method: auto` then chooses for a table of that size, "
    "and measures the few strongest pairs well."
)
_NAMES = {1: "single columns", 2: "pairs of columns", 3: "triples of columns"}
_EVEN = "{name} is as even as if its values were drawn at random: look whether the column was read as it was meant"
_WEAK = "; an epsilon above 10, which would do as much, protects weakly"
_EMPTY = "{name} is missing in {share:.0f} % of the records: look whether the column was read as it was meant"

Sets = Mapping[tuple[str, ...], float | None]
Sigmas = Mapping[int, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What noisy counts say of one column: share of missing records, whether its values are as draws, and its mean."""

    name: str
    missing: float
    is_even: bool
    values: int = 0
    mean: str | None = None


def release_verdict(
    bounds: Sequence[MarginalBound],
    counts: Aggregates,
    configuration: Configuration,
    merged: Mapping[str, float],
    association: Measure,
) -> Verdict:
    """The verdict on a release, from the distances of its records, the counts as released, `merged_shares`, and Cramér's V."""
    deviations: dict[int, list[float]] = {}
    for bound in bounds:
        if bound.deviation is not None:
            deviations.setdefault(len(bound.attributes), []).append(bound.deviation)
    errors = expected_errors(bounds, float(counts.record_count), counts.domain.names, merged)
    paired = {name for bound in bounds if len(bound.attributes) > 1 for name in bound.attributes}
    deviation = statistics.median(deviations.get(1, [0.0]))
    columns = column_facts(counts, configuration, deviation, paired, _related(association))
    found = verdict(errors, deviations, float(counts.record_count), columns, configuration.privacy.epsilon)
    if configuration.rows is None and counts.record_count < _FEW_ROWS and found.advice:
        return found.model_copy(update={"advice": (*found.advice, _SAY_ROWS)})
    return found


def _related(association: Measure) -> set[str]:
    """Attributes that have an association with another one above what chance and noise explain."""
    found = set[str]()
    for place, row in enumerate(association.reference):
        found |= {association.names[place] for other, value in enumerate(row) if other != place and value is not None}
    return found


def column_facts(
    counts: Aggregates,
    configuration: Configuration,
    deviation: float,
    paired: Collection[str],
    related: Collection[str],
) -> list[ColumnFacts]:
    """What the released counts say of the columns that have one value a record.

    A cell that cannot be read becomes a draw by public weights (`uniform_weights`). So does a column that nobody has read as
    it was meant: its counts follow the weights, and it is related to no other. Columns of few values are often that even; they
    are doubted only where they were counted with others (`paired`) and are not `related`.
    """
    records, found = float(counts.record_count), []
    released = dict(counts.levels[0].by_columns()) if counts.levels else {}
    for place, attribute in enumerate(configuration.attributes):
        if (place,) not in released and not attribute.is_set:  # a private domain of which no value was often enough
            found.append(ColumnFacts(name=attribute.name, missing=1.0, is_even=False))
    for (place,), rows in released.items():
        attribute, values = configuration.attributes[place], counts.levels[0].counts[rows].astype(float)
        if attribute.is_set or records <= 0:
            continue
        missing, column = max(0.0, 1 - values.sum() / records), configuration.columns[attribute.columns[0]]
        enough = values.sum() / len(values) > max(_EVEN_RECORDS, _EVEN_DEVIATIONS * deviation)
        told = attribute.name not in related and (len(values) > _EVEN_VALUES or attribute.name in paired)
        is_even = False
        if len(attribute.labels) == len(values) > 1 and enough and told and not attribute.optional:
            weights = np.ones(len(values))
            if len(attribute.columns) == 1 and isinstance(column, MeasuredColumn):
                weights = np.array(column.uniform_weights(attribute.labels))
            drawn = values.sum() * weights / weights.sum()
            chi2 = float(((values - drawn) ** 2 / (drawn + deviation**2)).sum())
            is_even = chi2 <= float(chdtri(len(values) - 1, _EVEN_CHANCE))
        mean = None
        if isinstance(column, NumberColumn) and len(attribute.columns) == 1:
            mean = mean_doubt(column, counts.levels[0].values[rows, 0], values, deviation)
        found.append(ColumnFacts(name=attribute.name, missing=missing, is_even=is_even, values=len(values), mean=mean))
    return found


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


def merged_shares(compression: Compression, names: Sequence[str]) -> dict[str, float]:
    """Of each attribute the share of records whose value was measured as one with others in sets of several columns."""
    found = {}
    for name, new, counts in zip(names, compression.codes, compression.counts, strict=True):
        held = np.maximum(counts, 0.0)
        found[name] = float(held[np.bincount(new)[new] > 1].sum() / max(held.sum(), 1.0))
    return found


def expected_errors(
    bounds: Sequence[MarginalBound], records: float, names: Sequence[str], merged: Mapping[str, float] | None = None
) -> Sets:
    """The expected distance of every set of one to three columns; None of a pair that nothing measured.

    Where values are merged, nothing measured which of them goes with what: half of such records count as misplaced.
    Of triples there are those that something measured, or whose three pairs are known.
    """
    found: dict[tuple[str, ...], float | None] = {}
    place = {name: i for i, name in enumerate(names)}
    for bound in bounds:
        if bound.noise is not None:
            beyond = math.sqrt(max(0.0, bound.distance**2 - bound.noise**2))
            columns = tuple(sorted(bound.attributes, key=place.__getitem__))
            misplaced = sum((merged or {}).get(name, 0.0) for name in columns) / 2 if len(columns) > 1 else 0.0
            found[columns] = min(1.0, max(bound.noise, beyond) / (2 * max(records, 1.0)) + misplaced)
    for pair in itertools.combinations(names, 2):
        found[pair] = _at_least(found.get(pair), [found.get((name,)) for name in pair])
    for triple in itertools.combinations(names, 3):
        pairs = [found[pair] for pair in itertools.combinations(triple, 2)]
        known = [error for error in pairs if error is not None]
        if len(known) == len(pairs):
            smoothed = min(found.get(triple) or 1.0, 1.0, 2 * statistics.fmean(known))
            found[triple] = _at_least(smoothed, known)
    return found


def _at_least(error: float | None, parts: Iterable[float | None]) -> float | None:
    """The error of a set, which is never less than that of a part of it: a distance only falls where cells are added up.

    What nothing measured is not known, but for that: None where its parts allow care.
    """
    worst = max([error or 0.0, *(part for part in parts if part is not None)])
    return None if error is None and worst <= CARE else worst


def least_group(deviations: Sequence[float]) -> int | None:
    """The least count of which four standard deviations of the noise (the median one) are no more."""
    return math.ceil(4 * statistics.median(deviations)) if deviations else None


def verdict(
    errors: Sets, deviations: Sigmas, records: float, columns: Sequence[ColumnFacts] = (), epsilon: float = 1.0
) -> Verdict:
    """The verdict of these expected distances, of `deviations` of the noise of counts by their length, and of `columns`."""
    lengths = tuple(_of_length(errors, length, deviations.get(length, ())) for length in sorted({*map(len, errors)}))
    sets = tuple(
        SetVerdict(attributes=columns, error=None if error is None else round(error, 4), grade=grade(error))
        for columns, error in sorted(errors.items(), key=lambda item: len(item[0]))
        if len(columns) <= 2
    )
    doubts = list(_doubts(columns))
    fit = _publication(sets, lengths, records, is_empty=any(column.missing > _MISSING for column in columns))
    bad = {row.attributes for row in sets if row.grade == "not"}
    means = [f"the mean of {c.name} ({c.mean})" for c in columns if c.mean and (c.name,) not in bad]
    even = [column for column in columns if column.is_even]
    if 2 * len(even) > len(columns) or any(column.values > _EVEN_VALUES for column in even):
        fit = "not for publication"  # until somebody has looked
    elif (doubts or means) and fit == "good":
        fit = "with care"
    says = (*doubts, *_sentences(lengths, sets, means))
    return Verdict(publication=fit, says=says, advice=tuple(_advice(sets, epsilon)), lengths=lengths, sets=sets)


def _of_length(errors: Sets, length: int, deviations: Sequence[float]) -> LengthVerdict:
    grades = [grade(error) for columns, error in errors.items() if len(columns) == length]
    good, care, bad = (grades.count(name) for name in ("good", "with care", "not"))
    return LengthVerdict(length=length, good=good, with_care=care, bad=bad, least_group=least_group(deviations))


def _publication(
    sets: Sequence[SetVerdict], lengths: Sequence[LengthVerdict], records: float, *, is_empty: bool
) -> Publication:
    """Not for publication where most columns are noise or one may not have been read; good where nearly all is."""
    single = [row.grade for row in sets if len(row.attributes) == 1]
    if records < 1 or is_empty or 2 * single.count("not") >= max(len(single), 1):
        return "not for publication"
    pairs = next((row for row in lengths if row.length == 2), None)
    most_pairs = pairs is None or pairs.good >= pairs.with_care + pairs.bad
    return "good" if single.count("good") == len(single) and most_pairs else "with care"


def _sentences(lengths: Sequence[LengthVerdict], sets: Sequence[SetVerdict], means: Sequence[str]) -> Iterator[str]:
    """Good for, with care, not for: the numbers of sets, and the worst by name; the means that are not near."""
    for word, key in (("Good for", "good"), ("With care", "with_care"), ("Not for", "bad")):
        parts = []
        for row in lengths:
            number, of = getattr(row, key), row.good + row.with_care + row.bad
            unknown = sum(one.error is None for one in sets if len(one.attributes) == row.length)
            if key == "bad" and unknown:
                parts.append(f"what {unknown:,} of {of:,} {_name(row.length)} say together, which nothing measured")
            number -= unknown if key == "with_care" else 0
            if number > 0:
                parts.append(f"{_name(row.length)} ({number:,} of {of:,}{_examples(sets, row.length, key)})")
        if key == "bad":
            groups = [(row.least_group, _name(row.length)) for row in lengths if row.least_group and row.length <= 2]
            parts += [*(f"groups of fewer than {least:,} records in {name}" for least, name in groups), *means]
        if parts:
            yield f"{word}: {'; '.join(parts)}."


def _examples(sets: Sequence[SetVerdict], length: int, key: str) -> str:
    """The names of a few sets of a grade that is not good, the worst first."""
    wanted = "not" if key == "bad" else "with care"
    named = [row for row in sets if len(row.attributes) == length and row.grade == wanted and row.error is not None]
    if key == "good" or not named:
        return ""
    worst = sorted(named, key=lambda row: -(row.error or 0))
    shown = ", ".join(" x ".join(row.attributes) for row in worst[:_SHOWN])
    return f": {shown}{', …' if len(worst) > _SHOWN else ''}"


def _name(length: int) -> str:
    return _NAMES.get(length, f"sets of {length} columns")


def _advice(sets: Sequence[SetVerdict], epsilon: float) -> Iterator[str]:
    """How much more would do, where less than half of the pairs (or columns) are good; no epsilon that protects weakly."""
    longest = max((len(row.attributes) for row in sets), default=0)
    errors = sorted(row.error for row in sets if len(row.attributes) == longest and row.error is not None)
    if unknown := sum(row.error is None for row in sets):
        yield (
            f"{unknown:,} pairs were not measured, and are in the records only as far as others imply them: name what must be "
            "right in aggregate.cliques."
        )
    if errors and (median := statistics.median(errors)) > GOOD:
        weak = _WEAK if median / GOOD * epsilon > MOST_EPSILON else ""
        yield (
            f"About {median / GOOD:.1f} times the {'rows' if weak else 'epsilon, or the rows,'} would make half of them good; "
            f"so do fewer columns and coarser values{weak}."
        )


def _doubts(columns: Sequence[ColumnFacts]) -> Iterator[str]:
    """Columns that look as if they had not been read."""
    for column in columns:
        if column.missing > _MISSING:
            yield _EMPTY.format(name=column.name, share=100 * column.missing)
        elif column.is_even:
            yield _EVEN.format(name=column.name)
