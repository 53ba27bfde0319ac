"""Says in plain words, from released facts only, what was bought, how sure the counts are, and where they are weak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtr

from marginweave.configuration.release import Configuration
from marginweave.estimate.intervals import LEVEL
from marginweave.evaluate.bounds import bounding_biases
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.plan import Plan
from marginweave.mechanisms.percentile import rank_error
from marginweave.observations.combinations import Aggregates
from marginweave.released.statement import Confidence, Mechanism

_ABOUT = (
    "The interval from low to high covers the true count (after preparation, with bounded contributions) at this level: each "
    "interval by itself, not all of them together. It belongs to the count as it was measured; the adjusted count, which "
    "agrees with all others, may lie outside, and aggregates.csv says so in `note`."
)
_SELECTED = (
    "Every combination was published because its noisy count reached a threshold. Its low end is adjusted for that: it "
    "inverts the normal distribution truncated at the threshold. The high end is that of the noise alone. The interval has at "
    "least the level among the published counts."
)
_MEASURED = (
    "No cell of a marginal was selected: its interval is that of its noise, and has the level among all measured "
    "cells. A count that noise made negative has the interval of 0, which covers no less, as no true count is negative. A "
    "value measured together with others has at most the count of all of them."
)


def unit_assumption(configuration: Configuration) -> str:
    """Return the assumption under which the guarantee is about people."""
    subject = configuration.privacy.subject
    if subject is None:
        return "One row is one person, as `unit` says; a person with several rows is protected less."
    separate = "; a row without one is a separate person" if subject.missing_subject == "own" else ""
    return (
        f"All rows of one person have one value of column {subject.column!r}{separate}; "
        "a person with several values is protected less."
    )


def known_words(configuration: Configuration, *, from_these_rows: bool) -> list[str]:
    """Return sentences on the known tables.

    With `from_these_rows` they are on tables made from the source's rows, and say what no guarantee covers. Without, they are
    on other tables, and say that these were not made from the rows: an assumption.
    """
    words = []
    for known_total in configuration.totals:
        if from_these_rows != (known_total.table.origin == "these-rows"):
            continue
        table = f"The counts of {known_total.table.words}"
        if not from_these_rows:
            words.append(f"{table} were not made from these rows.")
        elif known_total.exact:
            words.append(
                f"{table} were made from these rows, and the synthetic records keep them exactly: an invariant. Together with "
                "all rows but one they tell that one, whatever epsilon is."
            )
        else:
            words.append(f"{table} were made from these rows; this guarantee does not cover what they tell.")
    return words


def stated_confidence(configuration: Configuration, plan: Plan, aggregates: Aggregates) -> Confidence:
    """Return for privacy.json the level, the meaning of intervals, and what bounding may have taken from each count.

    DP: post-processing.
    """
    epsilons = {bound.length: bound.epsilon for bound in plan.of(ContributionBound)}
    return Confidence(
        level=LEVEL,
        intervals=(_ABOUT, _SELECTED if configuration.marginals is None else _MEASURED),
        bounding=bounding_biases(configuration, epsilons, aggregates),
    )


def reader_warnings(
    configuration: Configuration,
    aggregates: Aggregates,
    mechanisms: Sequence[Mechanism],
    not_measured: Sequence[Sequence[str]],
) -> tuple[str, ...]:
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


def _weak_guarantee(configuration: Configuration, count: int) -> Iterator[str]:
    """Yield warnings of a large epsilon or delta, and of an unprotected number of records."""
    epsilon = configuration.privacy.epsilon
    delta = configuration.privacy.delta
    if epsilon > 5:
        yield f"epsilon ({epsilon:g}) is above 5: the formal protection of a person is weak."
    if count > 1 and delta * count >= 1:
        yield (
            f"delta ({delta:g}) is at least 1/n for about {count:,} records: a release that shows one record unchanged would "
            "meet this definition."
        )
    elif count > 1 and delta > count**-1.5:
        yield f"delta ({delta:g}) is large for about {count:,} records; 1/n^1.5 would be {count**-1.5:.1e}."
    if configuration.privacy.neighbors == "replace-one":
        noise = "" if configuration.resize is not None else "; it carries noise all the same"
        yield f"Under replace-one the number of records itself is not protected{noise}."


def _weak_percentiles(configuration: Configuration, count: int, mechanisms: Sequence[Mechanism]) -> Iterator[str]:
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
        yield (
            f"The automatic cap on contributions (percentile {percentile:g}, combinations of {', '.join(lengths)}) is "
            f"unreliable for a table of this size: about {max(0, round(above)):,} records lie above it, and its rank may be "
            "off by more than that. Set it by hand."
        )


def _weak_counts(configuration: Configuration, aggregates: Aggregates) -> Iterator[str]:
    """Yield a warning for each length of which half of the released counts may be noise.

    For single values with a private domain, it is on the public domains only.
    """
    levels = [level.positive(level.counts) for level in aggregates.levels]
    if not any(map(len, levels)):
        yield "No combination was released: the noise is larger than the table."
    for level, noise in zip(levels, aggregates.noise, strict=True):
        released = len(level)
        candidates = noise.candidates
        whose = ""
        if candidates is None and level.length == 1:
            public = np.array([not attribute.private for attribute in configuration.attributes])
            released = int(public[level.columns[:, 0]].sum())
            candidates = sum(len(attribute.labels) for attribute in configuration.attributes if not attribute.private)
            whose = " with public domains"
        if candidates is None or not released:
            continue
        noise_only = invented(candidates, released, noise.deviation, noise.threshold)
        if 2 * noise_only < released:
            continue
        counts = f"{released:,} published counts of {level.length} value{'s' * (level.length > 1)}{whose}"
        about = "About" if noise.exact else "Up to"
        half = "half of them or more" if noise.exact else "perhaps half of them or more"
        yield f"{about} {round(noise_only):,} of the {counts} may be noise only: {half}. Do not use them one by one."


def _raised_thresholds(configuration: Configuration, aggregates: Aggregates) -> Iterator[str]:
    """Yield a warning for each length whose threshold was raised.

    More combinations might have been released than are kept, or more drawn than there is room for to choose from.
    """
    if configuration.marginals is not None:
        return
    most = configuration.tuples.max_combinations
    for noise in aggregates.noise:
        if noise.raised_from is not None:
            yield (
                f"More than {most:,} combinations of {noise.length} might have reached the threshold "
                f"{noise.raised_from:,}, or too many drawn to choose them from; it was raised to {noise.threshold:,}."
            )


def _not_measured(cliques: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a warning of marginals that the configuration asks for and that the discovered values made too large."""
    if cliques:
        sets = ", ".join(" x ".join(attributes) for attributes in cliques)
        yield f"Not measured, because they have too many cells with the values that were discovered: {sets}."
