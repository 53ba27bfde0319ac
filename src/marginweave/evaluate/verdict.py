"""The verdict: what a release is good for, with care, and not for, from its own noisy counts. DP: post-processing.

How far each set of columns is expected to be from the table is in `distances`, what would help in `advice`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from marginweave.configuration.marginals import AdaptiveCliques, AllCliques
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.zeros import domain_sizes, rows_are_changed, unkept_columns
from marginweave.evaluate.advice import KNOWN_ADVICE, BeyondNoise, advice, apart_words, known_apart
from marginweave.evaluate.distances import (
    Sets,
    expected_errors,
    merged_shares,
    set_errors,
    sorted_names,
    unchosen_errors,
)
from marginweave.evaluate.doubts import ColumnFacts, column_facts, doubts, questions
from marginweave.evaluate.undeclared import with_uncounted, with_undeclared
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression
from marginweave.observations.tables import ChosenMisfit
from marginweave.released.evaluation import ErrorParts, MarginalBound, Measure
from marginweave.released.verdict import LengthVerdict, Publication, SetVerdict, Verdict, grade

_SHOWN = 4
_FEW_ROWS = 5_000  # `auto` takes a table for one of 10,000 rows where nothing is said of them
_SAY_ROWS = (
    "If about how many rows there are is published, say so (`rows:`) and leave `aggregate` to `method: auto`: it then chooses "
    "for a table of that size, and measures the few strongest pairs well."
)
_RESIZED = (
    "Every number is of {counted}: where there were too few rows, draws of declared distributions fill it up. How many these "
    "are is not known, so that no number is one of the table itself."
)
_IMPUTED = (
    "Cells of {names} without a value, missing or not as declared, got draws of the declared distribution, and count like any "
    "other: how many is not known. Without `impute` the release would say."
)
_REPAIRED = (
    "A row that breaks a rule between columns was counted as one that keeps it, by other values: how many rows did is not "
    "known. `marginweave check` tells you."
)
_UNKEPT = (
    "A rule that names {names} changed no row, and the records keep it all the same: where rows break it, the records have "
    "other values than were counted. Take numbers from the counts as measured there."
)
_NOT_MEASURED = (
    "{some} pairs were not measured, as others were chosen: how near they are is what noise and their columns let expect. "
    "Name what must be right in aggregate.cliques."
)
_NONE_CHOSEN = (
    "No pair of columns was measured, as none was worth its noise at epsilon {epsilon:g}: in the records columns are "
    "independent, but for what the configuration declares of several of them."
)
_MEASURE_SOME = (
    "For pairs in the records, name the few that matter in aggregate.cliques, or use more epsilon or rows: what was "
    "reserved for pairs went back to the account."
)
_NOTHING = BeyondNoise()
_NAMES = {1: "single columns", 2: "pairs of columns", 3: "triples of columns"}
# How far a pair that was not chosen is, in what the sets that rounds chose last were beyond their noise. Where a smaller share
# of all pairs than `_MANY` was chosen it is less, by the root of the share: the few strongest of many say little of the others.
# But where the last were as far as the first, the others are as far; where they were half as far, nothing is known of that.
_LEFT, _MANY = 0.4, 0.1

Sigmas = Mapping[int, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class DrawFacts:
    """What the draws of marginals say of what they did not count.

    `lone` is the deviation of the noise of a selected pair that is measured alone, as each is thought of where none was.
    `misfit` is how far the sets that rounds chose were from the model (`Marginals.misfit`). `unreleased` has of private
    domains how many records hold what was not released, as drawn, and the deviation of the noise of that count.
    """

    lone: float | None = None
    misfit: ChosenMisfit | None = None
    unreleased: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def release_verdict(
    bounds: Sequence[MarginalBound],
    counts: Aggregates,
    configuration: Configuration,
    compression: Compression | None,
    association: Measure,
    *,
    model: Sequence[ErrorParts] = (),
    facts: DrawFacts = DrawFacts(),
) -> Verdict:
    """The verdict on a release, from the distances of its records, the counts as released, and Cramér's V.

    `compression` is how marginals merged values; there is none of k-tuples. `model` has how far the records are from the fitted
    model.
    """
    deviations = _deviations(bounds)
    settings = configuration.marginals
    merged = {} if compression is None else merged_shares(compression, counts.domain.names)
    drawn = {part.length: part.sampling_error or 0.0 for part in model}
    distances = set_errors(bounds, float(counts.record_count), merged, drawn, is_smoothed=settings is not None)
    measured = {sorted_names(bound.attributes) for bound in bounds}
    large = {pair for pair in _large_pairs(configuration, counts, compression) if pair not in measured}
    unchosen, left = dict[tuple[str, ...], float](), set[tuple[str, ...]]()
    of_pair = statistics.median(deviations[2]) if 2 in deviations else facts.lone
    if settings is not None and settings.selects(len(configuration.attributes)) and of_pair is not None:
        pairs = unchosen_errors(distances, counts, of_pair, _left(bounds, counts, facts))
        unchosen = {pair: error for pair, error in pairs.items() if pair not in measured | large}
        by_noise = unchosen_errors(distances, counts, of_pair)
        left = {pair for pair, error in unchosen.items() if error > by_noise[pair]}
    errors = expected_errors(distances | unchosen, counts.domain.names)
    apart = known_apart(bounds, counts, configuration)
    beyond = BeyondNoise(large=large, left=left, known={name for names in apart for name in names})
    paired = {name for bound in bounds if len(bound.attributes) > 1 for name in bound.attributes}
    deviation = statistics.median(deviations.get(1, [0.0]))
    columns = column_facts(counts, configuration, deviation, paired, _related(association), facts.unreleased)
    titled, epsilon = configuration.titled_names, configuration.privacy.epsilon
    found = verdict(errors, deviations, float(counts.record_count), columns, epsilon, titled, beyond=beyond)
    found = _with_configuration_told(found, counts, configuration, apart)
    if unchosen:
        found = _with_choice_told(found, len(unchosen), epsilon, is_one_measured=2 in deviations)
    reasons = dict.fromkeys(large, "too many cells") | dict.fromkeys(unchosen, "not chosen") | dict.fromkeys(measured)
    sets = tuple(_with_reason(one, reasons, configuration) for one in found.sets)
    return found.model_copy(update={"sets": sets})


def _with_configuration_told(
    found: Verdict, counts: Aggregates, configuration: Configuration, apart: Mapping[tuple[str, ...], float]
) -> Verdict:
    """The same with what the configuration made of cells and rows, and with known counts that are others (`known_apart`)."""
    titled = configuration.titled_names
    would_choose = configuration.marginals and configuration.rows is None and counts.record_count < _FEW_ROWS
    more_advice = (_SAY_ROWS,) if would_choose and found.advice else ()
    found = with_undeclared(found, counts, titled, configuration)
    found = with_uncounted(found, counts, titled, configuration)
    said = (*_made_up(configuration), *apart_words(apart, titled), *found.says)
    advised = (*((KNOWN_ADVICE,) if apart else ()), *found.advice, *more_advice)
    return found.model_copy(update={"says": said, "advice": advised})


def _left(bounds: Sequence[MarginalBound], counts: Aggregates, facts: DrawFacts) -> float:
    """How far pairs are that rounds had no share left for, by those that they chose last (`_LEFT`)."""
    chosen, all_pairs = sum(len(bound.attributes) > 1 for bound in bounds), math.comb(len(counts.domain.names), 2)
    if facts.misfit is None:
        return 0.0
    first, last = facts.misfit
    alike = min(1.0, max(0.0, 2 * last / first - 1)) if first else 0.0
    return last * max(alike, _LEFT * min(1.0, math.sqrt(chosen / all_pairs / _MANY)))


def _with_choice_told(found: Verdict, unchosen: int, epsilon: float, *, is_one_measured: bool) -> Verdict:
    """The same with a word on the number of pairs that were not chosen, which are all where none is measured."""
    if is_one_measured:
        return found.model_copy(update={"advice": (_NOT_MEASURED.format(some=f"{unchosen:,}"), *found.advice)})
    says = (_NONE_CHOSEN.format(epsilon=epsilon), *found.says)
    return found.model_copy(update={"says": says, "advice": (_MEASURE_SOME, *found.advice)})


def _with_reason(
    row: SetVerdict, reasons: Mapping[tuple[str, ...], str | None], configuration: Configuration
) -> SetVerdict:
    """The same with why there are no counts of the set: `reasons` has it of some, by their sorted names."""
    is_counted = configuration.marginals is None and len(row.attributes) <= configuration.reporting_length
    usual = "nothing released" if is_counted else "not asked for"
    return row.model_copy(update={"unmeasured": reasons.get(sorted_names(row.attributes), usual)})


def _made_up(configuration: Configuration) -> Iterator[str]:
    """What is counted that no row of the table has, a sentence each: nobody knows how much that is."""
    if configuration.resize is not None:
        yield _RESIZED.format(counted=configuration.counted_words)
    if rows_are_changed(configuration):
        yield _REPAIRED
    if names := unkept_columns(configuration):
        yield _UNKEPT.format(names=listed([configuration.titled_names.get(name, name) for name in names]))
    if names := configuration.imputed_columns:
        yield _IMPUTED.format(names=listed([configuration.titled_names.get(name, name) for name in names]))


def _deviations(bounds: Sequence[MarginalBound]) -> dict[int, list[float]]:
    """Those of the noise of a cell, by the length of sets."""
    found: dict[int, list[float]] = {}
    for bound in bounds:
        if bound.deviation is not None:
            found.setdefault(len(bound.attributes), []).append(bound.deviation)
    return found


def _large_pairs(
    configuration: Configuration, counts: Aggregates, compression: Compression | None
) -> Iterator[tuple[str, ...]]:
    """The pairs with more cells than `max_cells`: in rounds of merged values, of all pairs of those of the released domain."""
    cliques = None if configuration.marginals is None else configuration.marginals.cliques
    if compression is None or not isinstance(cliques, AdaptiveCliques | AllCliques) or cliques.max_cells is None:
        return
    rounds, declared = isinstance(cliques, AdaptiveCliques), configuration.with_undeclared(()).attributes
    sizes = compression.sizes if rounds else domain_sizes(declared, counts.domain.labels)
    for (one, first), (other, second) in itertools.combinations(zip(counts.domain.names, sizes, strict=True), 2):
        if first * second > cliques.max_cells:
            yield sorted_names((one, other))


def _related(association: Measure) -> set[str]:
    """Attributes that have an association with another one above what chance and noise explain."""
    found = set[str]()
    for place, row in enumerate(association.reference):
        found |= {association.names[place] for other, value in enumerate(row) if other != place and value is not None}
    return found


def verdict(
    errors: Sets,
    deviations: Sigmas,
    records: float,
    columns: Sequence[ColumnFacts] = (),
    epsilon: float = 1.0,
    titled: Mapping[str, str] | None = None,
    *,
    beyond: BeyondNoise = _NOTHING,
) -> Verdict:
    """The verdict of these expected distances, of `deviations` of the noise of counts by their length, and of `columns`.

    `titled` has what the sentences call a column, where that is not its name.
    """
    called = titled or {}
    nothing = {column.name for column in columns if column.is_nothing}
    errors = {names: 1.0 if nothing.intersection(names) else error for names, error in errors.items()}
    lengths = tuple(_of_length(errors, length, deviations) for length in sorted({*map(len, errors)}))
    sets = tuple(
        SetVerdict(attributes=columns, error=None if error is None else round(error, 4), grade=grade(error))
        for columns, error in sorted(errors.items(), key=lambda item: len(item[0]))
        if len(columns) <= 2
    )
    shown = [replace(column, name=called.get(column.name, column.name)) for column in columns]
    doubtful, asked = list(doubts(shown)), list(questions(shown))
    fit = _publication(sets, lengths, records)
    bad = {row.attributes for row in sets if row.grade == "not"}
    means = [f"the mean of {called.get(c.name, c.name)} ({c.mean})" for c in columns if c.mean and (c.name,) not in bad]
    if (doubtful or means) and fit == "good":
        fit = "with care"
    hidden = [
        (row.least_group, _name(row.length))
        for row in lengths
        if row.least_group is not None and row.least_group > 1 and row.length <= 2
    ]
    groups = [(f"groups of fewer than {n:,} records", name, n <= records) for n, name in hidden]
    least = [f"{w if some else f'any group of this table (noise hides {w})'} in {name}" for w, name, some in groups]
    says = (*doubtful, *asked, *_sentences(lengths, sets, [*least, *means], called))
    return Verdict(publication=fit, says=says, advice=tuple(advice(sets, epsilon, beyond)), lengths=lengths, sets=sets)


def _of_length(errors: Sets, length: int, deviations: Sigmas) -> LengthVerdict:
    """Grades, and the least count of which four standard deviations of the noise (the median one) are no more."""
    grades = [grade(error) for columns, error in errors.items() if len(columns) == length]
    good, care, bad = (grades.count(name) for name in ("good", "with care", "not"))
    known = [statistics.median(found) for size, found in deviations.items() if size <= length and found]
    # a group of more columns is part of one of fewer
    least = math.ceil(4 * max(known)) if deviations.get(length) else None
    return LengthVerdict(length=length, good=good, with_care=care, bad=bad, least_group=least)


def _publication(sets: Sequence[SetVerdict], lengths: Sequence[LengthVerdict], records: float) -> Publication:
    """Not for publication where at least half of the columns are noise; good where nearly all is."""
    single = [row.grade for row in sets if len(row.attributes) == 1]
    if records < 1 or 2 * single.count("not") >= max(len(single), 1):
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
