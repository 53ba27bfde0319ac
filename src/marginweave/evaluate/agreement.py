"""How well synthetic records keep the counts of sets of attributes: combinations kept, lost and invented, and distances.

S are the reference counts and Y the synthetic ones. What is said of combinations is of those without missing values, as SDS
(Synthetic Data Showcase) prints it, defined in its data evaluator (processing/evaluator), and counting all of them. Distances
are total variation; the parts of noise, model and records in them are listed apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.estimate.marginals import Spread
from marginweave.estimate.mixture.model import Mixture
from marginweave.evaluate.cells import Cells, Comparison, FloatArray, Records, Released, counted_sets
from marginweave.evaluate.tallies import Attributes
from marginweave.observations.combinations import Aggregates
from marginweave.released.evaluation import BucketMeans, CountBucket, ErrorParts, LengthMetrics

SEED = 20240117
"""Which attribute sets are looked at where there are too many: public, and the same for every release."""
_LISTED = 1_000_000
FREQUENT = 10
"""What SDS calls the reporting resolution, at its usual value."""

# SDS: the first bin holds counts up to 10, and each further one reaches twice as far.
_BINS = np.array([10.0 * 2**i for i in range(40)])


def combination_sums(cells: Cells) -> dict[str, float]:
    """Sums over the complete cells of one attribute set, by name; they add up over attribute sets."""
    s, y = cells.reference[cells.complete], cells.synthetic[cells.complete]
    real, made = s > 0, y > 0
    there, here = s[real], y[real]
    gap = np.abs(there - here)
    share = gap / there
    frequent = there >= FREQUENT
    return {
        "real": len(there),
        "shown": made.sum(),
        "lost": (here == 0).sum(),
        "invented": (made & ~real).sum(),
        "error": gap.sum() + y[~real].sum(),
        "common_error": gap[here > 0].sum(),
        "kept": np.minimum(here / there, 1).sum(),
        "proportional": share.sum(),
        "weighted": gap.sum(),
        "weight": there.sum(),
        "frequent": frequent.sum(),
        "frequent_proportional": share[frequent].sum(),
        "frequent_lost": (here[frequent] == 0).sum(),
    }


def length_metrics(
    length: int, sums: Iterable[dict[str, float]], known: list[float], with_missing: list[float]
) -> LengthMetrics:
    """Pool the attribute sets of one length; `known` and `with_missing` are their distances. DP: as private as the sums."""
    pooled = list(sums)
    total = {name: math.fsum(one[name] for one in pooled) for name in pooled[0]}
    union = total["real"] + total["invented"]
    distance = ratio(math.fsum(with_missing), len(with_missing))
    return LengthMetrics(
        length=length,
        combinations=round(total["real"]),
        preservation=ratio(total["kept"], total["real"]),
        suppressed=ratio(100 * total["lost"], total["real"]),
        fabricated=ratio(100 * total["invented"], total["shown"]),
        mean_error=ratio(total["error"], union),
        proportional_error=ratio(total["proportional"], total["real"]),
        weighted_error=ratio(total["weighted"], total["weight"]),
        frequent_error=ratio(total["frequent_proportional"], total["frequent"]),
        frequent_suppressed=ratio(100 * total["frequent_lost"], total["frequent"]),
        shown_preservation=ratio(total["kept"], total["shown"]),
        shown_proportional_error=ratio(total["proportional"] - total["lost"] + total["invented"], total["shown"]),
        sds_preservation=ratio(total["kept"], union),
        sds_proportional_error=ratio(total["proportional"] + total["invented"], union),
        sds_fabricated=ratio(100 * total["invented"], total["real"]),
        sds_mean_error=ratio(total["common_error"], total["real"] - total["lost"]),
        tvd=ratio(math.fsum(known), len(known)),
        tvd_missing=distance,
        l1_missing=None if distance is None else 2 * distance,
    )


def bucket_sums(cells: Cells) -> FloatArray:
    """For each bin of the synthetic count: combinations, and sums of count, length, preservation and proportional error."""
    s, y = cells.reference[cells.complete], cells.synthetic[cells.complete]
    bins = np.searchsorted(_BINS, y)
    divisor = np.where(s > 0, s, 1)
    kept = np.where(s > 0, np.minimum(y / divisor, 1), 0)
    gap = np.where(s > 0, np.abs(s - y) / divisor, 1)
    one = np.ones(len(s))
    sums = (one, y, len(cells.numbering.attributes) * one, kept, gap)
    return np.stack([np.bincount(bins, weights=weights, minlength=len(_BINS)) for weights in sums], dtype=np.float64)


def count_buckets(sums: Iterable[FloatArray]) -> tuple[CountBucket, ...]:
    """SDS's preservation by count, up to the bin of the largest synthetic count. DP: as private as the sums."""
    total = np.sum(list(sums), axis=0)
    last = int(np.flatnonzero(total[0]).max(initial=0))
    return tuple(
        CountBucket(
            at_most=int(_BINS[i]),
            combinations=round(size),
            mean_count=ratio(count, size),
            mean_length=ratio(length, size),
            preservation=ratio(kept, size),
            proportional_error=ratio(gap, size),
        )
        for i, (size, count, length, kept, gap) in enumerate(total.T[: last + 1].tolist())
    )


