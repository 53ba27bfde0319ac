"""Agreement of synthetic records with the counts of sets of attributes: combinations preserved, lost, invented; distances.

S are the reference counts and Y the synthetic ones, scaled to the number of records of the reference. Metrics of
combinations count those without missing values. They are those that SDS (Synthetic Data Showcase) prints, defined in its data
evaluator (processing/evaluator). Distances are total
variation; the parts of noise, model and records in them are listed separately.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.estimate.marginals import Spread
from marginweave.estimate.mixture.model import Mixture
from marginweave.evaluate.cells import (
    Cells,
    Comparison,
    Records,
    Released,
    counted_sets,
)
from marginweave.evaluate.tallies import Attributes
from marginweave.observations.combinations import Aggregates
from marginweave.released.evaluation import BucketMeans, CountBucket, ErrorParts, LengthMetrics

SEED = 20240117
"""Seed of the sample of attribute sets where there are too many to measure all: public, the same for every release."""
# Up to this number of sets are listed in memory before a sample of them is taken.
_LISTED = 1_000_000
FREQUENT = 10
"""The reporting resolution of SDS at its usual value: combinations with at least this count are frequent."""

# SDS: the first bin holds counts up to 10, and each further one reaches twice as far.
_BINS = np.array([10.0 * 2**i for i in range(40)])


def combination_sums(cells: Cells) -> dict[str, float]:
    """Return sums over the complete cells of one attribute set, by name; they add up over attribute sets."""
    reference = cells.reference[cells.complete]
    synthetic = cells.synthetic[cells.complete]
    is_real = reference > 0
    is_synthetic = synthetic > 0
    # the counts of combinations that the reference has
    real = reference[is_real]
    reproduced = synthetic[is_real]
    gap = np.abs(real - reproduced)
    share = gap / real
    is_frequent = real >= FREQUENT
    return {
        "real": len(real),
        "shown": is_synthetic.sum(),
        "lost": (reproduced == 0).sum(),
        "invented": (is_synthetic & ~is_real).sum(),
        "error": gap.sum() + synthetic[~is_real].sum(),
        "common_error": gap[reproduced > 0].sum(),
        "kept": np.minimum(reproduced / real, 1).sum(),
        "proportional": share.sum(),
        "weighted": gap.sum(),
        "weight": real.sum(),
        "frequent": is_frequent.sum(),
        "frequent_proportional": share[is_frequent].sum(),
        "frequent_lost": (reproduced[is_frequent] == 0).sum(),
    }


def length_metrics(
    length: int,
    sums: Iterable[dict[str, float]],
    complete: list[float],
    with_missing: list[float],
) -> LengthMetrics:
    """Pool the attribute sets of one length. DP: as private as the sums.

    Args:
        length: The number of attributes of each set.
        sums: `combination_sums` of each set, at least one.
        complete: Distances of the sets over cells without missing values (`known_distance`).
        with_missing: Distances of the sets with missing as a value (`total_variation`).
    """
    pooled = list(sums)
    total: dict[str, float] = {}
    for name in pooled[0]:
        total[name] = math.fsum(set_sums[name] for set_sums in pooled)
    real = total["real"]
    shown = total["shown"]
    lost = total["lost"]
    invented = total["invented"]
    preserved = total["kept"]
    proportional = total["proportional"]
    frequent = total["frequent"]
    union = real + invented
    distance = ratio(math.fsum(with_missing), len(with_missing))
    return LengthMetrics(
        length=length,
        combinations=round(real),
        preservation=ratio(preserved, real),
        suppressed=ratio(100 * lost, real),
        fabricated=ratio(100 * invented, shown),
        mean_error=ratio(total["error"], union),
        proportional_error=ratio(proportional, real),
        weighted_error=ratio(total["weighted"], total["weight"]),
        frequent_error=ratio(total["frequent_proportional"], frequent),
        frequent_suppressed=ratio(100 * total["frequent_lost"], frequent),
        shown_preservation=ratio(preserved, shown),
        shown_proportional_error=ratio(proportional - lost + invented, shown),
        sds_preservation=ratio(preserved, union),
        sds_proportional_error=ratio(proportional + invented, union),
        sds_fabricated=ratio(100 * invented, real),
        sds_mean_error=ratio(total["common_error"], real - lost),
        tvd=ratio(math.fsum(complete), len(complete)),
        tvd_missing=distance,
        l1_missing=None if distance is None else 2 * distance,
    )


def bucket_sums(cells: Cells) -> Floats:
    """Return sums for each bin of the synthetic count, shape (5, bins).

    They are the number of combinations, and the sums of their counts, lengths, preservations and proportional errors.
    """
    reference = cells.reference[cells.complete]
    synthetic = cells.synthetic[cells.complete]
    bins = np.searchsorted(_BINS, synthetic)
    is_real = reference > 0
    divisor = np.where(is_real, reference, 1)
    preservation = np.where(is_real, np.minimum(synthetic / divisor, 1), 0)
    gap = np.where(is_real, np.abs(reference - synthetic) / divisor, 1)
    ones = np.ones(len(reference))
    lengths = len(cells.numbering.attributes) * ones
    weights = (ones, synthetic, lengths, preservation, gap)
    rows = [np.bincount(bins, weights=values, minlength=len(_BINS)) for values in weights]
    return np.stack(rows, dtype=np.float64)


def count_buckets(sums: Iterable[Floats]) -> tuple[CountBucket, ...]:
    """Return SDS's preservation by count, up to the bin of the largest synthetic count. DP: as private as the sums."""
    total = np.sum(list(sums), axis=0)
    last = int(np.flatnonzero(total[0]).max(initial=0))
    buckets = []
    for place in range(last + 1):
        size, count, length, preservation, gap = total[:, place].tolist()
        bucket = CountBucket(
            at_most=int(_BINS[place]),
            combinations=round(size),
            mean_count=ratio(count, size),
            mean_length=ratio(length, size),
            preservation=ratio(preservation, size),
            proportional_error=ratio(gap, size),
        )
        buckets.append(bucket)
    return tuple(buckets)


