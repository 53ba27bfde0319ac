"""Evaluation of synthetic records: against released counts, which may be released, or against the sensitive table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from marginweave.base.arrays import Floats
from marginweave.domain.labels import Domain
from marginweave.evaluate import agreement
from marginweave.evaluate.association import association
from marginweave.evaluate.cells import (
    Cells,
    Comparison,
    Records,
    Released,
    counted_sets,
)
from marginweave.evaluate.score import dependences, quality_score
from marginweave.evaluate.tallies import Attributes, Codes
from marginweave.observations.combinations import Aggregates
from marginweave.released.evaluation import (
    Association,
    BrokenRule,
    InternalEvaluation,
    LengthMetrics,
    MarginalDistance,
    MeanDistance,
    RecordAgreement,
)

_SCORED = 2000  # sets of the k-marginal score
_WORST = 10  # sets that are listed
# Lengths that are measured on a sample of sets, and the size of the sample.
_LONGER = (4, 5)
_SAMPLED = 100


class _Measured(NamedTuple):
    """Sums and distances of the cells of one attribute set."""

    sums: dict[str, float]
    buckets: Floats
    complete: float | None
    with_missing: float | None
    released: int


_Measures = dict[Attributes, _Measured]


def evaluate_release(
    records: Records,
    aggregates: Aggregates,
    *,
    ordered: Collection[int] = (),
    rules: tuple[BrokenRule, ...] = (),
    dependent: Mapping[Attributes, bool] | None = None,
) -> RecordAgreement:
    """Compare synthetic records with the released counts they were made from; of marginals, those that were measured.

    N is the protected record count, or the sum of a column set's released counts where noise makes that larger. The rest of N,
    missing or suppressed, is one cell. Of another number n of records each is counted as N / n, N the record count.

    Args:
        records: Codes over the released domain.
        aggregates: Released counts of lengths 1..R.
        ordered: Attributes whose codes are in the order of their values.
        rules: The rules that the records break (`broken_rules`).
        dependent: The result of `dependent_pairs`, where marginals were measured.

    Returns:
        Metrics of lengths 1..R, without lengths that no marginal has. DP: post-processing.
    """
    domain = aggregates.domain
    sets = [counted_sets(aggregates, level.length) for level in aggregates.levels]
    comparison = Comparison(
        reference=Released(aggregates=aggregates),
        synthetic=records,
        sizes=domain.sizes,
    )
    measured = _measure_lengths(comparison, sets)
    distances: list[MarginalDistance] = []
    for attributes, measures in _all(measured).items():
        if measures.complete is not None:
            distance = MarginalDistance(
                attributes=_names(domain, attributes),
                tvd=measures.complete,
                noise=_noise(aggregates, attributes, measures.released),
            )
            distances.append(distance)
    sigmas = _pair_sigmas(aggregates) if dependent is None else {}
    return _agreement(
        comparison,
        domain,
        measured,
        distances,
        ordered,
        rules,
        sigmas=sigmas,
        dependent=dependent or {},
    )


def evaluate_internal(
    sensitive: Codes,
    records: Codes,
    domain: Domain,
    *,
    ordered: Collection[int] = (),
    rules: tuple[BrokenRule, ...] = (),
    sensitive_rules: tuple[BrokenRule, ...] = (),
) -> InternalEvaluation:
    """Compare synthetic records with the sensitive table itself; each counts as N / n, of N rows and n records.

    Args:
        sensitive: Codes of the sensitive records, one array an attribute.
        records: Codes of the synthetic records, likewise.
        domain: Domain of both.
        ordered: Attributes whose codes are in the order of their values.
        rules: The rules that the records break (`broken_rules`).
        sensitive_rules: The rules that the sensitive rows break.

    Returns:
        Metrics of lengths 1 to 3, and of a sample of longer marginals. DP: none: exact functions of sensitive rows, for
        `internal/` only.

    Raises:
        InputError: if a table does not have the columns of the domain.
    """
    comparison = Comparison(
        reference=Records([sensitive], domain),
        synthetic=Records([records], domain),
        sizes=domain.sizes,
    )
    places = range(len(domain.names))
    lengths = [length for length in (1, 2, 3) if length <= len(places)]
    measured = _measure_lengths(
        comparison, [list(combinations(places, length)) for length in lengths]
    )
    distance_of_set: dict[Attributes, float] = {}
    distances: list[MarginalDistance] = []
    for attributes, measures in _all(measured).items():
        tvd = measures.with_missing
        if tvd is not None:
            distance_of_set[attributes] = tvd
            distances.append(
                MarginalDistance(attributes=_names(domain, attributes), tvd=tvd, noise=None)
            )
    agreement_of_records = _agreement(
        comparison, domain, measured, distances, ordered, rules, sigmas={}, dependent={}
    )
    return InternalEvaluation(
        **dict(agreement_of_records),
        distances=_distances(comparison, distance_of_set),
        k_marginal_score=_k_marginal_score(places, distance_of_set),
        score=_true_score(distances, agreement_of_records.association),
        sensitive_rules=sensitive_rules,
    )


def _true_score(distances: Sequence[MarginalDistance], true_association: Association) -> int | None:
    """Return the quality score by true distances: `score.quality_score` with what nobody but the operator may know.

    Of each pair of columns, e is its distance, missing as a value, and D how far the sensitive rows are from independent
    columns. Pairs without a distance, with a set of values a record, are left out. DP: none.
    """
    pairs = {
        distance.attributes: distance.tvd for distance in distances if len(distance.attributes) == 2
    }
    # exact counts have no noise that would have to be taken off
    return quality_score(pairs, dependences(true_association, (), 1.0))


def _k_marginal_score(
    places: Sequence[int], distance_of_set: Mapping[Attributes, float]
) -> float | None:
    """Return NIST's k-marginal score for k = 3 (SDNist, metrics/kmarginal.py), over all attributes alike; a copy has 1000."""
    sample = agreement.sampled_sets(places, 3, _SCORED)
    scored = [distance_of_set[attributes] for attributes in sample if attributes in distance_of_set]
    if not scored:
        return None
    return 1000 * (1 - math.fsum(scored) / len(scored))


