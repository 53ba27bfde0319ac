"""What a reader of a release has to know beyond the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtr

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.schemas.released.statement import Mechanism
from marginweave.tasks.mechanisms.percentile import rank_error


def reader_warnings(
    configuration: Configuration,
    aggregates: Aggregates,
    mechanisms: Sequence[Mechanism],
    not_measured: Sequence[Sequence[str]],
) -> tuple[str, ...]:
    """Warnings, a sentence each, from public and released facts only; the last two arguments are those of privacy.json.

    DP: post-processing.
    """
    return (
        *_weak_guarantee(configuration, aggregates.record_count),
        *_weak_percentiles(configuration, aggregates.record_count, mechanisms),
        *_weak_counts(configuration, aggregates),
        *_too_many(configuration, aggregates),
        *_left_out(not_measured),
    )


def invented(candidates: int, released: int, deviation: float, threshold: int) -> float:
    """About how many released combinations no record has, at most `released`.

    An empty candidate is released with probability q = P(noise >= threshold). Were every candidate that is not released
    empty, they would be (1 - q) E of E empty ones; so E is about (candidates - released) / (1 - q), and q E of them are
    among the released. DP: post-processing.
    """
    q = float(ndtr(-(threshold - 0.5) / deviation)) if deviation > 0 else 0.0
    return min(float(released), q * max(0, candidates - released) / (1 - q))


def _weak_guarantee(configuration: Configuration, count: int) -> Iterator[str]:
    epsilon, delta = configuration.privacy.epsilon, configuration.privacy.delta
    if epsilon > 5:
        yield f"epsilon ({epsilon:g}) is above 5: the formal protection of a person is weak."
    if count > 1 and delta * count >= 1:
        yield (
            f"delta ({delta:g}) is at least 1/n for about {count} records: a release that shows one record as it is would "
            "keep this promise."
        )
    elif count > 1 and delta > count**-1.5:
        yield f"delta ({delta:g}) is large for about {count} records; 1/n^1.5 would be {count**-1.5:.1e}."
    if configuration.privacy.neighbors == "replace-one":
        yield "Under replace-one the number of records itself is not protected; it carries noise all the same."


def _weak_percentiles(configuration: Configuration, count: int, mechanisms: Sequence[Mechanism]) -> Iterator[str]:
    """Contribution bounds whose rank may be off by more records than lie above it."""
    percentile = configuration.percentile if configuration.marginals is None else None
    if percentile is None:
        return
    bought = {row.length: row.epsilon or 0.0 for row in mechanisms if row.draw.startswith("percentile-")}
    above = (1 - percentile / 100) * count
    lengths = [
        str(length)
        for length, epsilon in bought.items()
        if rank_error(percentile, configuration.stability, epsilon, configuration.contribution_cap(length)) > above
    ]
    if lengths:
        yield (
            f"The {percentile:g}th percentile that bounds how many combinations of {', '.join(lengths)} one record adds means "
            f"little here: about {max(0, round(above))} records lie above it, and its rank may be off by more than that."
        )


def _weak_counts(configuration: Configuration, aggregates: Aggregates) -> Iterator[str]:
    """Lengths of which half of what was released may be noise; of length 1 the public domains alone, where one is private."""
    if not any(len(level) for level in aggregates.levels):
        yield "No combination was released: the noise is larger than the table."
    for level, noise in zip(aggregates.levels, aggregates.noise, strict=True):
        released, candidates, whose = len(level), noise.candidates, ""
        if configuration.marginals is None and configuration.tuples.fabrication == "none":
            continue  # nothing is released that nobody has
        if candidates is None and level.length == 1:
            public = np.array([not attribute.private for attribute in configuration.attributes])
            released = int(public[level.columns[:, 0]].sum())
            candidates = sum(len(a.labels) for a in configuration.attributes if not a.private)
            whose = " with public domains"
        if candidates is None or not released:
            continue
        wrong = invented(candidates, released, noise.deviation, noise.threshold)
        about, half = ("About", "half of them or more") if noise.exact else ("Up to", "perhaps half of them or more")
        if 2 * wrong >= released:
            counts = f"{released} published counts of {level.length} value{'s' * (level.length > 1)}{whose}"
            yield f"{about} {round(wrong)} of the {counts} may be noise only: {half}. Do not use them one by one."


def _too_many(configuration: Configuration, aggregates: Aggregates) -> Iterator[str]:
    """Lengths of which more might have been released than are kept, or more drawn than there is room for to choose from."""
    if configuration.marginals is not None:
        return
    most = configuration.tuples.max_combinations
    for noise in aggregates.noise:
        if noise.raised_from is not None:
            yield (
                f"More than {most} combinations of {noise.length} might have reached the threshold "
                f"{noise.raised_from}, or too many drawn to choose them from; it was raised to {noise.threshold}."
            )
        if noise.stopped:
            yield (
                f"Combinations of {noise.length} and more were not counted, as more than {most} might have reached the "
                "threshold, or too many drawn to choose them from; their share of the budget was given back."
            )


def _left_out(not_measured: Sequence[Sequence[str]]) -> Iterator[str]:
    """Marginals that the configuration asks for and that the discovered values made too large."""
    sets = [" x ".join(attributes) for attributes in not_measured]
    if sets:
        yield f"Not measured, because they have too many cells with the values that were discovered: {', '.join(sets)}."
