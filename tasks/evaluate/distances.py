"""Distances between marginals: total variation, the NIST k-marginal score, and the parts of noise, model and records in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from marginweave.schemas.released.aggregates import Aggregates, IntArray
from marginweave.schemas.released.evaluation import ErrorParts, MarginalDistance, MeanDistance
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.evaluate.cells import Cells, Comparison, FloatArray, Records, Released, counted_sets
from marginweave.tasks.evaluate.combinations import ratio
from marginweave.tasks.evaluate.tallies import Attributes
from marginweave.tasks.normalize.marginals import Spread

SEED = 20240117
"""Which attribute sets are looked at where there are too many: public, and the same for every release."""
SAMPLED = 100
SCORED = 2000
WORST = 10

_LISTED = 1_000_000


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
    return 0.5 * float(np.abs(_shares(cells.reference) - _shares(cells.synthetic)).sum())


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


def noise_distance(cells: int, deviation: float, records: int) -> float:
    """What noise alone is expected to add to a distance: 1/2 cells sigma sqrt(2 / pi) / N, at most 1.

    E|Z| = sigma sqrt(2 / pi) for a normal Z, one for each released cell. It is the noise as it was drawn; what makes counts
    consistent takes some of it away.
    """
    return min(1.0, 0.5 * cells * deviation * math.sqrt(2 / math.pi) / max(records, 1))


def mean_distance(length: int, of: int, distances: Sequence[float]) -> MeanDistance | None:
    """The mean of the distances that were looked at; None where there are none."""
    tvd = ratio(math.fsum(distances), len(distances))
    return None if tvd is None else MeanDistance(length=length, sets=len(distances), of=of, tvd=tvd, l1=2 * tvd)


def k_marginal_score(distances: Sequence[float]) -> float | None:
    """1000 (1 - mean TVD) over 3-way marginals, at most 2000 of them; a copy has 1000.

    The k-marginal score of the NIST challenges with k = 3 (SDNist, metrics/kmarginal.py), over all attributes alike.
    """
    return 1000 * (1 - math.fsum(distances) / len(distances)) if distances else None


def worst(distances: Sequence[MarginalDistance]) -> tuple[MarginalDistance, ...]:
    """The ten largest distances, the largest first; ties in the order of the attributes."""
    return tuple(sorted(distances, key=lambda d: -d.tvd)[:WORST])


def _shares(counts: FloatArray) -> FloatArray:
    shares: FloatArray = counts / max(counts.sum(), 1)
    return shares


def expected_shares(
    model: Mixture, spread: Spread | None, attributes: Attributes, codes: Sequence[IntArray]
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
        modelled = expected_shares(model, spread, cells.attributes, cells.numbering.codes(keys))
        return shares_apart(counted, modelled), shares_apart(modelled, made)

    parts = []
    for level in aggregates.levels:
        if not (sets := counted_sets(aggregates, level.length)):
            continue
        found = [pair for pair in comparison.measure(sets, measure) if pair is not None]
        errors = (ratio(math.fsum(pair[side] for pair in found), len(found)) for side in (0, 1))
        parts.append(ErrorParts(length=level.length, model_error=next(errors), sampling_error=next(errors)))
    return tuple(parts)
