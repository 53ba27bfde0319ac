"""Verdict on a release, from its own noisy counts: good for, with care, not for. DP: post-processing.

`distances` has the expected distance of each set of columns from the table, `advice` what would make it better.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from marginweave.configuration.marginals import AdaptiveCliques, AllCliques
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import domain_sizes, rows_are_changed, unenforced_columns
from marginweave.evaluate.advice import (
    BeyondNoise,
    advice,
    apart_sentences,
    known_apart,
    missed_sentences,
    rounds_line,
    total_sentences,
)
from marginweave.evaluate.distances import (
    Names,
    Sets,
    expected_errors,
    merged_shares,
    pairs_of_chance,
    set_errors,
    sorted_names,
    unchosen_errors,
    worse_triples,
)
from marginweave.evaluate.doubts import (
    ColumnFacts,
    column_advice,
    column_facts,
    doubts,
    questions,
)
from marginweave.evaluate.known_sets import known_distances
from marginweave.evaluate.listed_sets import listed_sets
from marginweave.evaluate.score import dependences, has_little_to_keep, quality_score
from marginweave.evaluate.undeclared import (
    WORSE,
    listed_titles,
    with_sentences_before,
    with_uncounted,
    with_undeclared,
)
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression
from marginweave.observations.linked_uncounted import LinkedUncounted
from marginweave.observations.linked_undeclared import LinkedUndeclared
from marginweave.observations.tables import ChosenMisfit
from marginweave.released.evaluation import Association, ErrorParts, MarginalBound, Measure
from marginweave.released.verdict import (
    Grade,
    LengthVerdict,
    Publication,
    SetVerdict,
    Verdict,
    grade,
)
from marginweave.texts.sentences import Sentence, verdict_sentence

_LOW_SCORE = 50
_SHOWN = 4
_OTHER_SIZE = 2  # times as many rows as declared, or so few: what is measured was then chosen for another table
_DEVIATIONS = 4
_FEW_ROWS = 5_000  # `auto` takes a table for one of 10,000 rows where nothing is said of them
_NOTHING = BeyondNoise()
_NAMED_LENGTH = 3  # sets of more columns have no name, such as pairs and triples have
_GRADE_KEYS: Mapping[Grade, str] = {
    "good": "grade.good",
    "with care": "grade.with-care",
    "not": "grade.not",
    "unknown": "grade.unknown",
}
# The distance of a pair that was not chosen, as a share of the distance beyond noise of the sets that rounds chose last. Where
# a smaller share of all pairs than `_MANY` was chosen it is less, by the square root of the share: the few strongest of many
# pairs say little about the others. Where the last sets were as far as the first, the others are taken to be as far; where
# they were half as far or less, this adds nothing.
_PASSED_OVER = 0.4
_MANY = 0.1

Sigmas = Mapping[int, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class DrawFacts:
    """Facts that the draws of marginals reveal about data that they did not count.

    `lone` is the standard deviation of the noise of a selected pair that is measured alone; each pair is graded by it where
    none was selected. `misfit` is the distance of the sets that rounds chose from the model (`Marginals.misfit`).
    `unreleased` has, for private domains, the number of records whose value was not released, as drawn, and the standard
    deviation of the noise of that count. `contradicted` names columns whose counts in earlier releases are other ones than
    those drawn. `chose_pairs`: there were few records, so that few pairs were chosen (`Marginals.is_combined`). `linked` has
    the cells of linked tables that are not as declared, `linked_rows` those of their rows that are in no count of rows.
    """

    lone: float | None = None
    misfit: ChosenMisfit | None = None
    unreleased: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    contradicted: tuple[str, ...] = ()
    chose_pairs: bool = False
    linked: tuple[LinkedUndeclared, ...] = ()
    linked_rows: tuple[LinkedUncounted, ...] = ()


def release_verdict(
    bounds: Sequence[MarginalBound],
    counts: Aggregates,
    configuration: Configuration,
    compression: Compression | None,
    association: Association,
    *,
    model: Sequence[ErrorParts] = (),
    facts: DrawFacts = DrawFacts(),
    is_automatic: bool = False,
) -> Verdict:
    """Return the verdict on a release, from the distances of its records, the counts as released, and their association.

    `compression` says how marginals merged values; None for k-tuples. `model` has the distance of the records from the fitted
    model. `is_automatic`: what is counted is what `auto` chooses for the configuration as it was declared.
    """
    deviations = _deviations(bounds)
    distances = _distances(bounds, counts, configuration, compression, model)
    measured = {sorted_names(bound.attributes) for bound in bounds}
    apart = known_apart(bounds, counts, configuration)
    known = known_distances(configuration, measured, apart)
    large = set(_large_pairs(configuration, counts, compression)) - measured - known.keys()
    farther = _passed_over_distance(bounds, counts, configuration, facts)
    by_noise = _unchosen_errors(distances, counts, configuration, facts, deviations)
    unchosen = _unchosen_errors(distances, counts, configuration, facts, deviations, farther)
    unchosen = _without(unchosen, measured | large | known.keys())
    columns = _column_facts(bounds, counts, configuration, association.cramers_v, facts)
    result = verdict(
        expected_errors(distances | unchosen | known, counts.domain.names),
        deviations,
        float(counts.record_count),
        columns,
        configuration.privacy.epsilon,
        configuration.titled_names,
        beyond=BeyondNoise(
            large=large,
            followed=known,
            passed_over={pair for pair, error in unchosen.items() if error > by_noise[pair]},
            known_columns=set(itertools.chain.from_iterable(apart)),
            more_rounds=rounds_line(configuration),
            measures_named=configuration.marginals is not None,
        ),
        dependence=dependences(association, bounds, float(counts.record_count)),
    )
    result = _add_configuration_sentences(
        result, counts, configuration, apart, facts, is_automatic=is_automatic
    )
    titles = configuration.titled_names
    result = with_sentences_before(
        result,
        says=[*_measured_sentences(bounds, counts, configuration, apart)],
        advice=column_advice(_titled(columns, titles)),
    )
    if unchosen:
        result = _add_choice_sentence(
            result, len(unchosen), configuration, facts, has_measured_pair=2 in deviations
        )
    why = dict.fromkeys(large, "too many cells") | dict.fromkeys(unchosen, "not chosen")
    why |= dict.fromkeys(known, "known")
    return _with_reasons(result, why | dict.fromkeys(measured), configuration)


def _unchosen_errors(
    distances: Mapping[Names, float],
    counts: Aggregates,
    configuration: Configuration,
    facts: DrawFacts,
    deviations: Sigmas,
    farther: float = 0.0,
) -> dict[Names, float]:
    """Return `unchosen_errors` with the deviation of a measured pair; none where pairs are not chosen."""
    deviation = statistics.median(deviations[2]) if 2 in deviations else facts.lone
    if deviation is None or not (facts.chose_pairs or _chooses_pairs(configuration)):
        return {}
    return unchosen_errors(distances, counts, deviation, farther)


def _without(errors: Mapping[Names, float], sets: Set[Names]) -> dict[Names, float]:
    """Return the errors of all other sets."""
    return {names: error for names, error in errors.items() if names not in sets}


def _measured_sentences(
    bounds: Sequence[MarginalBound],
    counts: Aggregates,
    configuration: Configuration,
    apart: Mapping[Names, float],
) -> Iterator[Sentence]:
    """Yield whether grades of single pairs are unknown, as chance alone can make them bad, and which sets records miss."""
    records = float(counts.record_count)
    pairs = 0 if configuration.marginals is None else pairs_of_chance(bounds, records)
    if pairs:
        yield verdict_sentence("pairs.of-chance", pairs=pairs)
    yield from missed_sentences(bounds, counts, apart, configuration.titled_names)


def _distances(
    bounds: Sequence[MarginalBound],
    counts: Aggregates,
    configuration: Configuration,
    compression: Compression | None,
    model: Sequence[ErrorParts],
) -> dict[Names, float]:
    """Return the expected distance of every set that has counts; arguments as for `release_verdict`."""
    merged = {} if compression is None else merged_shares(compression, counts.domain.names)
    drawn = {part.length: part.sampling_error or 0.0 for part in model}
    is_smoothed = configuration.marginals is not None
    return set_errors(bounds, float(counts.record_count), merged, drawn, is_smoothed=is_smoothed)


def _chooses_pairs(configuration: Configuration) -> bool:
    """Return whether marginals are measured, and pairs of them are chosen by noisy scores or in rounds."""
    marginals = configuration.marginals
    return marginals is not None and marginals.selects(len(configuration.attributes))


def _column_facts(
    bounds: Sequence[MarginalBound],
    counts: Aggregates,
    configuration: Configuration,
    association: Measure,
    facts: DrawFacts,
) -> list[ColumnFacts]:
    """Return the facts of the columns of a release, with the median standard deviation of the noise of single columns."""
    paired: set[str] = set()
    for bound in bounds:
        if len(bound.attributes) > 1:
            paired.update(bound.attributes)
    deviation = statistics.median(_deviations(bounds).get(1, [0.0]))
    related = _related(association)
    return column_facts(counts, configuration, deviation, paired, related, facts.unreleased)


def _add_configuration_sentences(
    verdict: Verdict,
    counts: Aggregates,
    configuration: Configuration,
    apart: Mapping[Names, float],
    facts: DrawFacts,
    *,
    is_automatic: bool,
) -> Verdict:
    """Return the verdict with sentences on what the configuration changed, on `known_apart` counts and on earlier releases."""
    titles = configuration.titled_names
    about_rows = _rows_advice(
        configuration, counts, has_advice=bool(verdict.advice), is_automatic=is_automatic
    )
    verdict = verdict.model_copy(update={"advice": (*verdict.advice, *map(str, about_rows))})
    verdict = with_undeclared(verdict, counts, titles, configuration, facts.linked)
    verdict = with_uncounted(verdict, counts, titles, configuration, facts.linked_rows)
    totals = list(total_sentences(counts, configuration))
    says = (*_changed_row_sentences(configuration), *totals, *apart_sentences(apart, titles))
    known_advice = [verdict_sentence("known.advice")] if apart or totals else []
    if totals:
        verdict = verdict.model_copy(update={"publication": WORSE[verdict.publication]})
    more_advice = (*_changed_row_advice(configuration), *known_advice)
    verdict = with_sentences_before(verdict, says=says, advice=more_advice)
    return (
        _add_contradiction(verdict, facts.contradicted, configuration)
        if facts.contradicted
        else verdict
    )


def _rows_advice(
    configuration: Configuration, counts: Aggregates, *, has_advice: bool, is_automatic: bool
) -> Iterator[Sentence]:
    """Yield that the number of rows can be said, where a table of few rows needs advice, or that it is another one."""
    rows = configuration.rows
    counted = counts.record_count
    if configuration.marginals is None or configuration.resize is not None:
        return
    if rows is None and counted < _FEW_ROWS and has_advice:
        yield verdict_sentence("advice.say-rows" if is_automatic else "advice.say-rows-and-auto")
    if rows is not None and configuration.privacy.subject is None:
        apart = abs(counted - rows) > _DEVIATIONS * counts.record_deviation
        if apart and not rows / _OTHER_SIZE <= counted <= rows * _OTHER_SIZE:
            yield verdict_sentence("advice.other-rows", rows=rows, counted=max(counted, 0))


def _passed_over_distance(
    bounds: Sequence[MarginalBound],
    counts: Aggregates,
    configuration: Configuration,
    facts: DrawFacts,
) -> float:
    """Return the distance of pairs that rounds had no share left for, from that of the sets chosen last (`_PASSED_OVER`).

    Beside sets the first choices are among ordinary columns and the last among all: one is no measure of the other.
    """
    if facts.misfit is None:
        return 0.0
    chosen = sum(len(bound.attributes) > 1 for bound in bounds)
    all_pairs = math.comb(len(counts.domain.names), 2)
    first, last = facts.misfit
    # 1 where the last sets were as far as the first, 0 where they were half as far or less
    has_sets = any(attribute.of_set for attribute in configuration.attributes)
    is_alike = first > 0 and not has_sets
    similarity = min(1.0, max(0.0, 2 * last / first - 1)) if is_alike else 0.0
    by_number = _PASSED_OVER * min(1.0, math.sqrt(chosen / all_pairs / _MANY))
    return last * max(similarity, by_number)


def _add_choice_sentence(
    verdict: Verdict,
    unchosen: int,
    configuration: Configuration,
    facts: DrawFacts,
    *,
    has_measured_pair: bool,
) -> Verdict:
    """Return the verdict with a sentence on the number of pairs that were not chosen: all of them where none is measured."""
    if has_measured_pair:
        key = "pairs.one-not-chosen" if unchosen == 1 else "pairs.not-chosen"
        if configuration.rounds is not None and configuration.rounds.coarsen and unchosen > 1:
            key = "pairs.not-chosen-or-coarse"
        says = (*verdict.says, str(verdict_sentence(key, pairs=unchosen)))
        name_them = verdict_sentence("pairs.not-chosen-advice")
        verdict = verdict.model_copy(update={"says": says})
        return with_sentences_before(verdict, advice=[name_them])
    none_chosen = verdict_sentence("pairs.none-chosen", epsilon=configuration.privacy.epsilon)
    returned = verdict_sentence("pairs.not-returned" if facts.chose_pairs else "pairs.returned")
    measure_some = verdict_sentence("pairs.none-chosen-advice")
    return with_sentences_before(verdict, says=[none_chosen, returned], advice=[measure_some])


def _add_contradiction(
    verdict: Verdict, columns: Sequence[str], configuration: Configuration
) -> Verdict:
    """Return the verdict of a release that uses an earlier one of other rows: it is not for publication."""
    titles = configuration.titled_names
    says = verdict_sentence("earlier.contradicted", names=listed_titles(columns, titles))
    advice = verdict_sentence("earlier.contradicted-advice")
    warned = with_sentences_before(verdict, says=[says], advice=[advice])
    return warned.model_copy(update={"publication": "not for publication"})


def _with_reasons(
    verdict: Verdict, reasons: Mapping[Names, str | None], configuration: Configuration
) -> Verdict:
    """Return the verdict with the reason of each set without counts (`_add_reason`), and with the sets that it lists."""
    sets = [_add_reason(row, reasons, configuration) for row in verdict.sets]
    listed, unlisted = listed_sets(sets)
    return verdict.model_copy(update={"sets": listed, "unlisted": unlisted or None})


def _add_reason(
    row: SetVerdict, reasons: Mapping[Names, str | None], configuration: Configuration
) -> SetVerdict:
    """Return the row with the reason why its set has no counts: that of `reasons` by its sorted names, or the usual one."""
    is_counted = (
        configuration.marginals is None and len(row.attributes) <= configuration.reporting_length
    )
    usual = "nothing released" if is_counted else "not asked for"
    return row.model_copy(update={"unmeasured": reasons.get(sorted_names(row.attributes), usual)})


def _changed_row_sentences(configuration: Configuration) -> Iterator[Sentence]:
    """Yield a sentence for each way in which counted rows differ from the table; the number of such rows is not known."""
    titles = configuration.titled_names
    counted = configuration.counted_words
    if configuration.resize is not None and counted is not None:
        yield verdict_sentence("changed.resized", counted=counted)
    subject = configuration.privacy.subject
    if subject is not None:
        name = titles.get(subject.column, subject.column)
        if subject.join:
            yield verdict_sentence("changed.joined", name=name)
        if subject.missing_subject == "drop":
            yield verdict_sentence("changed.ownerless", name=name)
    yield from _linked_row_sentences(configuration)
    if rows_are_changed(configuration):
        yield verdict_sentence("changed.repaired")
    unkept = unenforced_columns(configuration)
    if unkept:
        yield verdict_sentence("changed.unkept", names=listed_titles(unkept, titles))
    imputed = configuration.imputed_columns
    if imputed:
        yield verdict_sentence("changed.imputed", names=listed_titles(imputed, titles))
    computed = configuration.structure.computed_columns if configuration.structure else ()
    if computed:
        yield verdict_sentence("changed.computed", names=listed_titles(computed, titles))


def _linked_row_sentences(configuration: Configuration) -> Iterator[Sentence]:
    """Yield which rows of linked tables are in no number, and of which counts the verdict says nothing."""
    tables = configuration.tables or {}
    for name in sorted(tables):
        yield verdict_sentence("changed.linked", table=name)
    for name in configuration.counted_tables:
        yield verdict_sentence("changed.linked-rows", table=name, most=tables[name].at_most or 1)
        if name in configuration.recorded_tables:
            yield verdict_sentence("changed.linked-records", table=name)


def _changed_row_advice(configuration: Configuration) -> Iterator[Sentence]:
    """Yield how to learn of rows that `_changed_row_sentences` says nobody has counted."""
    titles = configuration.titled_names
    subject = configuration.privacy.subject
    if subject is not None and subject.missing_subject == "drop":
        name = titles.get(subject.column, subject.column)
        key = (
            "changed.ownerless-linked-advice"
            if configuration.tables
            else "changed.ownerless-advice"
        )
        yield verdict_sentence(key, name=name)
    imputed = configuration.imputed_columns
    if imputed:
        yield verdict_sentence("changed.imputed-advice", names=listed_titles(imputed, titles))
    computed = configuration.structure.computed_columns if configuration.structure else ()
    if computed:
        yield verdict_sentence("changed.computed-advice", names=listed_titles(computed, titles))


def _deviations(bounds: Sequence[MarginalBound]) -> dict[int, list[float]]:
    """Return the standard deviations of the noise of a cell, by the length of sets."""
    deviations: dict[int, list[float]] = {}
    for bound in bounds:
        if bound.deviation is not None:
            deviations.setdefault(len(bound.attributes), []).append(bound.deviation)
    return deviations


def _large_pairs(
    configuration: Configuration, counts: Aggregates, compression: Compression | None
) -> Iterator[Names]:
    """Yield the pairs with more cells than `max_cells`, by sorted names.

    Cells are those of merged values where rounds choose, and of the released domain where all pairs are measured.
    """
    cliques = None if configuration.marginals is None else configuration.marginals.cliques
    if (
        compression is None
        or not isinstance(cliques, AdaptiveCliques | AllCliques)
        or cliques.max_cells is None
    ):
        return
    if isinstance(cliques, AdaptiveCliques):
        sizes = compression.sizes
    else:
        declared = configuration.with_undeclared(()).attributes
        sizes = domain_sizes(declared, counts.domain.labels)
    sized_names = zip(counts.domain.names, sizes, strict=True)
    for (first, first_size), (second, second_size) in itertools.combinations(sized_names, 2):
        if first_size * second_size > cliques.max_cells:
            yield sorted_names((first, second))


def _related(association: Measure) -> set[str]:
    """Return the attributes that have an association with another one above what chance and noise explain."""
    related: set[str] = set()
    for place, row in enumerate(association.reference):
        for column, value in enumerate(row):
            if column != place and value is not None:
                related.add(association.names[place])
    return related


def verdict(
    errors: Sets,
    deviations: Sigmas,
    records: float,
    columns: Sequence[ColumnFacts] = (),
    epsilon: float = 1.0,
    titles: Mapping[str, str] | None = None,
    *,
    beyond: BeyondNoise = _NOTHING,
    dependence: Mapping[Names, float] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict of expected distances, of the noise of counts, and of columns.

    Args:
        errors: Expected distance of each set of columns.
        deviations: Standard deviations of the noise of counts, by the length of sets.
        records: The noisy number of records.
        columns: Facts of the columns.
        epsilon: That of the release.
        titles: What the sentences call a column, where that is not its name.
        beyond: Sets that less noise would not make good.
        dependence: How far pairs are from independent columns, for the score.
    """
    titles = titles or {}
    empty = {column.name for column in columns if column.is_nothing}
    worse = worse_triples(errors, empty)
    errors = {names: 1.0 if empty.intersection(names) else error for names, error in errors.items()}
    lengths = _length_verdicts(errors, deviations, worse)
    sets = _set_verdicts(errors)

    titled = _titled(columns, titles)
    doubt_sentences = list(doubts(titled))
    question_sentences = list(questions(titled))
    bad = {row.attributes for row in sets if row.grade == "not"}
    means: list[Sentence] = []
    for column in columns:
        if column.mean is not None and (column.name,) not in bad:
            name = titles.get(column.name, column.name)
            means.append(verdict_sentence("part.mean", name=name, doubt=column.mean))

    publication = _publication(sets, lengths, records)
    if (doubt_sentences or means) and publication == "good":
        publication = "with care"
    not_for = [*_small_groups(lengths, records), *means]
    score = quality_score(errors, dependence)
    says = (
        *doubt_sentences,
        *question_sentences,
        *_grade_sentences(lengths, sets, not_for, titles),
        *_score_sentences(score, errors, dependence),
    )
    return Verdict(
        publication=publication,
        score=score,
        says=tuple(map(str, says)),
        advice=tuple(map(str, advice(sets, epsilon, beyond))),
        lengths=lengths,
        sets=sets,
    )


