"""Finds, from released facts only, what was bought, how sure the counts are, and where they are weak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtr

from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.estimate.intervals import LEVEL
from marginweave.evaluate.bounds import bounding_biases
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.plan import Plan
from marginweave.mechanisms.percentile import rank_error
from marginweave.observations.combinations import Aggregates
from marginweave.released.statement import Confidence, Mechanism
from marginweave.texts.sentences import Sentence, report_sentence


def unit_assumption(configuration: Configuration) -> Sentence:
    """Return the assumption under which the guarantee is about people."""
    subject = configuration.privacy.subject
    if subject is None:
        return report_sentence("assumption.row")
    key = "assumption.subject-own" if subject.missing_subject == "own" else "assumption.subject"
    return report_sentence(key, column=subject.column)


def linked_assumption(configuration: Configuration) -> Iterator[Sentence]:
    """Yield the assumption that linked tables know people by the same ids; nothing without such tables."""
    subject = configuration.privacy.subject
    if configuration.tables and subject is not None:
        tables = listed(sorted(configuration.tables))
        yield report_sentence("assumption.linked", tables=tables, column=subject.column)


def known_sentences(configuration: Configuration, *, from_these_rows: bool) -> Iterator[Sentence]:
    """Yield sentences on the known tables.

    With `from_these_rows` they are on tables made from the source's rows, and say what no guarantee covers. Without, they are
    on other tables, and say that these were not made from the rows: an assumption.
    """
    for known_total in configuration.totals:
        if from_these_rows != (known_total.table.origin == "these-rows"):
            continue
        if not from_these_rows:
            key = "assumption.known"
        else:
            key = "not-covered.invariant" if known_total.exact else "not-covered.known"
        yield report_sentence(key, table=known_total.table.words)


def stated_confidence(
    configuration: Configuration, plan: Plan, aggregates: Aggregates
) -> Confidence:
    """Return for privacy.json the level, the meaning of intervals, and what bounding may have taken from each count.

    DP: post-processing.
    """
    meaning = report_sentence(
        "interval.selected" if configuration.marginals is None else "interval.measured"
    )
    epsilons = {bound.length: bound.epsilon for bound in plan.of(ContributionBound)}
    return Confidence(
        level=LEVEL,
        intervals=(str(report_sentence("interval.about")), str(meaning)),
        bounding=bounding_biases(configuration, epsilons, aggregates),
    )


def reader_warnings(
    configuration: Configuration,
    aggregates: Aggregates,
    mechanisms: Sequence[Mechanism],
    not_measured: Sequence[Sequence[str]],
) -> tuple[Sentence, ...]:
    """Return warnings, a sentence each, from public and released facts only; the last two arguments are from privacy.json.

    DP: post-processing.
    """
    return (
        *_weak_guarantee(configuration, aggregates.record_count),
        *_weak_percentiles(configuration, aggregates.record_count, mechanisms),
        *_weak_counts(configuration, aggregates),
        *_raised_thresholds(configuration, aggregates),
        *_not_measured(not_measured),
    )


def invented(candidates: int, released: int, sigma: float, threshold: int) -> float:
    """Return about how many released combinations no record has, at most `released`.

    An empty candidate is released with probability q = P(noise >= threshold). Were every candidate that is not released
    empty, they would be (1 - q) E of E empty ones; so E is about (candidates - released) / (1 - q), and q E of them are
    among the released. DP: post-processing.
    """
    q = float(ndtr(-(threshold - 0.5) / sigma)) if sigma > 0 else 0.0
    unreleased = max(0, candidates - released)
    return min(float(released), q * unreleased / (1 - q))


def _weak_guarantee(configuration: Configuration, records: int) -> Iterator[Sentence]:
    """Yield warnings of a large epsilon or delta, and of an unprotected number of records."""
    epsilon = configuration.privacy.epsilon
    delta = configuration.privacy.delta
    if epsilon > 5:
        yield report_sentence("warning.epsilon", epsilon=epsilon)
    if records > 1 and delta * records >= 1:
        yield report_sentence("warning.delta-of-one", delta=delta, records=records)
    elif records > 1 and delta > records**-1.5:
        yield report_sentence("warning.delta", delta=delta, records=records, usual=records**-1.5)
    if configuration.privacy.neighbors == "replace-one":
        yield report_sentence(
            "warning.records" if configuration.resize is None else "warning.records-resized"
        )


def _weak_percentiles(
    configuration: Configuration, count: int, mechanisms: Sequence[Mechanism]
) -> Iterator[Sentence]:
    """Yield a warning of contribution bounds whose rank may be off by more records than lie above it."""
    percentile = configuration.percentile if configuration.marginals is None else None
    if percentile is None:
        return
    above = (1 - percentile / 100) * count
    lengths = []
    for row in mechanisms:
        if not row.draw.startswith("percentile-"):
            continue
        cap = configuration.contribution_cap(row.length)
        if rank_error(percentile, configuration.stability, row.epsilon or 0.0, cap) > above:
            lengths.append(str(row.length))
    if lengths:
        yield report_sentence(
            "warning.percentile",
            percentile=percentile,
            lengths=", ".join(lengths),
            above=max(0, round(above)),
        )


def _weak_counts(configuration: Configuration, aggregates: Aggregates) -> Iterator[Sentence]:
    """Yield a warning for each length of which half of the released counts may be noise.

    For single values with a private domain, it is on the public domains only.
    """
    levels = [level.positive(level.counts) for level in aggregates.levels]
    if not any(map(len, levels)):
        yield report_sentence("warning.nothing-released")
    for level, noise in zip(levels, aggregates.noise, strict=True):
        released = len(level)
        candidates = noise.candidates
        counts_key = "counts.of-values" if level.length > 1 else "counts.of-value"
        if candidates is None and level.length == 1:
            public = np.array([not attribute.private for attribute in configuration.attributes])
            released = int(public[level.columns[:, 0]].sum())
            candidates = sum(
                len(attribute.labels)
                for attribute in configuration.attributes
                if not attribute.private
            )
            counts_key = "counts.of-public-value"
        if candidates is None or not released:
            continue
        noise_only = invented(candidates, released, noise.deviation, noise.threshold)
        if 2 * noise_only < released:
            continue
        yield report_sentence(
            "warning.noise-only" if noise.exact else "warning.noise-only-at-most",
            noise_only=round(noise_only),
            counts=report_sentence(counts_key, released=released, length=level.length),
        )


def _raised_thresholds(configuration: Configuration, aggregates: Aggregates) -> Iterator[Sentence]:
    """Yield a warning for each length whose threshold was raised.

    More combinations might have been released than are kept, or more drawn than there is room for to choose from.
    """
    if configuration.marginals is not None:
        return
    most = configuration.tuples.max_combinations
    for noise in aggregates.noise:
        if noise.raised_from is not None:
            yield report_sentence(
                "warning.raised",
                most=most,
                length=noise.length,
                before=noise.raised_from,
                threshold=noise.threshold,
            )


def _not_measured(cliques: Sequence[Sequence[str]]) -> Iterator[Sentence]:
    """Yield a warning of marginals that the configuration asks for and that the discovered values made too large."""
    if cliques:
        marginals = ", ".join(" x ".join(attributes) for attributes in cliques)
        yield report_sentence("warning.not-measured", marginals=marginals)
