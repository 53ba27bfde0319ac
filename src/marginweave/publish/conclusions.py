"""What a reader may conclude from a release and what not, said with its own numbers, and how to cite it."""

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
class _Known:
    """A released count of one value, in words and with its interval."""

    words: str
    column: str
    count: int
    low: int
    high: int

    @property
    def said(self) -> str:
        return f"{self.words} ({self.count:,}, range {self.low:,} to {self.high:,})"


def conclusions(published: PublishedRelease, columns: Sequence[Distribution], judged: Verdict) -> Conclusions:
    """What follows from a release, with examples that are its own counts. DP: post-processing.

    Args:
        published: the release.
        columns: its columns, as the report shows them.
        judged: the verdict on it.
    """
    known = sorted(_known(columns), key=lambda one: (-one.count, one.words))
    may, may_not = tuple(_may(known, published)), tuple(_may_not(known, published, judged))
    if judged.publication == "not for publication":
        may = (
            "Look into the counts and the records to find out what is wrong: the verdict says what they are not for.",
        )
        may_not = ("Publish this release, or quote a number from it: its verdict is “not for publication”.", *may_not)
    return Conclusions(may=may, may_not=may_not)


def _known(columns: Sequence[Distribution]) -> Iterator[_Known]:
    for column in columns:
        for value in column.values:
            if value.reported is not None and value.low is not None and value.high is not None:
                words = value_words(column.name, value.label)
                yield _Known(words=words, column=column.name, count=value.reported, low=value.low, high=value.high)


def value_words(column: str, label: str) -> str:
    """A value as one says it: bins from one number to another."""
    if bin_ := re.fullmatch(r"\[(.+), (.+)([)\]])", label):
        return f"{column} from {bin_[1]} to {'below ' if bin_[3] == ')' else ''}{bin_[2]}"
    return f"{column} {label or '(empty)'}"


def _pairs(known: Sequence[_Known]) -> Iterator[tuple[_Known, _Known]]:
    """Values of one column, the more frequent first."""
    return ((a, b) for a, b in itertools.combinations(known, 2) if a.column == b.column)


def _may(known: Sequence[_Known], published: PublishedRelease) -> Iterator[str]:
    of, sure = best_records(published).estimate or 0, 100 * published.statement.confidence.level
    best = min((one for one in known if one.low > 0), key=lambda one: (one.high - one.low) / one.count, default=None)
    if best is not None and of > 0:
        counted = published.configuration.counted_among({best.column})
        whose = f"the true count of {counted}" if counted else "the true count"
        yield (
            f"Give a count with its range: about {best.count:,} of about {of:,} counted records ({100 * best.count / of:.0f} "
            f"%) have {best.words}, and {whose} is between {best.low:,} and {best.high:,} in {sure:.0f} of 100 such "
            "statements."
        )
    if apart := next(((a, b) for a, b in _pairs(known) if a.low > b.high), None):
        yield f"Compare what is further apart than noise reaches: {apart[0].said} is more frequent than {apart[1].said}."
    yield (
        "Try out an analysis on the synthetic records, and take the numbers that you quote from the explorer (explore.html), "
        "which gives them with their ranges."
    )


def _may_not(known: Sequence[_Known], published: PublishedRelease, judged: Verdict) -> Iterator[str]:
    near = next(((a, b) for a, b in _pairs(known) if a.low <= b.high and b.count > 0 and a.words != b.words), None)
    if near is not None:
        yield f"Rank what overlaps: whether {near[0].said} or {near[1].said} is more frequent, this release does not tell."
    if (least := _perhaps_nobody(published)) is not None:
        yield f"Take a small number for a fact: {least.said} may be nobody at all."
    groups = [row for row in judged.lengths if row.least_group and row.length <= 2]
    if groups:
        parts = [f"{row.least_group:,} records by {row.length} column{'s' * (row.length > 1)}" for row in groups]
        limits = f"below {', or '.join(parts)}, noise is above a quarter of a count in the columns with the most noise"
        yield f"Quote small groups: {limits}. The explorer marks each count that is too small to quote."
    yield (
        "Look for a person: no synthetic record is anybody, one that equals a real one does so by chance, and nothing here "
        "says whether somebody is in the data."
    )


def _perhaps_nobody(published: PublishedRelease) -> _Known | None:
    """The largest released count of the fewest columns whose interval begins at 0."""
    labels = titled_labels(published)
    for level, inside in best_counts(published):
        shown = inside.measured
        places = np.flatnonzero((inside.low == 0) & (shown > 0) & (shown <= inside.high))
        if len(places):
            i = int(places[np.argmax(shown[places])])
            pairs = zip(level.columns[i].tolist(), level.values[i].tolist(), strict=True)
            words = " and ".join(value_words(published.aggregates.domain.names[j], labels[j][v]) for j, v in pairs)
            return _Known(words=words, column="", count=int(shown[i]), low=0, high=int(inside.high[i]))
    return None


def citation(configuration: Configuration, statement: PrivacyStatement) -> str:
    """How to cite a release."""
    year = statement.begun[:4]
    who, title = configuration.publish.publisher, configuration.label or statement.dataset
    promise = f"epsilon {statement.guarantee.epsilon:g}, delta {statement.guarantee.delta:g}"
    what = f"Differentially private release {statement.run} ({promise}). urn:uuid:{statement.release}"
    return f"{who} ({year}). {title}. {what}" if who else f"{title} ({year}). {what}"