def _titled(columns: Sequence[ColumnFacts], titles: Mapping[str, str]) -> list[ColumnFacts]:
    """Return the facts of columns under the names that sentences call them by."""
    return [replace(column, name=titles.get(column.name, column.name)) for column in columns]


def _score_sentences(
    score: int | None, errors: Sets, dependence: Mapping[Names, float]
) -> list[Sentence]:
    """Return what a low score is of, and whether there is little that records could keep; nothing for another score."""
    if score is None or score >= _LOW_SCORE:
        return []
    is_little = has_little_to_keep(errors, dependence)
    return [verdict_sentence("score.little" if is_little else "score.lost")]


def _set_verdicts(errors: Sets) -> tuple[SetVerdict, ...]:
    """Return the verdicts on single columns, then on pairs."""
    rows: list[SetVerdict] = []
    for names, error in sorted(errors.items(), key=lambda item: len(item[0])):
        if len(names) <= 2:
            rounded = None if error is None else round(error, 4)
            rows.append(SetVerdict(attributes=names, error=rounded, grade=grade(error)))
    return tuple(rows)


def _length_verdicts(errors: Sets, deviations: Sigmas, worse: int) -> tuple[LengthVerdict, ...]:
    """Return the numbers of grades of each length, and its least group.

    That is the least count which is at least four standard deviations of the noise (the median one). `worse` are the triples
    without a distance that are not good for anything.
    """
    grades = Counter((len(names), grade(error)) for names, error in errors.items())
    grades[3, "not"] += worse
    columns = len(frozenset().union(*errors))
    rows: list[LengthVerdict] = []
    for length in sorted({1, 2, 3, *map(len, errors)} & set(range(columns + 1))):
        least = None
        if deviations.get(length):
            # a group of more columns is part of one of fewer, so the largest noise of any shorter length counts
            medians = [
                statistics.median(sigmas)
                for size, sigmas in deviations.items()
                if size <= length and sigmas
            ]
            least = math.ceil(4 * max(medians))
        known = grades[length, "good"], grades[length, "with care"], grades[length, "not"]
        row = LengthVerdict(
            length=length,
            good=known[0],
            with_care=known[1],
            bad=known[2],
            unknown=math.comb(columns, length) - sum(known),
            least_group=least,
        )
        rows.append(row)
    return tuple(rows)