def bucket_means(buckets: tuple[CountBucket, ...]) -> BucketMeans:
    """SDS's means over bins."""
    lost = [1 - b.preservation for b in buckets if b.preservation is not None]
    gaps = [b.proportional_error for b in buckets if b.proportional_error is not None]
    loss, error = (math.fsum(values) / len(buckets) for values in (lost, gaps))
    return BucketMeans(sds_combination_loss=loss, sds_proportional_error=error)


def ratio(total: float, number: float) -> float | None:
    """`total / number`, or None where there is nothing to average."""
    return float(total / number) if number else None


def sampled_sets(attributes: Sequence[int], length: int, limit: int) -> list[Attributes]:
    """At most `limit` sets of `length` attributes: all of them in order, or the first of a seeded permutation.

    Where they are too many to be listed, distinct random ones. DP: post-processing of public facts.
    """
    total = math.comb(len(attributes), length)
    rng = np.random.default_rng(SEED)  # post-processing
    if total <= _LISTED:
        every = list(combinations(attributes, length))
        return every if total <= limit else [every[i] for i in rng.permutation(total)[:limit]]
    found: dict[Attributes, None] = {}
    while len(found) < limit:
        found[tuple(attributes[i] for i in sorted(rng.choice(len(attributes), length, replace=False)))] = None
    return list(found)


def total_variation(cells: Cells) -> float | None:
    """1/2 sum |p - q| over all cells, missing as a value; in [0, 1]. None where a record lies in several cells.

    p and q are shares of the records of each side.
    """
    if not cells.single:
        return None
    p, q = (counts / max(counts.sum(), 1) for counts in (cells.reference, cells.synthetic))
    return 0.5 * float(np.abs(p - q).sum())


def known_distance(cells: Cells, reference_records: int, records: int) -> float | None:
    """1/2 sum |S / N - Y / n| over {S > 0}, where what is left of N and of n is one more cell; in [0, 1].

    None where that is the only cell: nothing is known, and no records are near to it or far from it.
    """
    p, q = known_shares(cells, reference_records, records)
    return shares_apart(p, q) if len(p) else None


def known_shares(cells: Cells, reference_records: int, records: int) -> tuple[FloatArray, FloatArray]:
    """S / N and Y / n of the cells {S > 0} without missing values, in order.

    N and n are the numbers of records, or what the counts add up to where that is more: noise, or records with several
    values of a set, which count several times.
    """
    s, y = cells.reference[cells.complete], cells.synthetic[cells.complete]
    known = s > 0
    return s[known] / max(reference_records, s.sum(), 1), y[known] / max(records, y.sum(), 1)


def shares_apart(p: FloatArray, q: FloatArray) -> float:
    """Total variation distance of shares of the same cells, where what is left of 1 is one more cell."""
    return 0.5 * float(np.abs(p - q).sum() + abs(p.sum() - q.sum()))


def noise_distance(cells: int, sigma: float, records: int) -> float:
    """What noise alone is expected to add to a distance: 1/2 cells sigma sqrt(2 / pi) / N, at most 1.

    E|Z| = sigma sqrt(2 / pi) for a normal Z, one for each released cell. It is the noise as it was drawn; what makes counts
    consistent takes some of it away.
    """
    return min(1.0, 0.5 * cells * sigma * math.sqrt(2 / math.pi) / max(records, 1))


def expected_shares(
    model: Mixture, spread: Spread | None, attributes: Attributes, codes: Sequence[Integers]
) -> FloatArray:
    """The share of all records that a model expects to hold each combination of values of the released domain, shape (n,).

    `model` is the one that records are sampled from (`Mixture.conditioned`); `spread` splits its merged values, None if it has
    none; `codes` are those of each attribute. DP: post-processing.
    """
    if spread is None:
        return model.probabilities(attributes, codes)
    merged = [spread.codes[a][code] for a, code in zip(attributes, codes, strict=True)]
    apart = [spread.shares[a][code] for a, code in zip(attributes, codes, strict=True)]
    found: FloatArray = model.probabilities(attributes, merged) * np.prod(apart, axis=0)
    return found


def error_parts(
    records: Records, aggregates: Aggregates, model: Mixture, spread: Spread | None
) -> tuple[ErrorParts, ...]:
    """Model error and sampling error apart, of lengths 1..R.

    Args:
        records: Codes over the released domain.
        aggregates: Released counts of lengths 1..R.
        model: The model that was fitted to them, of which the records are made.
        spread: How its merged values are split, if it has any.

    Returns:
        One a length of which something was counted, in order. DP: post-processing.
    """
    comparison = Comparison(reference=Released(aggregates=aggregates), synthetic=records, sizes=aggregates.domain.sizes)

    def measure(cells: Cells) -> tuple[float, float] | None:
        counted, made = known_shares(cells, aggregates.record_count, len(records))
        if not len(counted):
            return None
        keys = cells.keys[cells.complete & (cells.reference > 0)]
        modelled = expected_shares(model, spread, cells.numbering.attributes, cells.numbering.codes(keys))
        return shares_apart(counted, modelled), shares_apart(modelled, made)

    parts = []
    for level in aggregates.levels:
        if not (sets := counted_sets(aggregates, level.length)):
            continue
        found = [pair for pair in comparison.measure(sets, measure) if pair is not None]
        errors = (ratio(math.fsum(pair[side] for pair in found), len(found)) for side in (0, 1))
        parts.append(ErrorParts(length=level.length, model_error=next(errors), sampling_error=next(errors)))
    return tuple(parts)
