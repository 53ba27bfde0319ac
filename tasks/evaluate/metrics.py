"""The evaluation of synthetic records: against released counts, which may be released, or against the sensitive table."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from math import comb
from typing import NamedTuple

from marginweave.schemas.released.aggregates import Aggregates, Domain
from marginweave.schemas.released.evaluation import (
    Association,
    BrokenRule,
    InternalEvaluation,
    MarginalDistance,
    MeanDistance,
    RecordAgreement,
)
from marginweave.tasks.evaluate.association import association
from marginweave.tasks.evaluate.cells import Cells, Comparison, FloatArray, Records, Released, counted_sets
from marginweave.tasks.evaluate.classifiers import downstream, has_scikit_learn, propensity
from marginweave.tasks.evaluate.combinations import (
    bucket_means,
    bucket_sums,
    combination_sums,
    count_buckets,
    length_metrics,
)
from marginweave.tasks.evaluate.distances import (
    SAMPLED,
    SCORED,
    k_marginal_score,
    known_distance,
    mean_distance,
    noise_distance,
    sampled_sets,
    total_variation,
    worst,
)
from marginweave.tasks.evaluate.tallies import Attributes, Codes

_LONGER = (4, 5)
_WITHOUT_SCIKIT_LEARN = "propensity and downstream need scikit-learn: pip install 'marginweave[evaluation]'"


class _Measured(NamedTuple):
    """What is kept of the cells of one attribute set."""

    sums: dict[str, float]
    buckets: FloatArray
    known: float | None
    with_missing: float | None
    released: int


def evaluate_release(
    records: Records, aggregates: Aggregates, *, ordered: Collection[int] = (), rules: tuple[BrokenRule, ...] = ()
) -> RecordAgreement:
    """Compare synthetic records with the released counts they were made from; of marginals, those that were measured.

    N is the protected record count, or the sum of a column set's released counts where noise makes that larger. What the
    released counts leave of N, missing or suppressed, is one cell.

    Args:
        records: Codes over the released domain.
        aggregates: Released counts of lengths 1..R.
        ordered: Attributes whose codes stand in the order of their values.
        rules: What `broken_rules` says of the records.

    Returns:
        Metrics of lengths 1..R, without those of which marginals measured none. DP: post-processing.
    """
    domain, total = aggregates.domain, aggregates.record_count
    comparison = Comparison(reference=Released(aggregates=aggregates), synthetic=records, sizes=domain.sizes)
    sets = [counted_sets(aggregates, level.length) for level in aggregates.levels]
    measured = _measured(comparison, sets, total)
    distances = [
        MarginalDistance(attributes=_names(domain, a), tvd=m.known, noise=_noise(aggregates, a, m.released))
        for found in measured
        for a, m in found.items()
        if m.known is not None
    ]
    pairs = sets[1] if len(sets) > 1 else []
    linked = association(comparison, domain.names, ordered, pairs, with_missing=False)
    return _agreement(len(records), total, measured, distances, linked, rules, released=True)


def evaluate_internal(
    sensitive: Codes,
    records: Codes,
    domain: Domain,
    max_length: int = 3,
    *,
    ordered: Collection[int] = (),
    target: int | None = None,
    rules: tuple[BrokenRule, ...] = (),
    sensitive_rules: tuple[BrokenRule, ...] = (),
) -> InternalEvaluation:
    """Compare synthetic records with the sensitive table itself.

    Args:
        sensitive: Codes of the sensitive records, one array an attribute.
        records: Codes of the synthetic records, likewise.
        domain: Domain of both.
        max_length: Longest combination of which all are compared.
        ordered: Attributes whose codes stand in the order of their values.
        target: The attribute that a classifier is to predict, or None.
        rules: What `broken_rules` says of the records.
        sensitive_rules: What it says of the sensitive rows.

    Returns:
        Metrics of lengths 1..max_length. DP: none. Exact functions of sensitive rows: for `internal/` only.

    Raises:
        InputError: if a table does not have the columns of the domain.
    """
    real, made = Records.of(sensitive, domain), Records.of(records, domain)
    comparison = Comparison(reference=real, synthetic=made, sizes=domain.sizes)
    places = range(len(domain.names))
    sets = [list(combinations(places, k)) for k in range(1, min(max_length, len(places)) + 1)]
    measured = _measured(comparison, sets, len(real))
    by_set = {a: m.with_missing for found in measured for a, m in found.items() if m.with_missing is not None}
    scored = [by_set[attributes] for attributes in sampled_sets(places, 3, SCORED) if attributes in by_set]
    distances = [MarginalDistance(attributes=_names(domain, a), tvd=tvd, noise=None) for a, tvd in by_set.items()]
    linked = association(comparison, domain.names, ordered, list(combinations(places, 2)), with_missing=True)
    agreement = _agreement(len(made), len(real), measured, distances, linked, rules, released=False)
    learned, predicted = has_scikit_learn(), None if target is None else (target, domain.names[target])
    return InternalEvaluation(
        **dict(agreement),
        distances=_distances(comparison, by_set),
        k_marginal_score=k_marginal_score(scored),
        sensitive_rules=sensitive_rules,
        propensity=propensity(sensitive, records, domain.sizes) if learned else None,
        downstream=downstream(sensitive, records, domain.sizes, *predicted) if learned and predicted else None,
        absent=() if learned else (_WITHOUT_SCIKIT_LEARN,),
    )


def _measured(comparison: Comparison, sets: list[list[Attributes]], total: int) -> list[dict[Attributes, _Measured]]:
    """Each attribute set, by length: one pass over the records of both sides."""
    made = len(comparison.synthetic)

    def measure(cells: Cells) -> _Measured:
        return _Measured(
            sums=combination_sums(cells),
            buckets=bucket_sums(cells),
            known=known_distance(cells, total, made),
            with_missing=total_variation(cells),
            released=int((cells.reference[cells.complete] > 0).sum()),
        )

    return [dict(zip(chosen, comparison.measure(chosen, measure), strict=True)) for chosen in sets]


def _agreement(
    records: int,
    reference_records: int,
    measured: list[dict[Attributes, _Measured]],
    distances: list[MarginalDistance],
    linked: Association,
    rules: tuple[BrokenRule, ...],
    *,
    released: bool,
) -> RecordAgreement:
    """Lengths are those of which something was counted: marginals of four columns say nothing of three."""
    buckets = count_buckets(m.buckets for found in measured for m in found.values())
    return RecordAgreement(
        records=records,
        reference_records=reference_records,
        expansion=100 * (records / reference_records - 1) if reference_records > 0 else None,
        lengths=tuple(
            length_metrics(
                length,
                [m.sums for m in found.values()],
                [m.known for m in found.values() if m.known is not None],
                [m.with_missing for m in found.values() if m.with_missing is not None and not released],
            )
            for length, found in enumerate(measured, start=1)
            if found
        ),
        by_count=buckets,
        by_count_means=bucket_means(buckets),
        marginals=worst(distances),
        association=linked,
        rules=rules,
    )


def _distances(comparison: Comparison, by_set: dict[Attributes, float]) -> tuple[MeanDistance, ...]:
    """The lengths that were counted in full, then a sample of longer ones."""
    size = len(comparison.sizes)
    single = [j for j in range(size) if all(side.is_single(j) for side in (comparison.reference, comparison.synthetic))]
    counted = max((len(attributes) for attributes in by_set), default=0)
    means = [
        mean_distance(k, comb(len(single), k), [tvd for attributes, tvd in by_set.items() if len(attributes) == k])
        for k in range(1, counted + 1)
    ]
    for k in _LONGER:
        if counted < k <= len(single):
            distances = comparison.measure(sampled_sets(single, k, SAMPLED), total_variation)
            means.append(mean_distance(k, comb(len(single), k), [tvd for tvd in distances if tvd is not None]))
    return tuple(mean for mean in means if mean is not None)


def _noise(aggregates: Aggregates, attributes: Attributes, released: int) -> float | None:
    """The distance that noise implies, from the deviation of the marginal, or of its length."""
    if aggregates.measured is not None:
        deviation: float | None = aggregates.measured[attributes]
    else:
        deviation = next((n.deviation for n in aggregates.noise if n.length == len(attributes)), None)
    return None if deviation is None else noise_distance(released, deviation, aggregates.record_count)


def _names(domain: Domain, attributes: Attributes) -> tuple[str, ...]:
    return tuple(domain.names[j] for j in attributes)
