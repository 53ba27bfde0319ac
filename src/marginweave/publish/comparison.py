"""Compare two releases of one dataset: find changes beyond their noise, by a family of tests with one false-alarm rate.

Every count of either release gets an interval, and a value changed where its two intervals do not meet. All intervals hold
together with probability 1 - `FALSE_ALARM` at least. Half of the rate is for the number of records and single values, half for
pairs; each half is divided by the number of its intervals (Bonferroni), as the released domains have them, so it does not
matter how the counts depend on each other, or which of them are shown. A value of k-tuples that was not released had a noisy
count below the threshold: its interval ends where that is as rare.

Where chance decides before rows are counted (`Chance`) each release has drawn that again. The interval of such a count is then
of what it is expected to be, which follows from the table alone: its noise takes half of the rate, that chance the other half.
DP: post-processing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.labels import Domain
from marginweave.estimate.intervals import (
    Intervals,
    censored_bound,
    count_interval,
    expected_ends,
    marginal_intervals,
)
from marginweave.estimate.marginals import listed_counts, marginal_counts
from marginweave.observations.tables import Marginals
from marginweave.prepare.chance import Chance, chance_before_counting
from marginweave.publish.best import tuple_intervals
from marginweave.publish.conclusions import combination_sentence, value_sentence
from marginweave.publish.preparation_words import preparation_differences
from marginweave.publish.reader import PublishedRelease, titled_labels
from marginweave.publish.templates import render
from marginweave.released.statement import PrivacyStatement
from marginweave.texts.sentences import Sentence, counts_sentence, report_sentence

FALSE_ALARM = 0.05
"""Probability, at most, that a comparison names any value as changed that has not."""

_Value = tuple[tuple[str, str], ...]


_SharedLabels = Mapping[str, tuple[str, ...]]
"""Labels that both releases have, by column."""
"""A combination of values: column and label of each."""


@dataclass(frozen=True, kw_only=True)
class _Count:
    """A count and the ends of its interval; the count is None where the value was not released."""

    count: int | None
    low: int
    high: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """A count in both releases, and the least and most by which it grew."""

    words: str
    before: int | None
    after: int | None
    low: int
    high: int

    @property
    def is_beyond_noise(self) -> bool:
        """Return whether the count changed by more than its noise can explain."""
        return self.low > 0 or self.high < 0

    @property
    def least(self) -> int:
        """Least amount of the change in either direction; 0 if there may be none."""
        return max(self.low, -self.high, 0)

    @property
    def amount(self) -> Sentence:
        """Least and most of the change."""
        if self.low >= 0:
            return report_sentence("change.more", least=self.low, most=self.high)
        if self.high <= 0:
            return report_sentence("change.fewer", least=-self.high, most=-self.low)
        return report_sentence("change.fewer-to-more", fewer=-self.low, more=self.high)

    @property
    def sentence(self) -> Sentence:
        """Change with both counts."""
        before = _count_sentence(self.before)
        after = _count_sentence(self.after)
        return report_sentence(
            "change.value", value=self.words, amount=self.amount, before=before, after=after
        )


def _count_sentence(count: int | None) -> Sentence:
    """Return a count, or that it was not released."""
    if count is None:
        return report_sentence("change.not-released")
    return report_sentence("change.count", count=count)


@dataclass(frozen=True, kw_only=True)
class ReleaseComparison:
    """All counts that two releases have in common; `total`, `values` and `pairs` are tested as one family.

    `apart` are columns that are in one release only, or that have different values in the two. `backwards` says so if the
    second release was made before the first; otherwise it is None. `drawn` lists what chance decided in either release before
    rows were counted. `prepared` says in what the preparation of the rows differs, so that no difference is called a change of
    the table; None where it does not. `values_beyond` says of each column what values beyond its bounds count as. `linked` are
    the linked tables of either release whose rows were counted, in words: these counts are not compared.
    """

    total: Change
    values: tuple[Change, ...]
    pairs: tuple[Change, ...]
    apart: tuple[str, ...]
    backwards: Sentence | None
    drawn: tuple[str, ...] = ()
    prepared: Sentence | None = None
    values_beyond: tuple[str, ...] = ()
    linked: str = ""

    @property
    def changed(self) -> tuple[Change, ...]:
        """Single values that changed beyond noise, the largest change first; none where `prepared` says why."""
        return () if self.prepared else self.differing

    @property
    def differing(self) -> tuple[Change, ...]:
        """Single values that differ beyond noise, for whatever reason."""
        return _beyond_noise(self.values)

    @property
    def changed_pairs(self) -> tuple[Change, ...]:
        """Pairs of values that changed beyond noise, as `changed`."""
        return () if self.prepared else self.differing_pairs

    @property
    def differing_pairs(self) -> tuple[Change, ...]:
        """Pairs of values that differ beyond noise, for whatever reason."""
        return _beyond_noise(self.pairs)

    @property
    def totals(self) -> Sentence:
        """Sentences on how many records each release has, and on counts that are not compared."""
        before = _count_sentence(self.total.before)
        totals = report_sentence(
            "change.totals", before=before, after=_count_sentence(self.total.after)
        )
        if not self.linked:
            return totals
        return report_sentence("change.totals-linked", totals=totals, tables=self.linked)

    @property
    def drawn_sentence(self) -> Sentence | None:
        """A sentence on the random choices of each release and what they mean for ranges; None if there are none."""
        return (
            report_sentence("change.drawn", choices="; ".join(self.drawn)) if self.drawn else None
        )

    @property
    def beyond_sentence(self) -> Sentence | None:
        """A sentence on what values beyond bounds count as; None where there are no bounds."""
        if not self.values_beyond:
            return None
        return report_sentence("change.beyond", says="; ".join(self.values_beyond))

    @property
    def verdict(self) -> Sentence:
        """Outcome in a sentence."""
        values = len(self.differing)
        pairs = len(self.differing_pairs)
        if not values and not pairs and self.prepared is None:
            return report_sentence(
                "change.records" if self.total.is_beyond_noise else "change.none"
            )
        return report_sentence(
            "change.differ" if self.prepared else "change.values",
            prepared=self.prepared or "",
            values=values,
            all_values=len(self.values),
            explained=report_sentence("change.noise-and-choices" if self.drawn else "change.noise"),
            pairs=pairs,
            all_pairs=len(self.pairs),
        )

    @property
    def false_alarm_sentence(self) -> Sentence:
        """A sentence on how often chance alone names anything."""
        key = "change.false-difference" if self.prepared else "change.false-alarm"
        return report_sentence(key, percent=100 * FALSE_ALARM)


def compare_releases(before: PublishedRelease, after: PublishedRelease) -> ReleaseComparison:
    """Return the changes from one release to another of the same dataset.

    Raises:
        InputError: they are of different datasets, one release twice, or of a resized table.
    """
    _refuse_incomparable(before.statement, after.statement)
    chance_before = _chance(before)
    chance_after = _chance(after)
    shared = _shared_labels(before, after)
    names = after.configuration.titled_names
    words = _ComparisonWords(names=names, titles=_titles(after))
    # A half of the rate for totals and single values, a half for pairs; half of each half for each release.
    sizes = [len(labels) for labels in shared.values()]
    value_tail = FALSE_ALARM / 4 / (1 + sum(sizes))
    cells = sum(a * b for a, b in itertools.combinations(sizes, 2))
    pair_tail = FALSE_ALARM / 4 / max(cells, 1)
    values_before = _value_counts(before, chance_before, shared, value_tail)
    values_after = _value_counts(after, chance_after, shared, value_tail)
    pairs_before = _pair_counts(before, chance_before, {*shared}, pair_tail)
    pairs_after = _pair_counts(after, chance_after, {*shared}, pair_tail)
    columns = {*before.aggregates.domain.names, *after.aggregates.domain.names}
    apart = sorted(columns - {*shared})
    drawn = map(str, (*_choices(chance_before), *_choices(chance_after)))
    return ReleaseComparison(
        total=_change(
            str(report_sentence("change.all-records")),
            _total(before, value_tail),
            _total(after, value_tail),
        ),
        values=tuple(_changes(words, values_before, values_after)),
        pairs=tuple(_changes(words, pairs_before, pairs_after)),
        apart=tuple(names.get(name, name) for name in apart),
        backwards=_backwards(before.statement, after.statement),
        drawn=tuple(dict.fromkeys(drawn)),
        prepared=_prepared(before, after, shared),
        values_beyond=tuple(_values_beyond(after.configuration, shared)),
        linked=listed(
            sorted({*before.configuration.counted_tables, *after.configuration.counted_tables})
        ),
    )


def render_comparison(
    comparison: ReleaseComparison, before: PublishedRelease, after: PublishedRelease
) -> bytes:
    """Return the HTML page of a comparison."""
    rate = f"{100 * FALSE_ALARM:g}"
    page = render("comparison.html.j2", found=comparison, before=before, after=after, rate=rate)
    return page.encode()


def _refuse_incomparable(before: PrivacyStatement, after: PrivacyStatement) -> None:
    """Raise InputError for releases of different datasets, and for one release twice."""
    if before.dataset != after.dataset:
        raise InputError(
            f"--against must name a release of {after.dataset}; it is one of {before.dataset}"
        )
    if before.release == after.release:
        raise InputError("--against must name another release than RUN")


def _prepared(
    before: PublishedRelease, after: PublishedRelease, shared: _SharedLabels
) -> Sentence | None:
    """Return a sentence if the rows of two releases were prepared in different ways; otherwise None."""
    facts = [(release.configuration, release.statement) for release in (before, after)]
    parts = [str(part) for part in preparation_differences(facts[0], facts[1], shared)]
    return report_sentence("prepared.differs", parts="; ".join(parts)) if parts else None


def _values_beyond(configuration: Configuration, shared: _SharedLabels) -> Iterator[str]:
    """Yield for each compared column of numbers or dates what values beyond its bounds count as."""
    for name in dict.fromkeys(a.column for a in configuration.attributes if a.name in shared):
        words = configuration.clamped_words(name)
        if words:
            yield f"of {name}, {words}"


def _shared_labels(before: PublishedRelease, after: PublishedRelease) -> dict[str, tuple[str, ...]]:
    """Return the labels that both releases have, by column.

    A column of public values is shared only if both releases declare the same ones.
    """
    labels_before = _labels(before)
    private = {*before.configuration.private_columns, *after.configuration.private_columns}
    shared = {}
    for name, labels in _labels(after).items():
        if name not in labels_before:
            continue
        earlier = labels_before[name]
        if name in private or earlier == labels:
            shared[name] = tuple(label for label in labels if label in earlier)
    return shared


def _labels(release: PublishedRelease) -> dict[str, tuple[str, ...]]:
    """Return the labels of each attribute by its name."""
    domain = release.aggregates.domain
    return dict(zip(domain.names, domain.labels, strict=True))


def _backwards(before: PrivacyStatement, after: PrivacyStatement) -> Sentence | None:
    """Return a sentence if `after` was made before `before`; otherwise None."""
    begun_before = before.begun
    begun_after = after.begun
    length = min(len(begun_before), len(begun_after))  # one of them may have the day only
    if begun_before[:length] <= begun_after[:length]:
        return None
    return report_sentence(
        "change.backwards",
        after=after.run,
        begun_after=begun_after,
        before=before.run,
        begun_before=begun_before,
    )


def _beyond_noise(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes beyond noise, the largest first."""
    beyond = [change for change in changes if change.is_beyond_noise]
    return tuple(sorted(beyond, key=lambda change: (-change.least, change.words)))