def _measure_lengths(comparison: Comparison, sets: list[list[Attributes]]) -> list[_Measures]:
    """Return the sums and distances of each attribute set, by length: one pass over the records of both sides."""
    reference_records = len(comparison.reference)
    records = len(comparison.synthetic)
    is_exact = comparison.is_exact

    def measure(cells: Cells) -> _Measured:
        scaled = cells.scaled(comparison.scale)
        return _Measured(
            sums=agreement.combination_sums(scaled),
            buckets=agreement.bucket_sums(scaled),
            complete=agreement.known_distance(cells, reference_records, records),
            with_missing=agreement.total_variation(cells) if is_exact else None,
            released=int((cells.reference[cells.complete] > 0).sum()),
        )

    measured: list[_Measures] = []
    for sets_of_length in sets:
        measures = comparison.measure(sets_of_length, measure)
        measured.append(dict(zip(sets_of_length, measures, strict=True)))
    return measured


def _all(measured: list[_Measures]) -> _Measures:
    """Return the measures of the sets of all lengths."""
    every_set: _Measures = {}
    for sets_of_length in measured:
        every_set.update(sets_of_length)
    return every_set


def _agreement(
    comparison: Comparison,
    domain: Domain,
    measured: list[_Measures],
    distances: list[MarginalDistance],
    ordered: Collection[int],
    rules: tuple[BrokenRule, ...],
    *,
    sigmas: Mapping[Attributes, float],
    dependent: Mapping[Attributes, bool],
) -> RecordAgreement:
    """Return the agreement. Lengths without counts are left out: marginals of four columns have no counts of three."""
    records = len(comparison.synthetic)
    reference_records = len(comparison.reference)
    every_set = _all(measured)
    pairs = [attributes for attributes in every_set if len(attributes) == 2]
    buckets = agreement.count_buckets(measures.buckets for measures in every_set.values())
    expansion = None
    if reference_records > 0:
        expansion = 100 * (records / reference_records - 1)
    return RecordAgreement(
        records=records,
        reference_records=reference_records,
        expansion=expansion,
        lengths=tuple(_length_metrics(measured)),
        by_count=buckets,
        by_count_means=agreement.bucket_means(buckets),
        marginals=tuple(sorted(distances, key=lambda distance: -distance.tvd)[:_WORST]),
        association=association(
            comparison, domain.names, ordered, pairs, sigmas=sigmas, dependent=dependent
        ),
        rules=rules,
    )


def _length_metrics(measured: list[_Measures]) -> Iterator[LengthMetrics]:
    """Yield the metrics of each length that has counts."""
    for length, sets in enumerate(measured, start=1):
        if sets:
            yield agreement.length_metrics(
                length,
                [measures.sums for measures in sets.values()],
                [measures.complete for measures in sets.values() if measures.complete is not None],
                [
                    measures.with_missing
                    for measures in sets.values()
                    if measures.with_missing is not None
                ],
            )


def _distances(
    comparison: Comparison, distance_of_set: dict[Attributes, float]
) -> tuple[MeanDistance, ...]:
    """Return the mean distances of the lengths that were counted in full, then of a sample of longer sets."""
    single = [j for j in range(len(comparison.sizes)) if comparison.is_single(j)]
    counted = max((len(attributes) for attributes in distance_of_set), default=0)
    by_length: dict[int, list[float]] = {}
    for length in range(1, counted + 1):
        by_length[length] = [
            tvd for attributes, tvd in distance_of_set.items() if len(attributes) == length
        ]
    for length in _LONGER:
        if counted < length <= len(single):
            sample = agreement.sampled_sets(single, length, _SAMPLED)
            sampled_distances = comparison.measure(sample, agreement.total_variation)
            by_length[length] = [tvd for tvd in sampled_distances if tvd is not None]
    means: list[MeanDistance] = []
    for length, distances in by_length.items():
        if distances:
            mean = math.fsum(distances) / len(distances)
            mean_distance = MeanDistance(
                length=length,
                sets=len(distances),
                of=math.comb(len(single), length),
                tvd=mean,
                l1=2 * mean,
            )
            means.append(mean_distance)
    return tuple(means)


def _pair_sigmas(aggregates: Aggregates) -> dict[Attributes, float]:
    """Return the standard deviation of the noise of a count of each pair; a small count may also lack what was suppressed."""
    for noise in aggregates.noise:
        if noise.length == 2:
            sigma = math.hypot(noise.deviation, noise.threshold - 1)
            return dict.fromkeys(counted_sets(aggregates, 2), sigma)
    return {}


def _noise(aggregates: Aggregates, attributes: Attributes, released: int) -> float | None:
    """Return the distance that noise implies, from the sigma of the marginal, or of its length; None without noise."""
    if aggregates.measured:
        sigma = aggregates.measured[attributes]
    else:
        by_length = {noise.length: noise.deviation for noise in aggregates.noise}
        sigma = by_length.get(len(attributes))
    if sigma is None:
        return None
    return agreement.noise_distance(released, sigma, aggregates.record_count)


def _names(domain: Domain, attributes: Attributes) -> tuple[str, ...]:
    return tuple(domain.names[j] for j in attributes)
