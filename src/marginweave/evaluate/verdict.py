"""The verdict: what a release is good for, with care, and not for, from its own noisy counts. DP: post-processing.

The expected distance t of a measured set of columns follows from how far its records are from its counts as drawn, d. Of n
cells with noise of deviation s, records that took over the noise of p of them are sqrt(p) s from the truth and sqrt(n - p) s
from the counts (L2); where they follow neither, b farther: d^2 = b^2 + (n - p) s^2 and t^2 = b^2 + p s^2. Where d^2 is below n
s^2, as if b were 0, t^2 = n s^2 - d^2; where it is above, as if p were 0, t^2 = d^2 - n s^2 (Stein 1981; here with L1 norms,
that of the noise as expected). How far drawn records are from the fitted model, r, is known, on average over the sets of a
length: all of this is of the model, with d^2 - r^2 in place of d^2, and t^2 is r^2 more. The share p/n is much the same in all
sets of a release, and its median is better known than that of any: a set is judged by its own d^2 where this is beyond what
chance does to the norm of noise (`_CHANCE`). A pair that was not chosen, by scores or in rounds, is about as far as noise
would have been (`_UNCHOSEN`), or it had been, and as chance makes two draws of independent columns. Where scores chose no pair
at all, that is the noise of one that is measured alone. These numbers are those of benchmarks/accuracy/verdicts.py;
docs/verdict.md says how often grades are right.

Counts of k-tuples are noisier than records, which are smoothed by what triples share: there it is the larger of the noise of a
set and what its records are beyond it. The mean distance of triples was 1.6 to 2.1 times that of pairs (docs/accuracy.md), and
is taken as twice the mean of the three, where this is less.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.configuration.marginals import AdaptiveCliques, AllCliques
from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.counts.discovery import Compression
from marginweave.counts.rounds import expected_noise
from marginweave.domain.zeros import domain_sizes
from marginweave.evaluate.doubts import ColumnFacts, column_facts, doubts, questions
from marginweave.evaluate.undeclared import with_undeclared
from marginweave.measurements.combinations import Aggregates
from marginweave.records.decode import label_counts
from marginweave.released.evaluation import ErrorParts, MarginalBound, Measure
from marginweave.released.verdict import CARE, GOOD, LengthVerdict, Publication, SetVerdict, Verdict, grade

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
_TOO_LARGE = (
    "{some} pairs have more cells than aggregate.cliques.max_cells, so that nothing could choose or measure them: coarser "
    "values or a larger max_cells would."
)
_MORE_ROUNDS = (
    "Rounds ended while pairs were farther from the model than noise: more of them (aggregate.cliques.rounds) would measure "
    "more pairs."
)
_NAMES = {1: "single columns", 2: "pairs of columns", 3: "triples of columns"}
# The least that records take over of the noise of a column, as a part of its norm, and of that of larger sets, of its square.
_OF_COLUMN, _OF_SETS = 0.7, 0.03
# The square of the L1 norm of the noise of n cells deviates by 2 sqrt(pi/2 - 1) / sqrt(n) of it; one and a half times that.
_CHANCE = 1.5 * 2 * math.sqrt(math.pi / 2 - 1)
# How far a pair that was not chosen is, in the noise of measuring it.
_UNCHOSEN = 0.55
# How far it is, in what the sets that rounds chose last were beyond their noise; of a smaller share of all pairs than `_MANY`
# that were chosen less, by the root of the share, as the few strongest of many say little of the others.
_LEFT, _MANY = 0.4, 0.1
# Of the records whose value was measured as one with others, how many count as misplaced.
_MISPLACED = 0.25
_WEAK = "; an epsilon above 10, which would do as much, protects weakly"

Sets = Mapping[tuple[str, ...], float | None]
Sigmas = Mapping[int, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class DrawFacts:
    """What the draws of marginals say of what they did not count.

    `lone` is the deviation of the noise of a selected pair that is measured alone, as each is thought of where none was.
    `misfit` is how far the sets that rounds chose last were from the model (`Marginals.misfit`). `unreleased` has of private
    domains how many records hold what was not released, as drawn, and the deviation of the noise of that count.
    """

    lone: float | None = None
    misfit: float | None = None
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
    measured = {_key(bound.attributes) for bound in bounds}
    large = {pair for pair in _large_pairs(configuration, counts, compression) if pair not in measured}
    unchosen, left = dict[tuple[str, ...], float](), set[tuple[str, ...]]()
    of_pair = statistics.median(deviations[2]) if 2 in deviations else facts.lone
    if settings is not None and settings.selects(len(configuration.attributes)) and of_pair is not None:
        pairs = unchosen_errors(distances, counts, of_pair, _left(bounds, counts, facts))
        unchosen = {pair: error for pair, error in pairs.items() if pair not in measured | large}
        by_noise = unchosen_errors(distances, counts, of_pair)
        left = {pair for pair, error in unchosen.items() if error > by_noise[pair]}
    errors = expected_errors(distances | unchosen, counts.domain.names)
    paired = {name for bound in bounds if len(bound.attributes) > 1 for name in bound.attributes}
    deviation = statistics.median(deviations.get(1, [0.0]))
    columns = column_facts(counts, configuration, deviation, paired, _related(association), facts.unreleased)
    titled, epsilon = configuration.titled_names, configuration.privacy.epsilon
    found = verdict(errors, deviations, float(counts.record_count), columns, epsilon, titled, large=large, left=left)
    would_choose = settings is not None and configuration.rows is None and counts.record_count < _FEW_ROWS
    more_advice = (_SAY_ROWS,) if would_choose and found.advice else ()
    found = with_undeclared(found, counts, titled, configuration)
    made_up = tuple(_made_up(configuration))
    found = found.model_copy(update={"says": (*made_up, *found.says), "advice": (*found.advice, *more_advice)})
    if unchosen:
        found = _with_choice_told(found, len(unchosen), epsilon, is_one_measured=2 in deviations)
    reasons = dict.fromkeys(large, "too many cells") | dict.fromkeys(unchosen, "not chosen") | dict.fromkeys(measured)
    sets = tuple(_with_reason(one, reasons, configuration) for one in found.sets)
    return found.model_copy(update={"sets": sets})


def _left(bounds: Sequence[MarginalBound], counts: Aggregates, facts: DrawFacts) -> float:
    """How far pairs are that rounds had no share left for, by those that they chose last (`_LEFT`)."""
    chosen, all_pairs = sum(len(bound.attributes) > 1 for bound in bounds), math.comb(len(counts.domain.names), 2)
    return _LEFT * min(1.0, math.sqrt(chosen / all_pairs / _MANY)) * (facts.misfit or 0.0)


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
    return row.model_copy(update={"unmeasured": reasons.get(_key(row.attributes), usual)})


def _made_up(configuration: Configuration) -> Iterator[str]:
    """What is counted that no row of the table has, a sentence each: nobody knows how much that is."""
    if configuration.resize is not None:
        yield _RESIZED.format(counted=configuration.counted_words)
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
            yield _key((one, other))


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


def set_errors(
    bounds: Sequence[MarginalBound],
    records: float,
    merged: Mapping[str, float] | None = None,
    drawn: Mapping[int, float] | None = None,
    *,
    is_smoothed: bool = True,
) -> dict[tuple[str, ...], float]:
    """The expected distance of every set that has counts, by its sorted names; `is_smoothed` are all but k-tuples.

    Where values are merged, nothing measured which of them goes with what: a quarter of such records count as misplaced.
    `drawn` has, by the length of a set, the mean distance of the records from the model that they were drawn from.
    """
    modelled = _of_model(
        bounds, {length: 2 * max(records, 1.0) * distance for length, distance in (drawn or {}).items()}
    )
    share = max(_OF_SETS, statistics.median(_taken_shares(modelled) or [0.0]))
    found = {}
    for bound, of_model in zip(bounds, modelled, strict=True):
        if bound.noise is not None:
            several = len(bound.attributes) > 1
            by_chance = math.sqrt(bound.distance**2 - of_model.distance**2)
            smoothed = math.hypot(_smoothed(of_model, bound.noise, share), by_chance)
            apart = smoothed if is_smoothed else _beyond(bound, bound.noise)
            misplaced = _MISPLACED * sum((merged or {}).get(name, 0.0) for name in bound.attributes) if several else 0.0
            found[_key(bound.attributes)] = min(1.0, apart / (2 * max(records, 1.0)) + misplaced)
    return found


def _of_model(bounds: Iterable[MarginalBound], drawn: Mapping[int, float]) -> list[MarginalBound]:
    """The sets with the distance of the model, where that of the records from it is `drawn`, in records (L1)."""
    found = []
    for bound in bounds:
        by_chance = drawn.get(len(bound.attributes), 0.0)
        distance = math.sqrt(max(bound.distance**2 - by_chance**2, 0.0))
        found.append(bound.model_copy(update={"distance": distance}))
    return found


def _taken_shares(bounds: Sequence[MarginalBound]) -> list[float]:
    """Of each larger set the share of its noise that records took over, as if they followed nothing else."""
    sets = [bound for bound in bounds if len(bound.attributes) > 1 and bound.noise]
    return [1 - (bound.distance / bound.noise) ** 2 for bound in sets if bound.noise]


def _beyond(bound: MarginalBound, noise: float) -> float:
    """The larger of the noise and what the records are beyond it, in records (L1)."""
    return max(noise, math.sqrt(max(0.0, bound.distance**2 - noise**2)))


def _smoothed(bound: MarginalBound, noise: float, share: float) -> float:
    """How far a model is that took over some of the noise, in records (L1)."""
    own = abs(noise**2 - bound.distance**2)
    if len(bound.attributes) == 1:
        return max(_OF_COLUMN * noise, math.sqrt(own))
    cells = max(1.0, noise / expected_noise(bound.deviation, 1)) if bound.deviation else 1.0
    return math.sqrt(max(share * noise**2, own - _CHANCE * noise**2 / math.sqrt(cells)))


def unchosen_errors(
    distances: Mapping[tuple[str, ...], float], counts: Aggregates, deviation: float, left: float = 0.0
) -> dict[tuple[str, ...], float]:
    """The expected distance of every pair, as if it had not been chosen, from the counts of its two columns.

    With the shares p_a and q_b of their values, N records and noise of a deviation s, a cell is off by what noise would have
    been in it, or by what independent columns have there, where this is less: sum_ab min(sqrt(2/pi) s, N p_a q_b) / (2 N).
    Where rounds had no share left for pairs that are farther than that, it is `left`, and at most 2 e where all records except
    a share e have one value of a column.
    Besides, the rows and the records are each a draw of the same columns: with the variance v = N p_a q_b (1 - p_a)(1 - q_b)
    of a cell of independent ones, they are sum_ab min(sqrt(4 v/pi), 2 N p_a q_b) / (2 N) apart.
    """
    records, names = max(1.0, float(counts.record_count)), counts.domain.names
    shares = [_shares(held, records) for held in label_counts(counts)]
    noise, found = expected_noise(deviation, 1) / records, dict[tuple[str, ...], float]()
    for (one, first), (other, second) in itertools.combinations(zip(names, shares, strict=True), 2):
        alone = [distances.get((name,)) for name in (one, other)]
        independent = np.outer(first, second)
        by_noise = _UNCHOSEN * float(np.minimum(noise, independent).sum()) / 2
        together = max(by_noise, min(left, 2 * (1 - first.max()), 2 * (1 - second.max())))
        variances = np.outer(first * (1 - first), second * (1 - second)) / records
        chance = float(np.minimum(np.sqrt(4 / math.pi * variances), 2 * independent).sum()) / 2
        if None not in alone:
            parts = (together, chance, *(part for part in alone if part is not None))
            found[_key((one, other))] = min(1.0, math.hypot(*parts))
    return found


def _shares(held: Floats, records: float) -> Floats:
    """The shares of the values of a column, and of those without one."""
    shares = np.clip(held / records, 0.0, 1.0)
    return np.append(shares, max(0.0, 1.0 - float(shares.sum())))


def _key(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def expected_errors(distances: Mapping[tuple[str, ...], float], names: Sequence[str]) -> Sets:
    """The expected distance of every set of one to three columns; None of a pair of which nothing is known.

    `distances` has that of sets by themselves, by their sorted names. Of triples there are those that
    something measured, or whose three pairs are known.
    """
    place = {name: i for i, name in enumerate(names)}
    found: dict[tuple[str, ...], float | None] = {
        tuple(sorted(columns, key=place.__getitem__)): error for columns, error in distances.items()
    }
    for pair in itertools.combinations(names, 2):
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
    *,
    large: Collection[tuple[str, ...]] = (),
    left: Collection[tuple[str, ...]] = (),
) -> Verdict:
    """The verdict of these expected distances, of `deviations` of the noise of counts by their length, and of `columns`.

    `titled` has what the sentences call a column, where that is not its name; `large` are pairs with too many cells to be
    measured, by their sorted names, and `left` those that rounds left behind though they are farther than noise.
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
    return Verdict(
        publication=fit, says=says, advice=tuple(_advice(sets, epsilon, large, left)), lengths=lengths, sets=sets
    )


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