def _publication(
    sets: Sequence[SetVerdict], lengths: Sequence[LengthVerdict], records: float
) -> Publication:
    """Return the publication grade.

    It is "not for publication" where at least half of the columns are noise. It is "good" where all columns, and at least half
    of the pairs, are.
    """
    grades = [row.grade for row in sets if len(row.attributes) == 1]
    if records < 1 or 2 * grades.count("not") >= max(len(grades), 1):
        return "not for publication"
    most_pairs = all(
        2 * row.good >= math.comb(len(grades), 2) for row in lengths if row.length == 2
    )
    return "good" if grades.count("good") == len(grades) and most_pairs else "with care"


def _small_groups(lengths: Sequence[LengthVerdict], records: float) -> Iterator[Sentence]:
    """Yield which groups are too small for the noise, for single columns and for pairs."""
    for row in lengths:
        least = row.least_group
        if row.length <= 2 and least is not None and least > 1:
            key = "part.any-group" if least > records else "part.small-groups"
            yield verdict_sentence(key, records=least, sets=_sets(row.length))


def _grade_sentences(
    lengths: Sequence[LengthVerdict],
    sets: Sequence[SetVerdict],
    not_for: Sequence[Sentence],
    titles: Mapping[str, str],
) -> Iterator[Sentence]:
    """Yield a sentence for each grade that sets have, with the numbers of sets and the names of the worst.

    `not_for` is what the release is not for apart from sets.
    """
    for set_grade, key in _GRADE_KEYS.items():
        parts: list[Sentence] = []
        for row in lengths:
            of_length = [verdict for verdict in sets if len(verdict.attributes) == row.length]
            parts += _length_parts(row, of_length, set_grade, titles)
        if set_grade == "not":
            parts += not_for
        if parts:
            yield verdict_sentence(key, parts="; ".join(map(str, parts)))