def bucket_means(buckets: tuple[CountBucket, ...]) -> BucketMeans:
    """Return SDS's means over bins: sums over bins that have combinations, divided by the number of all bins."""
    losses = [1 - bucket.preservation for bucket in buckets if bucket.preservation is not None]
    errors = [
        bucket.proportional_error for bucket in buckets if bucket.proportional_error is not None
    ]
    return BucketMeans(
        sds_combination_loss=math.fsum(losses) / len(buckets),
        sds_proportional_error=math.fsum(errors) / len(buckets),
    )


def ratio(total: float, number: float) -> float | None:
    """Return `total / number`, or None where there is nothing to average."""
    return float(total / number) if number else None


def sampled_sets(attributes: Sequence[int], length: int, limit: int) -> list[Attributes]:
    """Return at most `limit` sets of `length` attributes: all in order, or the first of a seeded permutation.

    Where the sets are too many to be listed, they are distinct random ones. DP: post-processing of public facts.
    """
    total = math.comb(len(attributes), length)
    rng = np.random.default_rng(SEED)  # post-processing
    if total <= _LISTED:
        every_set = list(combinations(attributes, length))
        if total <= limit:
            return every_set
        return [every_set[i] for i in rng.permutation(total)[:limit]]
    sample: dict[Attributes, None] = {}  # ordered, without duplicates
    while len(sample) < limit:
        places = rng.choice(len(attributes), length, replace=False)
        sample[tuple(attributes[i] for i in sorted(places))] = None
    return list(sample)


def total_variation(cells: Cells) -> float | None:
    """Return 1/2 sum |p - q| over all cells, missing as a value; in [0, 1]. None where a record lies in several cells.

    p and q are shares of the records of each side.
    """
    if not cells.one_cell_per_record:
        return None
    p = cells.reference / max(cells.reference.sum(), 1)
    q = cells.synthetic / max(cells.synthetic.sum(), 1)
    return 0.5 * float(np.abs(p - q).sum())


def known_distance(cells: Cells, reference_records: int, records: int) -> float | None:
    """Return 1/2 sum |S / N - Y / n| over {S > 0}, with the remainders of N and of n as one more cell; in [0, 1].

    None where that is the only cell: nothing is known, so there is no distance.
    """
    p, q = known_shares(cells, reference_records, records)
    return shares_apart(p, q) if len(p) else None


