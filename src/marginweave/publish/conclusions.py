"""States what a reader may and may not conclude from a release, in its own numbers, and how to cite the release."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.configuration.release import Configuration
from marginweave.publish.best import Distribution, best_counts, best_records
from marginweave.publish.reader import PublishedRelease, titled_labels
from marginweave.released.statement import PrivacyStatement
from marginweave.released.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    """Sentences on what may be said and on what may not."""

    may: tuple[str, ...]
    may_not: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _ExampleCount:
    """A released count of one value or combination, in words and with its interval."""

    words: str
    column: str
    count: int
    low: int
    high: int

    @property
    def sentence(self) -> str:
        """Value with its count and range."""
        return f"{self.words} ({self.count:,}, range {self.low:,} to {self.high:,})"

    def is_above(self, example: _ExampleCount) -> bool:
        """Return whether the whole range of this count is above that of `example`."""
        return self.low > example.high


def conclusions(published: PublishedRelease, columns: Sequence[Distribution], judged: Verdict) -> Conclusions:
    """Return what follows from a release, with examples that are its own counts. DP: post-processing.

    Args:
        published: the release.
        columns: its columns, as the report shows them.
        judged: the verdict on it.
    """
    examples = sorted(_examples(columns), key=lambda example: (-example.count, example.words))
    may = tuple(_may(examples, published))
    may_not = tuple(_may_not(examples, published, judged))
    if judged.publication == "not for publication":
        may = (
            "Look into the counts and the records to find out what is wrong: the verdict says what they are not for.",
        )
        may_not = ("Publish this release, or quote a number from it: its verdict is “not for publication”.", *may_not)
    return Conclusions(may=may, may_not=may_not)


def _examples(columns: Sequence[Distribution]) -> Iterator[_ExampleCount]:
    """Yield every value that has a released count."""
    for column in columns:
        for value in column.values:
            if value.reported is None or value.low is None or value.high is None:
                continue
            yield _ExampleCount(
                words=value_words(column.name, value.label),
                column=column.name,
                count=value.reported,
                low=value.low,
                high=value.high,
            )


def value_words(column: str, label: str) -> str:
    """Return a value in words; a bin is named by its first and last number."""
    bin_ = re.fullmatch(r"\[(.+), (.+)([)\]])", label)
    if not bin_:
        return f"{column} {label or '(empty)'}"
    low, high, bracket = bin_.groups()
    below = "below " if bracket == ")" else ""
    return f"{column} from {low} to {below}{high}"


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
        if not frequent.is_above(rarer) and rarer.count > 0 and frequent.words != rarer.words:
            return frequent, rarer
    return None


def _may(examples: Sequence[_ExampleCount], published: PublishedRelease) -> Iterator[str]:
    """Yield what a reader may do with the release."""
    records = best_records(published).estimate or 0
    level = 100 * published.statement.confidence.level
    certain = [example for example in examples if example.low > 0]
    if certain and records > 0:
        best = min(certain, key=lambda example: (example.high - example.low) / example.count)
        counted = published.configuration.counted_among({best.column})
        whose = f"the true count of {counted}" if counted else "the true count"
        yield (
            f"Give a count with its range: about {best.count:,} of about {records:,} counted records "
            f"({100 * best.count / records:.0f} %) have {best.words}, and {whose} is between {best.low:,} and "
            f"{best.high:,} in {level:.0f} of 100 such statements."
        )
    pair = _clear_pair(examples)
    if pair is not None:
        frequent, rarer = pair
        yield (
            "Compare what is further apart than noise reaches: "
            f"{frequent.sentence} is more frequent than {rarer.sentence}."
        )
    yield (
        "Try out an analysis on the synthetic records, and take the numbers that you quote from the explorer (explore.html), "
        "which gives them with their ranges."
    )


def _may_not(examples: Sequence[_ExampleCount], published: PublishedRelease, judged: Verdict) -> Iterator[str]:
    """Yield what a reader may not do with the release."""
    pair = _unclear_pair(examples)
    if pair is not None:
        frequent, rarer = pair
        yield (
            f"Rank what overlaps: whether {frequent.sentence} or {rarer.sentence} is more frequent, "
            "this release does not tell."
        )
    doubtful = _perhaps_nobody(published)
    if doubtful is not None:
        yield f"Take a small number for a fact: {doubtful.sentence} may be nobody at all."
    groups = [row for row in judged.lengths if row.least_group and row.length <= 2]
    if groups:
        parts = [f"{row.least_group:,} records by {row.length} column{'s' * (row.length > 1)}" for row in groups]
        limits = f"below {', or '.join(parts)}, noise is above a quarter of a count in the columns with the most noise"
        yield f"Quote small groups: {limits}. The explorer marks each count that is too small to quote."
    yield (
        "Look for a person: no synthetic record is anybody, one that equals a real one does so by chance, and nothing here "
        "says whether somebody is in the data."
    )


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
        words = []
        for j, code in zip(level.columns[i].tolist(), level.values[i].tolist(), strict=True):
            words.append(value_words(names[j], labels[j][code]))
        return _ExampleCount(
            words=" and ".join(words),
            column="",
            count=int(counts[i]),
            low=0,
            high=int(intervals.high[i]),
        )
    return None


def citation(configuration: Configuration, statement: PrivacyStatement) -> str:
    """Return the citation of a release: publisher, year, title, guarantee and identifier."""
    publisher = configuration.publish.publisher
    title = configuration.label or statement.dataset
    year = statement.begun[:4]
    promise = f"epsilon {statement.guarantee.epsilon:g}, delta {statement.guarantee.delta:g}"
    release = f"Differentially private release {statement.run} ({promise}). urn:uuid:{statement.release}"
    if publisher:
        return f"{publisher} ({year}). {title}. {release}"
    return f"{title} ({year}). {release}"
