"""How far bounded counts may fall short of the true ones: a bound where the percentile was bought, else not known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri

from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Aggregates, LevelNoise
from marginweave.tasks.evaluate.intervals import LEVEL
from marginweave.tasks.mechanisms.percentile import percentile_fraction, score_sensitivity


@dataclass(frozen=True, kw_only=True)
class BoundingBias:
    """By how many records at most a bounded count of `length` falls short of the count of the rows as prepared.

    `records` is None where that is not known; `confidence` how sure it is, 1 where public facts say so; `words` for a reader.
    """

    length: int
    records: int | None
    confidence: float | None
    words: str


def bounding_biases(
    configuration: Configuration, plan: BudgetPlan, aggregates: Aggregates, *, level: float = LEVEL
) -> tuple[BoundingBias, ...]:
    """The bias of every released length; see `most_cut_records`.

    0 where no record can hold more than Delta_k, its public cap, and for marginals, in which every record counts once. Not
    known where rows or values were left out before the noisy counts: rows of a subject beyond its most, values of a cell
    beyond its cap, a table that was resized. DP: post-processing.
    """
    unknown = _left_out(configuration)
    return tuple(
        BoundingBias(length=noise.length, records=None, confidence=None, words=f"not known: {unknown}")
        if unknown
        else _bias(configuration, plan, aggregates, noise, level)
        for noise in aggregates.noise
    )


def most_cut_records(
    configuration: Configuration, epsilon: float, aggregates: Aggregates, length: int, *, level: float = LEVEL
) -> int:
    """With probability `level`, no more records than this hold more than Delta_k combinations; k = `length`.

    Each of them takes 1 at most from any one count. With q the percentile, F(c) the number of records that hold c at most, s
    the score and S its sensitivity in units of 1/b: the exponential mechanism chooses a score below its maximum by more than
    (2 S / epsilon) ln(cap/beta) with probability beta at most (McSherry, Talwar 2007, theorem 6). The maximum is 0, or q N
    lies below F(0); in both cases q N - F(Delta_k) <= (2 S / (b epsilon)) ln(cap/beta). Of the N records, at most
    n + 1/2 + z_beta sigma from the noisy count n, no more than (1 - q) N + q N - F(Delta_k) are above Delta_k. beta is half
    of 1 - level in each. DP: post-processing of the record count; the rest is public.

    Raises:
        InputError: no percentile is bought, or level out of range.
    """
    if configuration.percentile is None:
        raise InputError("percentile must be bought to bound what it cuts")
    if not 0 < level < 1:
        raise InputError(f"level ({level}) must lie strictly between 0 and 1")
    beta = (1 - level) / 2
    fraction = percentile_fraction(configuration.percentile)
    sensitivity = score_sensitivity(configuration.percentile, configuration.stability) / fraction.denominator
    missed = 2 * sensitivity / epsilon * math.log(configuration.contribution_cap(length) / beta)
    records = aggregates.record_count + 0.5 - float(ndtri(beta)) * aggregates.record_deviation
    return math.floor(float(1 - fraction) * records + missed)


def _bias(
    configuration: Configuration, plan: BudgetPlan, aggregates: Aggregates, noise: LevelNoise, level: float
) -> BoundingBias:
    k = noise.length
    if configuration.marginals is not None or noise.contribution_bound >= configuration.contribution_cap(k):
        return BoundingBias(length=k, records=0, confidence=1.0, words="0: no record can hold more than was counted")
    epsilon = plan.draw(f"percentile-{k}").parameter
    records = most_cut_records(configuration, epsilon, aggregates, k, level=level)
    words = (
        f"at most {records}: with confidence {level:g} no more records than that hold more than "
        f"{noise.contribution_bound} combinations of length {k}, and each takes 1 at most from a count"
    )
    return BoundingBias(length=k, records=records, confidence=level, words=words)


def _left_out(configuration: Configuration) -> str | None:
    """Why the rows as counted are not the rows as prepared, or None."""
    subject = configuration.privacy.subject
    if configuration.resize is not None:
        return "the counted table is a sample"
    if subject is not None and not subject.join:
        return "rows of a subject beyond max_records were left out"
    cut = [a.name for a in configuration.attributes if a.is_set and (a.private or a.width < len(a.labels))]
    if cut:
        return f"values of a cell beyond max_values were left out (column {cut[0]!r})"
    return None


def bias_facts(biases: tuple[BoundingBias, ...]) -> list[dict[str, Any]]:
    """For privacy.json."""
    return [{"length": b.length, "records": b.records, "confidence": b.confidence, "words": b.words} for b in biases]