def _length_parts(
    row: LengthVerdict,
    sets: Sequence[SetVerdict],
    set_grade: Grade,
    titles: Mapping[str, str],
) -> Iterator[Sentence]:
    """Yield the number of sets of a length that have a grade, with the worst few of them where it is not good.

    `sets` are those of the length, as far as they have verdicts: columns and pairs.
    """
    total = row.good + row.with_care + row.bad + row.unknown
    numbers = {"good": row.good, "with care": row.with_care, "not": row.bad}
    number = numbers.get(set_grade, row.unknown)
    if not number:
        return
    graded = [verdict for verdict in sets if verdict.grade == set_grade]
    if set_grade in ("good", "unknown") or not graded:
        yield verdict_sentence("part.sets", sets=_sets(row.length), number=number, total=total)
        return
    worst = sorted(graded, key=lambda verdict: -(verdict.error or 0))
    yield verdict_sentence(
        "part.more-examples" if len(worst) > _SHOWN else "part.examples",
        sets=_sets(row.length),
        number=number,
        total=total,
        examples=", ".join(_title(verdict, titles) for verdict in worst[:_SHOWN]),
    )


def _title(row: SetVerdict, titles: Mapping[str, str]) -> str:
    """Return the titles of the columns of a set."""
    return " x ".join(titles.get(name, name) for name in row.attributes)


def _sets(length: int) -> Sentence:
    """Return what sets of a number of columns are called."""
    return verdict_sentence(
        f"sets.{length}" if length <= _NAMED_LENGTH else "sets.longer", length=length
    )
