"""Finds what a reader may and may not conclude from a release, in its numbers, and how to cite the release."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from marginweave.configuration.release import Configuration
from marginweave.publish.best import Distribution, best_counts, best_records
from marginweave.publish.reader import PublishedRelease, titled_labels
from marginweave.released.statement import PrivacyStatement
from marginweave.released.verdict import Verdict
from marginweave.texts.sentences import Sentence, report_sentence


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    """Sentences on what may be said and on what may not."""

    may: tuple[Sentence, ...]
    may_not: tuple[Sentence, ...]


@dataclass(frozen=True, kw_only=True)
class _ExampleCount:
    """A released count of one value or combination, with its name and interval."""

    value: Sentence
    column: str
    count: int
    low: int
    high: int

    @property
    def sentence(self) -> Sentence:
        """Value with its count and range."""
        return report_sentence(
            "value.counted", value=self.value, count=self.count, low=self.low, high=self.high
        )

    def is_above(self, example: _ExampleCount) -> bool:
        """Return whether the whole range of this count is above that of `example`."""
        return self.low > example.high


def conclusions(
    published: PublishedRelease, columns: Sequence[Distribution], judged: Verdict
) -> Conclusions:
    """Return what follows from a release, with examples that are its own counts. DP: post-processing.

    Args:
        published: the release.
        columns: its columns, as the report shows them.
        judged: the verdict on it.
    """
    examples = sorted(_examples(columns), key=lambda example: (-example.count, str(example.value)))
    may = tuple(_may(examples, published))
    may_not = tuple(_may_not(examples, published, judged))
    if judged.publication == "not for publication":
        may = (report_sentence("may.look-into"),)
        may_not = (report_sentence("may-not.publish"), *may_not)
    return Conclusions(may=may, may_not=may_not)


def _examples(columns: Sequence[Distribution]) -> Iterator[_ExampleCount]:
    """Yield every value that has a released count."""
    for column in columns:
        for value in column.values:
            if value.reported is None or value.low is None or value.high is None:
                continue
            yield _ExampleCount(
                value=value_sentence(column.name, value.label),
                column=column.name,
                count=value.reported,
                low=value.low,
                high=value.high,
            )


def value_sentence(column: str, label: str) -> Sentence:
    """Return a value as sentences name it; a bin is named by its first and last number."""
    bin_ = re.fullmatch(r"\[(.+), (.+)([)\]])", label)
    if not bin_:
        return report_sentence(
            "value.value" if label else "value.empty-label", column=column, label=label
        )
    low, high, bracket = bin_.groups()
    key = "value.open-bin" if bracket == ")" else "value.closed-bin"
    return report_sentence(key, column=column, low=low, high=high)


def combination_sentence(values: Iterable[Sentence]) -> Sentence:
    """Return the name of a combination of values of at least one column."""
    return _joined("value.and", values)


def _joined(key: str, sentences: Iterable[Sentence]) -> Sentence:
    """Return at least one sentence, or several, of which the text `key` puts one after the other."""
    return reduce(lambda before, after: report_sentence(key, before=before, after=after), sentences)


def _pairs(examples: Sequence[_ExampleCount]) -> Iterator[tuple[_ExampleCount, _ExampleCount]]:
    """Yield all pairs of values of one column, the more frequent value first."""
    for frequent, rarer in itertools.combinations(examples, 2):
        if frequent.column == rarer.column:
            yield frequent, rarer


def _clear_pair(examples: Sequence[_ExampleCount]) -> tuple[_ExampleCount, _ExampleCount] | None:
    """Return the first pair of values whose ranges do not meet, or None."""
    for frequent, rarer in _pairs(examples):
        if frequent.is_above(rarer):
            return frequent, rarer
    return None


def _unclear_pair(examples: Sequence[_ExampleCount]) -> tuple[_ExampleCount, _ExampleCount] | None:
    """Return the first pair of values whose ranges overlap, or None."""
    for frequent, rarer in _pairs(examples):
        if not frequent.is_above(rarer) and rarer.count > 0 and frequent.value != rarer.value:
            return frequent, rarer
    return None


def _may(examples: Sequence[_ExampleCount], published: PublishedRelease) -> Iterator[Sentence]:
    """Yield what a reader may do with the release."""
    records = best_records(published).estimate or 0
    level = 100 * published.statement.confidence.level
    certain = [example for example in examples if example.low > 0]
    if certain and records > 0:
        best = min(certain, key=lambda example: (example.high - example.low) / example.count)
        counted = published.configuration.counted_among({best.column})
        yield report_sentence(
            "may.count",
            count=best.count,
            records=records,
            percent=100 * best.count / records,
            value=best.value,
            counted=report_sentence(
                "may.true-count-of" if counted else "may.true-count", counted=counted or ""
            ),
            low=best.low,
            high=best.high,
            level=level,
        )
    pair = _clear_pair(examples)
    if pair is not None:
        frequent, rarer = pair
        yield report_sentence("may.compare", frequent=frequent.sentence, rarer=rarer.sentence)
    yield report_sentence("may.try-out")


def _may_not(
    examples: Sequence[_ExampleCount], published: PublishedRelease, judged: Verdict
) -> Iterator[Sentence]:
    """Yield what a reader may not do with the release."""
    pair = _unclear_pair(examples)
    if pair is not None:
        frequent, rarer = pair
        yield report_sentence("may-not.rank", frequent=frequent.sentence, rarer=rarer.sentence)
    doubtful = _perhaps_nobody(published)
    if doubtful is not None:
        yield report_sentence("may-not.small-number", value=doubtful.sentence)
    groups = []
    for row in judged.lengths:
        if row.least_group and row.length <= 2:
            key = "may-not.group-by-one" if row.length == 1 else "may-not.group"
            groups.append(report_sentence(key, records=row.least_group, length=row.length))
    if groups:
        yield report_sentence("may-not.small-groups", groups=_joined("may-not.or", groups))
    yield report_sentence("may-not.person")


def _perhaps_nobody(published: PublishedRelease) -> _ExampleCount | None:
    """Return the largest released count of the fewest columns whose interval begins at 0, or None."""
    labels = titled_labels(published)
    names = published.aggregates.domain.names
    for level, intervals in best_counts(published):
        counts = intervals.measured
        may_be_zero = (intervals.low == 0) & (counts > 0) & (counts <= intervals.high)
        places = np.flatnonzero(may_be_zero)
        if not len(places):
            continue
        i = int(places[np.argmax(counts[places])])
        values = []
        for j, code in zip(level.columns[i].tolist(), level.values[i].tolist(), strict=True):
            values.append(value_sentence(names[j], labels[j][code]))
        return _ExampleCount(
            value=combination_sentence(values),
            column="",
            count=int(counts[i]),
            low=0,
            high=int(intervals.high[i]),
        )
    return None


def citation(configuration: Configuration, statement: PrivacyStatement) -> Sentence:
    """Return the citation of a release: publisher, year, title, guarantee and identifier."""
    publisher = configuration.publish.publisher
    return report_sentence(
        "citation.publisher" if publisher else "citation.no-publisher",
        publisher=publisher or "",
        year=statement.begun[:4],
        title=configuration.label or statement.dataset,
        run=statement.run,
        epsilon=statement.guarantee.epsilon,
        delta=statement.guarantee.delta,
        beside=f", beside {configuration.earlier_runs}" if configuration.earlier else "",
        release=statement.release,
    )