def _titles(release: PublishedRelease) -> dict[tuple[str, str], str]:
    """Return values with their titles, by column and label."""
    domain = release.aggregates.domain
    titles = {}
    for name, labels, titled in zip(
        domain.names, domain.labels, titled_labels(release), strict=True
    ):
        for label, title in zip(labels, titled, strict=True):
            titles[name, label] = title
    return titles


@dataclass(frozen=True, kw_only=True)
class _ComparisonWords:
    """Says a combination of values with the titles of columns and values."""

    names: Mapping[str, str]
    titles: Mapping[tuple[str, str], str]

    def of(self, value: _Value) -> str:
        """Return the combination in words."""
        values = []
        for column, label in value:
            title = self.titles.get((column, label), label)
            values.append(value_sentence(self.names[column], title))
        return str(combination_sentence(values))


def _changes(
    words: _ComparisonWords, before: Mapping[_Value, _Count], after: Mapping[_Value, _Count]
) -> Iterator[Change]:
    """Yield the change of each combination of values that both releases have."""
    for value, count in after.items():
        if value in before:
            yield _change(words.of(value), before[value], count)


def _change(words: str, before: _Count, after: _Count) -> Change:
    return Change(
        words=words,
        before=before.count,
        after=after.count,
        low=after.low - before.high,
        high=after.high - before.low,
    )