def _advice(
    sets: Sequence[SetVerdict], epsilon: float, large: Collection[tuple[str, ...]], left: Collection[tuple[str, ...]]
) -> Iterator[str]:
    """How much more would do, where less than half of the pairs (or columns) are good; no epsilon that protects weakly.

    No noise that is less makes a pair good that nothing measured, or that is among what rounds `left` behind.
    """
    longest = max((len(row.attributes) for row in sets), default=0)
    found = [row for row in sets if len(row.attributes) == longest]
    errors = [math.inf if row.error is None or _key(row.attributes) in left else row.error for row in found]
    if large:
        yield _TOO_LARGE.format(some=f"{len(large):,}")
    if unknown := sum(row.error is None and _key(row.attributes) not in large for row in sets):
        yield (
            f"{unknown:,} pairs were not measured, and are in the records only as far as others imply them: name what must be "
            "right in aggregate.cliques."
        )
    if any(_key(row.attributes) in left and (row.error or 0.0) > GOOD for row in found):
        yield _MORE_ROUNDS
    median = statistics.median(errors) if errors else 0.0
    if GOOD < median < math.inf:
        weak = _WEAK if median / GOOD * epsilon > MOST_EPSILON else ""
        yield (
            f"About {median / GOOD:.1f} times the {'rows' if weak else 'epsilon, or the rows,'} would make half of them good; "
            f"so do fewer columns and coarser values{weak}."
        )
