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
from dataclasses import replace

import numpy as np

from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.release import Configuration
from marginweave.counts.discovery import Compression
from marginweave.evaluate.doubts import EVEN_VALUES, MOST_MISSING, ColumnFacts, column_facts, doubts
from marginweave.evaluate.undeclared import with_undeclared
from marginweave.measurements.combinations import Aggregates
from marginweave.released.evaluation import MarginalBound, Measure
from marginweave.released.verdict import CARE, GOOD, LengthVerdict, Publication, SetVerdict, Verdict, grade

_SHOWN = 4
_FEW_ROWS = 5_000  # `auto` takes a table for one of 10,000 rows where nothing is said of them
_SAY_ROWS = (
    "If about how many rows there are is published, say so (`rows:`): `method: auto` then chooses for a table of that size, "
    "and measures the few strongest pairs well."
)
_NAMES = {1: "single columns", 2: "pairs of columns", 3: "triples of columns"}
_WEAK = "; an epsilon above 10, which would do as much, protects weakly"

Sets = Mapping[tuple[str, ...], float | None]
Sigmas = Mapping[int, Sequence[float]]


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
    rules = (configuration.structure.levels if configuration.structure else None) or ()
    levels = {rule.column for rule in rules}
    errors = expected_errors(bounds, float(counts.record_count), counts.domain.names, merged, levels)
    paired = {name for bound in bounds if len(bound.attributes) > 1 for name in bound.attributes}
    deviation = statistics.median(deviations.get(1, [0.0]))
    columns = column_facts(counts, configuration, deviation, paired, _related(association))
    titled, epsilon = configuration.titled_names, configuration.privacy.epsilon
    found = verdict(errors, deviations, float(counts.record_count), columns, epsilon, titled)
    found = with_undeclared(found, counts, titled)
    if configuration.rows is None and counts.record_count < _FEW_ROWS and found.advice:
        return found.model_copy(update={"advice": (*found.advice, _SAY_ROWS)})
    return found


def _related(association: Measure) -> set[str]:
    """Attributes that have an association with another one above what chance and noise explain."""
    found = set[str]()
    for place, row in enumerate(association.reference):
        found |= {association.names[place] for other, value in enumerate(row) if other != place and value is not None}
    return found


def merged_shares(compression: Compression, names: Sequence[str]) -> dict[str, float]:
    """Of each attribute the share of records whose value was measured as one with others in sets of several columns."""
    found = {}
    for name, new, counts in zip(names, compression.codes, compression.counts, strict=True):
        held = np.maximum(counts, 0.0)
        found[name] = float(held[np.bincount(new)[new] > 1].sum() / max(held.sum(), 1.0))
    return found


def expected_errors(
    bounds: Sequence[MarginalBound],
    records: float,
    names: Sequence[str],
    merged: Mapping[str, float] | None = None,
    levels: Collection[str] = (),
) -> Sets:
    """The expected distance of every set of one to three columns; None of a pair that nothing measured.

    Of `levels`, which follow from other columns, there are the sets that something measured.

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
        if pair not in found and not {*levels}.isdisjoint(pair):
            continue
        found[pair] = _at_least(found.get(pair), [found.get((name,)) for name in pair])
    for triple in itertools.combinations(names, 3):
        pairs = [found.get(pair) for pair in itertools.combinations(triple, 2)]
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


def verdict(
    errors: Sets,
    deviations: Sigmas,
    records: float,
    columns: Sequence[ColumnFacts] = (),
    epsilon: float = 1.0,
    titled: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict of these expected distances, of `deviations` of the noise of counts by their length, and of `columns`.

    `titled` has what the sentences call a column, where that is not its name.
    """
    called = titled or {}
    lengths = tuple(_of_length(errors, length, deviations) for length in sorted({*map(len, errors)}))
    sets = tuple(
        SetVerdict(attributes=columns, error=None if error is None else round(error, 4), grade=grade(error))
        for columns, error in sorted(errors.items(), key=lambda item: len(item[0]))
        if len(columns) <= 2
    )
    doubtful = list(doubts([replace(column, name=called.get(column.name, column.name)) for column in columns]))
    fit = _publication(sets, lengths, records, is_empty=any(column.missing > MOST_MISSING for column in columns))
    bad = {row.attributes for row in sets if row.grade == "not"}
    means = [f"the mean of {called.get(c.name, c.name)} ({c.mean})" for c in columns if c.mean and (c.name,) not in bad]
    even = [column for column in columns if column.is_even]
    if 2 * len(even) > len(columns) or any(column.values > EVEN_VALUES for column in even):
        fit = "not for publication"  # until somebody has looked
    elif (doubtful or means) and fit == "good":
        fit = "with care"
    hidden = [(row.least_group, _name(row.length)) for row in lengths if row.least_group and row.length <= 2]
    groups = [(f"groups of fewer than {n:,} records", name, n <= records) for n, name in hidden]
    least = [f"{w if some else f'any group of this table (noise hides {w})'} in {name}" for w, name, some in groups]
    says = (*doubtful, *_sentences(lengths, sets, [*least, *means], called))
    return Verdict(publication=fit, says=says, advice=tuple(_advice(sets, epsilon)), lengths=lengths, sets=sets)


def _of_length(errors: Sets, length: int, deviations: Sigmas) -> LengthVerdict:
    """Grades, and the least count of which four standard deviations of the noise (the median one) are no more."""
    grades = [grade(error) for columns, error in errors.items() if len(columns) == length]
    good, care, bad = (grades.count(name) for name in ("good", "with care", "not"))
    known = [statistics.median(found) for size, found in deviations.items() if size <= length and found]
    # a group of more columns is part of one of fewer
    least = math.ceil(4 * max(known)) if deviations.get(length) else None
    return LengthVerdict(length=length, good=good, with_care=care, bad=bad, least_group=least)


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


def _sentences(
    lengths: Sequence[LengthVerdict], sets: Sequence[SetVerdict], last: Sequence[str], called: Mapping[str, str]
) -> Iterator[str]:
    """Good for, with care, not for: the numbers of sets, and the worst by name; `last` is what else it is not for."""
    for word, key in (("Good for", "good"), ("With care", "with_care"), ("Not for", "bad")):
        parts = []
        for row in lengths:
            number, of = getattr(row, key), row.good + row.with_care + row.bad
            unknown = sum(one.error is None for one in sets if len(one.attributes) == row.length)
            if key == "bad" and unknown:
                parts.append(f"what {unknown:,} of {of:,} {_name(row.length)} say together, which nothing measured")
            number -= unknown if key == "with_care" else 0
            if number > 0:
                parts.append(f"{_name(row.length)} ({number:,} of {of:,}{_examples(sets, row.length, key, called)})")
        if key == "bad":
            parts += last
        if parts:
            yield f"{word}: {'; '.join(parts)}."


def _examples(sets: Sequence[SetVerdict], length: int, key: str, called: Mapping[str, str]) -> str:
    """The names of a few sets of a grade that is not good, the worst first."""
    wanted = "not" if key == "bad" else "with care"
    named = [row for row in sets if len(row.attributes) == length and row.grade == wanted and row.error is not None]
    if key == "good" or not named:
        return ""
    worst = sorted(named, key=lambda row: -(row.error or 0))
    shown = ", ".join(" x ".join(called.get(name, name) for name in row.attributes) for row in worst[:_SHOWN])
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