def _total(release: PublishedRelease, tail: float) -> _Count:
    """Return the number of records with its interval."""
    count = release.aggregates.record_count
    intervals = count_interval(
        np.array([count]), release.aggregates.record_deviation, level=1 - tail
    )
    return _Count(count=count, low=int(intervals.low[0]), high=int(intervals.high[0]))


def _chance(release: PublishedRelease) -> Chance:
    """Return what chance decides before rows are counted. Raises InputError for a resized table."""
    labels = release.aggregates.domain.labels
    chance = chance_before_counting(
        release.configuration, labels, release.statement.bounds_of_lengths
    )
    if chance.resized:
        raise InputError(
            f"{release.statement.run} is of a resized table, whose records are drawn again in each release: how far that moves "
            "a count is not known, so that no change can be told from it; compare releases without resize"
        )
    return chance


def _choices(chance: Chance) -> Iterator[Sentence]:
    """Yield what chance decides before rows are counted, a part of a sentence each."""
    if chance.rows:
        yield report_sentence("choice.counted", counted=chance.rows)
    if chance.imputed:
        yield report_sentence("choice.imputed", columns=listed(chance.imputed))
    for values in chance.cut_sets:
        yield report_sentence("choice.counted", counted=values)
    if chance.repaired:
        yield report_sentence("choice.repaired", columns=listed(chance.repaired))
    if chance.lengths:
        yield report_sentence("choice.counted", counted=counts_sentence("of.combinations"))