def known_shares(cells: Cells, reference_records: int, records: int) -> tuple[Floats, Floats]:
    """Return S / N and Y / n of the cells {S > 0} without missing values, in order.

    N and n are the numbers of records, or the sum of the counts where that is more: because of noise, or because records with
    several values of a set count several times.
    """
    reference = cells.reference[cells.complete]
    synthetic = cells.synthetic[cells.complete]
    is_known = reference > 0
    p = reference[is_known] / max(reference_records, reference.sum(), 1)
    q = synthetic[is_known] / max(records, synthetic.sum(), 1)
    return p, q


def shares_apart(p: Floats, q: Floats) -> float:
    """Return the total variation distance of shares of the same cells, with the remainder of 1 as one more cell."""
    cells = np.abs(p - q).sum()
    remainder = abs(p.sum() - q.sum())
    return 0.5 * float(cells + remainder)


def noise_distance(cells: int, sigma: float, records: int) -> float:
    """Return the distance that noise alone is expected to add: 1/2 cells sigma sqrt(2 / pi) / N, at most 1.

    E|Z| = sigma sqrt(2 / pi) for a normal Z, one for each released cell. This is the noise as drawn; making counts
    consistent reduces it.
    """
    norm = 0.5 * cells * sigma * math.sqrt(2 / math.pi)
    return min(1.0, norm / max(records, 1))


def expected_shares(
    model: Mixture,
    spread: Spread | None,
    attributes: Attributes,
    codes: Sequence[Integers],
) -> Floats:
    """Return the share of all records that a model expects with each combination of values of the released domain.

    Args:
        model: The model that records are sampled from (`Mixture.conditioned`).
        spread: How the merged values of the model are split, None if it has none.
        attributes: The set of attributes.
        codes: The codes of each attribute, shape (n,).

    Returns:
        Shares, shape (n,). DP: post-processing.
    """
    if spread is None:
        return model.probabilities(attributes, codes)
    merged = []
    parts = []
    for a, code in zip(attributes, codes, strict=True):
        merged.append(spread.codes[a][code])
        parts.append(spread.shares[a][code])
    shares: Floats = model.probabilities(attributes, merged) * np.prod(parts, axis=0)
    return shares


def error_parts(
    records: Records,
    aggregates: Aggregates,
    model: Mixture,
    spread: Spread | None,
) -> tuple[ErrorParts, ...]:
    """Return model error and sampling error separately, of lengths 1..R.

    Args:
        records: Codes over the released domain.
        aggregates: Released counts of lengths 1..R.
        model: The model that was fitted to them, from which the records are drawn.
        spread: How its merged values are split, if it has any.

    Returns:
        One entry for each length with counts, in order. DP: post-processing.
    """
    comparison = Comparison(
        reference=Released(aggregates=aggregates),
        synthetic=records,
        sizes=aggregates.domain.sizes,
    )

    def measure(cells: Cells) -> tuple[float, float] | None:
        """Return the distances of the counts from the model and of the model from the records; None without counts."""
        counted, synthetic = known_shares(cells, aggregates.record_count, len(records))
        if not len(counted):
            return None
        keys = cells.keys[cells.complete & (cells.reference > 0)]
        codes = cells.numbering.codes(keys)
        modelled = expected_shares(model, spread, cells.numbering.attributes, codes)
        return shares_apart(counted, modelled), shares_apart(modelled, synthetic)

    parts = []
    for level in aggregates.levels:
        sets = counted_sets(aggregates, level.length)
        if not sets:
            continue
        pairs = [pair for pair in comparison.measure(sets, measure) if pair is not None]
        model_errors = [pair[0] for pair in pairs]
        sampling_errors = [pair[1] for pair in pairs]
        part = ErrorParts(
            length=level.length,
            model_error=ratio(math.fsum(model_errors), len(pairs)),
            sampling_error=ratio(math.fsum(sampling_errors), len(pairs)),
        )
        parts.append(part)
    return tuple(parts)
