"""The evaluation of synthetic records: against released counts, which may be released, or against the sensitive table."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import combinations
from typing import NamedTuple

from marginweave.domain.labels import Domain
from marginweave.evaluate import agreement
from marginweave.evaluate.association import association
from marginweave.evaluate.cells import Cells, Comparison, FloatArray, Records, Released, counted_sets
from marginweave.evaluate.tallies import Attributes, Codes
from marginweave.observations.combinations import Aggregates
from marginweave.released.evaluation import (
    BrokenRule,
    InternalEvaluation,
    MarginalDistance,
    MeanDistance,
    RecordAgreement,
)

_SCORED, _SAMPLED, _WORST = 2000, 100, 10
_LONGER = (4, 5)


class _Measured(NamedTuple):
    """What is kept of the cells of one attribute set."""

    sums: dict[str, float]
    buckets: FloatArray
    known: float | None
    with_missing: float | None
    released: int


def evaluate_release(
    records: Records,
    aggregates: Aggregates,
    *,
    ordered: Collection[int] = (),
    rules: tuple[BrokenRule, ...] = (),
    dependent: Mapping[Attributes, bool] | None = None,
) -> RecordAgreement:
    """Compare synthetic records with the released counts they were made from; of marginals, those that were measured.

    N is the protected record count, or the sum of a column set's released counts where noise makes that larger. What the
    released counts leave of N, missing or suppressed, is one cell.

    Args:
        records: Codes over the released domain.
        aggregates: Released counts of lengths 1..R.
        ordered: Attributes whose codes stand in the order of their values.
        rules: What `broken_rules` says of the records.
        dependent: What `dependent_pairs` says, where marginals were measured.

    Returns:
        Metrics of lengths 1..R, without those of which marginals measured none. DP: post-processing.
    """
    domain, sets = aggregates.domain, [counted_sets(aggregates, level.length) for level in aggregates.levels]
    comparison = Comparison(reference=Released(aggregates=aggregates), synthetic=records, sizes=domain.sizes)
    measured = _measured(comparison, sets)
    distances = [
        MarginalDistance(attributes=_names(domain, a), tvd=m.known, noise=_noise(aggregates, a, m.released))
        for a, m in _all(measured).items()
        if m.known is not None
    ]
    above = dependent if dependent is not None else _pair_sigmas(aggregates)
    return _agreement(comparison, domain, measured, distances, ordered, rules, above=above)


def evaluate_internal(
    sensitive: Codes,
    records: Codes,
    domain: Domain,
    *,
    ordered: Collection[int] = (),
    rules: tuple[BrokenRule, ...] = (),
    sensitive_rules: tuple[BrokenRule, ...] = (),
) -> InternalEvaluation:
    """Compare synthetic records with the sensitive table itself.

    Args:
        sensitive: Codes of the sensitive records, one array an attribute.
        records: Codes of the synthetic records, likewise.
        domain: Domain of both.
        ordered: Attributes whose codes stand in the order of their values.
        rules: What `broken_rules` says of the records.
        sensitive_rules: What it says of the sensitive rows.

    Returns:
        Metrics of lengths 1 to 3, and of a sample of longer marginals. DP: none: exact functions of sensitive rows, for
        `internal/` only.

    Raises:
        InputError: if a table does not have the columns of the domain.
    """
    real, made = Records([sensitive], domain), Records([records], domain)
    comparison = Comparison(reference=real, synthetic=made, sizes=domain.sizes)
    places = range(len(domain.names))
    measured = _measured(comparison, [list(combinations(places, k)) for k in (1, 2, 3) if k <= len(places)])
    by_set = {a: m.with_missing for a, m in _all(measured).items() if m.with_missing is not None}
    # NIST's k-marginal score for k = 3 (SDNist, metrics/kmarginal.py), over all attributes alike; a copy has 1000
    scored = [by_set[attributes] for attributes in agreement.sampled_sets(places, 3, _SCORED) if attributes in by_set]
    distances = [MarginalDistance(attributes=_names(domain, a), tvd=tvd, noise=None) for a, tvd in by_set.items()]
    against = _agreement(comparison, domain, measured, distances, ordered, rules, above={})
    return InternalEvaluation(
        **dict(against),
        distances=_distances(comparison, by_set),
        k_marginal_score=1000 * (1 - math.fsum(scored) / len(scored)) if scored else None,
        sensitive_rules=sensitive_rules,
    )


def _measured(comparison: Comparison, sets: list[list[Attributes]]) -> list[dict[Attributes, _Measured]]:
    """Each attribute set, by length: one pass over the records of both sides."""
    total, made, exact = len(comparison.reference), len(comparison.synthetic), comparison.is_exact

    def measure(cells: Cells) -> _Measured:
        return _Measured(
            sums=agreement.combination_sums(cells),
            buckets=agreement.bucket_sums(cells),
            known=agreement.known_distance(cells, total, made),
            with_missing=agreement.total_variation(cells) if exact else None,
            released=int((cells.reference[cells.complete] > 0).sum()),
        )

    return [dict(zip(chosen, comparison.measure(chosen, measure), strict=True)) for chosen in sets]


def _all(measured: list[dict[Attributes, _Measured]]) -> dict[Attributes, _Measured]:
    return {attributes: m for found in measured for attributes, m in found.items()}


def _agreement(
    comparison: Comparison,
    domain: Domain,
    measured: list[dict[Attributes, _Measured]],
    distances: list[MarginalDistance],
    ordered: Collection[int],
    rules: tuple[BrokenRule, ...],
    *,
    above: Mapping[Attributes, float | bool],
) -> RecordAgreement:
    """Lengths are those of which something was counted: marginals of four columns say nothing of three."""
    records, total = len(comparison.synthetic), len(comparison.reference)
    pairs = [attributes for attributes in _all(measured) if len(attributes) == 2]
    buckets = agreement.count_buckets(m.buckets for m in _all(measured).values())
    return RecordAgreement(
        records=records,
        reference_records=total,
        expansion=100 * (records / total - 1) if total > 0 else None,
        lengths=tuple(
            agreement.length_metrics(
                length,
                [m.sums for m in found.values()],
                [m.known for m in found.values() if m.known is not None],
                [m.with_missing for m in found.values() if m.with_missing is not None],
            )
            for length, found in enumerate(measured, start=1)
            if found
        ),
        by_count=buckets,
        by_count_means=agreement.bucket_means(buckets),
        marginals=tuple(sorted(distances, key=lambda d: -d.tvd)[:_WORST]),
        association=association(comparison, domain.names, ordered, pairs, above),
        rules=rules,
    )


def _distances(comparison: Comparison, by_set: dict[Attributes, float]) -> tuple[MeanDistance, ...]:
    """The lengths that were counted in full, then a sample of longer ones."""
    single = [j for j in range(len(comparison.sizes)) if comparison.is_single(j)]
    counted = max((len(attributes) for attributes in by_set), default=0)
    found = {k: [tvd for attributes, tvd in by_set.items() if len(attributes) == k] for k in range(1, counted + 1)}
    for k in _LONGER:
        if counted < k <= len(single):
            distances = comparison.measure(agreement.sampled_sets(single, k, _SAMPLED), agreement.total_variation)
            found[k] = [tvd for tvd in distances if tvd is not None]
    means = {k: math.fsum(distances) / len(distances) for k, distances in found.items() if distances}
    return tuple(
        MeanDistance(length=k, sets=len(found[k]), of=math.comb(len(single), k), tvd=tvd, l1=2 * tvd)
        for k, tvd in means.items()
    )


def _pair_sigmas(aggregates: Aggregates) -> dict[Attributes, float | bool]:
    """The noise of a count of each pair, with what a count may lack as small ones were suppressed."""
    found = next((math.hypot(n.deviation, n.threshold - 1) for n in aggregates.noise if n.length == 2), None)
    return {} if found is None else dict.fromkeys(counted_sets(aggregates, 2), found)


def _noise(aggregates: Aggregates, attributes: Attributes, released: int) -> float | None:
    """The distance that noise implies, from the sigma of the marginal, or of its length; None where there is no noise."""
    by_length = {noise.length: noise.deviation for noise in aggregates.noise}
    sigma = aggregates.measured[attributes] if aggregates.measured else by_length.get(len(attributes))
    return None if sigma is None else agreement.noise_distance(released, sigma, aggregates.record_count)


def _names(domain: Domain, attributes: Attributes) -> tuple[str, ...]:
    return tuple(domain.names[j] for j in attributes)
