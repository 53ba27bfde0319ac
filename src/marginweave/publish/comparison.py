"""What changed between two releases of one dataset, beyond their noise: a family of tests with one false-alarm rate.

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

from marginweave.base.errors import InputError
from marginweave.estimate.intervals import censored_bound, count_interval, expected_ends, marginal_intervals
from marginweave.estimate.marginals import listed_counts, marginal_counts
from marginweave.prepare.chance import Chance, chance_before_counting
from marginweave.publish.best import tuple_intervals
from marginweave.publish.conclusions import value_words
from marginweave.publish.reader import PublishedRelease, titled_labels
from marginweave.publish.templates import render
from marginweave.released.statement import PrivacyStatement

FALSE_ALARM = 0.05
"""Probability, at most, that a comparison names any value as changed that has not."""

_Value = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class _Count:
    """A count and the ends of its interval; None of a value that was not released."""

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
        """Whether it is no longer what it was."""
        return self.low > 0 or self.high < 0

    @property
    def least(self) -> int:
        """By how much at least, whichever way; 0 where it may be as it was."""
        return max(self.low, -self.high, 0)

    @property
    def amount(self) -> str:
        """The least and most in words."""
        if self.low >= 0:
            return f"{self.low:,} to {self.high:,} more"
        return (
            f"{-self.high:,} to {-self.low:,} fewer" if self.high <= 0 else f"{-self.low:,} fewer to {self.high:,} more"
        )

    @property
    def said(self) -> str:
        """The change in words."""
        counts = ["not released" if count is None else f"{count:,}" for count in (self.before, self.after)]
        return f"{self.words}: {self.amount} (from {counts[0]} to {counts[1]})"


@dataclass(frozen=True, kw_only=True)
class ReleaseComparison:
    """All counts that two releases have in common, those of `total`, `values` and `pairs` tested together.

    `apart` are columns that have other values in one than in the other, or are in one alone. `backwards` says so where the
    second release was made before the first; else it is empty. `drawn` has what chance decided in either before rows were
    counted.
    """

    total: Change
    values: tuple[Change, ...]
    pairs: tuple[Change, ...]
    apart: tuple[str, ...]
    backwards: str
    drawn: tuple[str, ...] = ()

    @property
    def changed(self) -> tuple[Change, ...]:
        """The single values that changed beyond noise, the largest change first."""
        return _beyond(self.values)

    @property
    def changed_pairs(self) -> tuple[Change, ...]:
        """The pairs of values, likewise."""
        return _beyond(self.pairs)

    @property
    def _explained(self) -> str:
        return "the noise and these choices" if self.drawn else "the noise"

    @property
    def totals(self) -> str:
        """Of how many records the counts are."""
        return (
            f"Counts are not scaled: the earlier release has about {self.total.before:,} records, the later about "
            f"{self.total.after:,}. Where they differ, compare shares."
        )

    @property
    def drawn_words(self) -> str:
        """What was drawn again in each release, and what that means for ranges; empty without any."""
        if not self.drawn:
            return ""
        return (
            f"Each release has drawn again what chance decides before rows are counted: {'; '.join(self.drawn)}. Ranges of "
            "such counts are of what is expected over these choices, and wider."
        )

    @property
    def verdict(self) -> str:
        """The outcome in a sentence."""
        single, pairs = len(self.changed), len(self.changed_pairs)
        if not single and not pairs:
            return (
                "Only the number of records changed."
                if self.total.is_beyond_noise
                else "No change is beyond the noise."
            )
        return (
            f"{single:,} of {len(self.values):,} values changed by more than {self._explained} can explain, and {pairs:,} of "
            f"{len(self.pairs):,} pairs of values."
        )


def compare_releases(before: PublishedRelease, after: PublishedRelease) -> ReleaseComparison:
    """What changed from one release to another of the same dataset.

    Raises:
        InputError: they are of different datasets, one release twice, or of a resized table.
    """
    datasets = [release.statement.dataset for release in (before, after)]
    if len({*datasets}) > 1:
        raise InputError(f"--against must name a release of {datasets[1]}; it is one of {datasets[0]}")
    if before.statement.release == after.statement.release:
        raise InputError("--against must name another release than RUN")
    by_chance = [_chance(release) for release in (before, after)]
    labels = [dict(zip(r.aggregates.domain.names, r.aggregates.domain.labels, strict=True)) for r in (before, after)]
    private = {*before.configuration.private_columns, *after.configuration.private_columns}
    shared = {
        name: tuple(label for label in labels[1][name] if label in labels[0][name])
        for name in labels[1]
        if name in labels[0] and (name in private or labels[0][name] == labels[1][name])
    }
    cells = sum(len(a) * len(b) for a, b in itertools.combinations(shared.values(), 2))
    single = FALSE_ALARM / 4 / (1 + sum(map(len, shared.values())))  # half of a half for each release
    pair = FALSE_ALARM / 4 / max(cells, 1)
    titles, names = _titles(after), after.configuration.titled_names

    def words(value: _Value) -> str:
        return " and ".join(value_words(names[column], titles.get((column, label), label)) for column, label in value)

    both = list(zip((before, after), by_chance, strict=True))
    totals, values = [_total(r, single) for r in (before, after)], [_single(r, c, shared, single) for r, c in both]
    pairs = [_paired(r, c, {*shared}, pair) for r, c in both]
    return ReleaseComparison(
        total=_change("all records", *totals),
        values=tuple(_change(words(value), values[0][value], found) for value, found in values[1].items()),
        pairs=tuple(_change(words(v), pairs[0][v], found) for v, found in pairs[1].items() if v in pairs[0]),
        apart=tuple(names.get(name, name) for name in sorted({*labels[0], *labels[1]} - {*shared})),
        backwards=_backwards(before.statement, after.statement),
        drawn=tuple(dict.fromkeys(words for chance in by_chance for words in chance.words)),
    )


def render_comparison(found: ReleaseComparison, before: PublishedRelease, after: PublishedRelease) -> bytes:
    """The page on a comparison."""
    rate = f"{100 * FALSE_ALARM:g}"
    return render("comparison.html.j2", found=found, before=before, after=after, rate=rate).encode()


def _backwards(old: PrivacyStatement, new: PrivacyStatement) -> str:
    times = [statement.begun for statement in (old, new)]
    length = min(map(len, times))  # of one of them the day alone may be known
    if times[0][:length] <= times[1][:length]:
        return ""
    return (
        f"{new.run} ({times[1]}) was made before {old.run} ({times[0]}): "
        "over time, each change below went the other way."
    )


def _beyond(changes: Sequence[Change]) -> tuple[Change, ...]:
    found = [change for change in changes if change.is_beyond_noise]
    return tuple(sorted(found, key=lambda change: (-change.least, change.words)))


def _titles(release: PublishedRelease) -> dict[tuple[str, str], str]:
    """Values with their titles, by column and label."""
    domain = release.aggregates.domain
    columns = zip(domain.names, domain.labels, titled_labels(release), strict=True)
    return {(name, v): shown for name, labels, titled in columns for v, shown in zip(labels, titled, strict=True)}


def _change(words: str, before: _Count, after: _Count) -> Change:
    return Change(
        words=words, before=before.count, after=after.count, low=after.low - before.high, high=after.high - before.low
    )


def _total(release: PublishedRelease, tail: float) -> _Count:
    aggregates = release.aggregates
    inside = count_interval(np.array([aggregates.record_count]), aggregates.record_deviation, level=1 - tail)
    return _Count(count=aggregates.record_count, low=int(inside.low[0]), high=int(inside.high[0]))


def _chance(release: PublishedRelease) -> Chance:
    labels, bounds = release.aggregates.domain.labels, release.statement.bounds_of_lengths
    found = chance_before_counting(release.configuration, labels, bounds)
    if found.resized:
        raise InputError(
            f"{release.statement.run} is of a resized table, whose records are drawn again in each release: how far that moves "
            "a count is not known, so that no change can be told from it; compare releases without resize"
        )
    return found


def _single(
    release: PublishedRelease, chance: Chance, shared: Mapping[str, tuple[str, ...]], tail: float
) -> dict[_Value, _Count]:
    """Every value of the shared columns, released or not."""
    tail = tail / 2 if chance.is_any else tail
    places = {name: place for place, name in enumerate(release.aggregates.domain.names)}
    found = _single_drawn(release, shared, tail)
    drawn = {value: count for value, count in found.items() if chance.decides([places[value[0][0]]])}
    return found | {value: _expected(count, tail) for value, count in drawn.items()}


def _expected(count: _Count, tail: float) -> _Count:
    """The same with the ends of what it is expected to be over what chance decides before rows are counted."""
    low, high = expected_ends(count.low, count.high, tail / 2)
    return replace(count, low=low, high=high)


def _single_drawn(
    release: PublishedRelease, shared: Mapping[str, tuple[str, ...]], tail: float
) -> dict[_Value, _Count]:
    """The same, of what was counted."""
    found = dict[_Value, _Count]()
    if release.marginals is None:
        known = dict(_listed(release, 1, tail))
        noise, private = release.aggregates.noise[0], release.configuration.private_columns
        for name, labels in shared.items():
            least = noise.private_threshold if name in private else noise.threshold
            most = censored_bound(least, noise.deviation, level=1 - tail)
            unseen = _Count(count=None, low=0, high=most)
            found |= {((name, label),): known.get(((name, label),), unseen) for label in labels}
        return found
    domain, marginals = release.aggregates.domain, release.marginals
    for name, labels, table in zip(domain.names, domain.labels, marginals.one_way, strict=True):
        counts = np.rint(table.counts[: len(labels)]).astype(np.int64)
        inside = count_interval(counts, table.deviation, noise=table.noise, level=1 - tail)
        ends = zip(labels, inside.measured.tolist(), inside.low.tolist(), inside.high.tolist(), strict=True)
        kept = shared.get(name, ())
        found |= {((name, v),): _Count(count=n, low=low, high=high) for v, n, low, high in ends if v in kept}
    return found


def _paired(release: PublishedRelease, chance: Chance, shared: set[str], tail: float) -> dict[_Value, _Count]:
    """The pairs of values of shared columns that are released."""
    tail = tail / 2 if chance.is_any else tail
    places = {name: place for place, name in enumerate(release.aggregates.domain.names)}
    found = dict[_Value, _Count]()
    for value, count in _listed(release, 2, tail):
        columns = [column for column, _ in value]
        if shared.issuperset(columns):
            drawn = chance.decides([places[column] for column in columns])
            found[value] = _expected(count, tail) if drawn else count
    return found


def _listed(release: PublishedRelease, length: int, tail: float) -> Iterator[tuple[_Value, _Count]]:
    """Released combinations of one length with their intervals."""
    aggregates, configuration, marginals = release.aggregates, release.configuration, release.marginals
    if marginals is not None:
        aggregates = listed_counts(marginal_counts(marginals, configuration, length), length)[0]
    if len(aggregates.levels) < length:
        return
    level = aggregates.levels[length - 1]
    if marginals is not None:
        inside = marginal_intervals(aggregates, marginals, configuration, level=1 - tail)[length - 1]
    else:
        inside = tuple_intervals(release, length, 1 - tail)
    shown, names, labels = inside.counts_to_show(level.counts), aggregates.domain.names, aggregates.domain.labels
    ends = zip(shown.tolist(), inside.low.tolist(), inside.high.tolist(), strict=True)
    for columns, values, (count, low, high) in zip(level.columns.tolist(), level.values.tolist(), ends, strict=True):
        value = tuple((names[j], labels[j][v]) for j, v in zip(columns, values, strict=True))
        yield value, _Count(count=count, low=low, high=high)
