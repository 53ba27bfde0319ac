"""Which attribute combinations the synthetic records keep, lose and invent: as SDS prints it, and counting all of them.

SDS is Synthetic Data Showcase; what it prints is defined in its data evaluator (processing/evaluator). S are the
reference counts and Y the synthetic ones, of combinations without missing values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from marginweave.schemas.released.evaluation import BucketMeans, CountBucket, LengthMetrics
from marginweave.tasks.evaluate.cells import Cells, FloatArray

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
    sums = (one, y, len(cells.attributes) * one, kept, gap)
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