def _value_counts(
    release: PublishedRelease,
    chance: Chance,
    shared: _SharedLabels,
    tail: float,
) -> dict[_Value, _Count]:
    """Return the counts of all values of the shared columns, released or not.

    Where chance decides before rows are counted, the interval is of the expected count.
    """
    tail = tail / 2 if chance.is_any else tail
    if release.marginals is None:
        counts = _tuple_value_counts(release, shared, tail)
    else:
        counts = _marginal_value_counts(release.aggregates.domain, release.marginals, shared, tail)
    return _with_expected(release, chance, counts, tail)


def _with_expected(
    release: PublishedRelease,
    chance: Chance,
    counts: Mapping[_Value, _Count],
    tail: float,
) -> dict[_Value, _Count]:
    """Return the counts, with the interval of the expected count where chance decides before rows are counted."""
    places = {name: place for place, name in enumerate(release.aggregates.domain.names)}
    changed = {}
    for value, count in counts.items():
        if chance.decides([places[column] for column, _ in value]):
            low, high = expected_ends(count.low, count.high, tail / 2)
            changed[value] = replace(count, low=low, high=high)
        else:
            changed[value] = count
    return changed


def _tuple_value_counts(
    release: PublishedRelease, shared: _SharedLabels, tail: float
) -> dict[_Value, _Count]:
    """Return the counts of shared values in a release of k-tuples."""
    released = dict(_listed(release, 1, tail))
    private = release.configuration.private_columns
    noise = release.aggregates.noise[0]
    counts = {}
    for name, labels in shared.items():
        threshold = noise.private_threshold if name in private else noise.threshold
        most = censored_bound(threshold, noise.deviation, level=1 - tail)
        unreleased = _Count(count=None, low=0, high=most)
        for label in labels:
            value = ((name, label),)
            counts[value] = released.get(value, unreleased)
    return counts


def _marginal_value_counts(
    domain: Domain,
    marginals: Marginals,
    shared: _SharedLabels,
    tail: float,
) -> dict[_Value, _Count]:
    """Return the counts of shared values in a release of marginals."""
    counts = {}
    for name, labels, table in zip(domain.names, domain.labels, marginals.one_way, strict=True):
        measured = np.rint(table.counts[: len(labels)]).astype(np.int64)
        intervals = count_interval(measured, table.deviation, noise=table.noise, level=1 - tail)
        shared_labels = shared.get(name, ())
        for label, count in zip(labels, _counts(intervals.measured, intervals), strict=True):
            if label in shared_labels:
                counts[((name, label),)] = count
    return counts


def _counts(measured: Integers, intervals: Intervals) -> Iterator[_Count]:
    """Yield each count with its interval."""
    lows = intervals.low.tolist()
    highs = intervals.high.tolist()
    for count, low, high in zip(measured.tolist(), lows, highs, strict=True):
        yield _Count(count=count, low=low, high=high)


def _pair_counts(
    release: PublishedRelease,
    chance: Chance,
    shared: set[str],
    tail: float,
) -> dict[_Value, _Count]:
    """Return the counts of released pairs of values of shared columns.

    Where chance decides before rows are counted, the interval is of the expected count.
    """
    tail = tail / 2 if chance.is_any else tail
    counts = {}
    for value, count in _listed(release, 2, tail):
        columns = [column for column, _ in value]
        if shared.issuperset(columns):
            counts[value] = count
    return _with_expected(release, chance, counts, tail)


def _listed(release: PublishedRelease, length: int, tail: float) -> Iterator[tuple[_Value, _Count]]:
    """Yield the released combinations of one length with their intervals."""
    aggregates = release.aggregates
    marginals = release.marginals
    if marginals is not None:
        aggregates, _ = listed_counts(
            marginal_counts(marginals, release.configuration, length), length
        )
    if len(aggregates.levels) < length:
        return
    if marginals is not None:
        intervals_of_lengths = marginal_intervals(
            aggregates, marginals, release.configuration, level=1 - tail
        )
        intervals = intervals_of_lengths[length - 1]
    else:
        intervals = tuple_intervals(release, length, 1 - tail)
    level = aggregates.levels[length - 1]
    names = aggregates.domain.names
    labels = aggregates.domain.labels
    counts = _counts(intervals.counts_to_show(level.counts), intervals)
    for columns, codes, count in zip(
        level.columns.tolist(), level.values.tolist(), counts, strict=True
    ):
        pairs = zip(columns, codes, strict=True)
        value = tuple((names[j], labels[j][code]) for j, code in pairs)
        yield value, count
