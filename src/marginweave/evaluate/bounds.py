"""Bounds from releases alone, of two things.

The first is the L1 distance of marginals of synthetic records from the sensitive ones, the second the bias of bounded
contributions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from marginweave.base.arrays import Floats, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import combinations_of, forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.domain.masks import Clique
from marginweave.estimate.holders import Holders
from marginweave.estimate.intervals import LEVEL, project
from marginweave.estimate.marginals import cell_deviations, compression_of
from marginweave.evaluate.association_noise import dependence, pair_chance
from marginweave.evaluate.cells import Records, Released, number_set
from marginweave.evaluate.tallies import Numbering, Tally
from marginweave.mechanisms.catalogue import count_noise
from marginweave.mechanisms.percentile import percentile_fraction, score_sensitivity
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.means import expected_noise
from marginweave.observations.tables import Marginals, Observation
from marginweave.released.evaluation import MarginalBound
from marginweave.released.statement import BoundingBias
from marginweave.texts.sentences import Sentence, report_sentence


def distance_bound(distance: float, sigma: float, cells: int, *, level: float = LEVEL) -> float:
    """||M - M(S)||_1 <= ||M~ - M(S)||_1 + sqrt(2 ln 2) s n + lambda s sqrt(2 n) with probability 1 - e^{-lambda^2} = level.

    McKenna, Mullins, Sheldon, Miklau 2022 (AIM), section 5, for marginals inside a measured one. ||M - M(S)||_1 is at most
    ||M~ - M(S)||_1 + ||N||_1, wherever S comes from. For noise N of n independent cells with E e^{tN_i} <= e^{t^2 s^2/2},
    E e^{t|N_i|} <= E e^{tN_i} + E e^{-tN_i} <= 2 e^{t^2 s^2/2}, so P(||N||_1 >= a) <= exp(n ln 2 + n t^2 s^2/2 - t a); the best
    t = a/(n s^2) leaves exp(n ln 2 - a^2/(2 n s^2)), which is exp(-lambda^2 - 2 lambda sqrt(n ln 2)) at
    a = sqrt(2 ln 2) s n + lambda s sqrt(2 n). Rounded noise of sigma sd has s^2 = sd^2 + 1/12: rounding adds a factor
    sinh(t/2)/(t/2) <= e^{t^2/24} (to e^{-2 pi^2 sd^2}; a test checks it for every sd). DP: post-processing.

    Args:
        distance: ||M~ - M(S)||_1, in records.
        sigma: s, in records, at least 0.
        cells: n, at least 0.
        level: of confidence, in (0, 1).

    Raises:
        InputError: an argument out of range.
    """
    if not 0 < level < 1:
        raise InputError(f"level ({level}) must lie strictly between 0 and 1")
    if min(distance, sigma, cells) < 0:
        raise InputError("distance, sigma and cells must not be negative")
    tail = math.sqrt(-math.log1p(-level))
    norm = math.sqrt(2 * math.log(2)) * cells
    return distance + sigma * (norm + tail * math.sqrt(2 * cells))


def marginal_bounds(
    marginals: Marginals, records: Records, configuration: Configuration
) -> tuple[MarginalBound, ...]:
    """Return a bound for every measured set of attributes and every pair inside one, missing as a value.

    All complete measurements with Gaussian noise that hold r are combined by inverse variance: M~_r = sum_i w_i M~_i,
    w_i proportional to 1/s_i^2, s_i^2 = g_i (sd_i^2 + 1/12) for a sum of g_i cells, and 1/s^2 = sum_i 1/s_i^2. Sets of several
    attributes are counted over merged values, as they were measured. The records are weighted to the noisy total. Laplace
    noise has heavier tails than the bound allows: None where there is no other. An empty cell of a record is missing or not as
    declared: where both were counted, their counts are added up, the noise of which is at most that of both. DP:
    post-processing.

    Args:
        marginals: as they were drawn; where they are pooled with those of earlier releases, all is of both together.
        records: synthetic records, of attributes that have one value a record.
        configuration: what is declared, bounds resolved.
    """
    compression = compression_of(marginals, configuration)[1]
    gaps = _missing_codes(marginals, configuration)
    one_way, wider = marginals.measured
    sets = list(cell_deviations([*one_way, *wider]))
    sets.sort(key=lambda attributes: (len(attributes), attributes))
    numberings = [number_set(attributes, marginals.domain.sizes, [records]) for attributes in sets]
    tallies = records.each(numberings)
    holders_of = Holders([marginal.attributes for marginal in wider])
    total = max(0.0, sum(marginal.total for marginal in one_way) / len(one_way))
    weight = total / max(len(records), 1)
    bounds: list[MarginalBound] = []
    for attributes, numbering, tally in zip(sets, numberings, tallies, strict=True):
        is_single = len(attributes) == 1
        is_unmerged = all(compression.sizes[a] == len(compression.codes[a]) for a in attributes)
        holders: list[Observation] = []
        # A merged single attribute uses its own counts only: larger marginals count its merged values.
        if is_unmerged or not is_single:
            holders += [wider[i] for i in holders_of.of(attributes)]
        if is_single:
            holders.append(one_way[attributes[0]])

        normal = [
            holder for holder in holders if holder.complete and count_noise(holder.noise).is_normal
        ]
        used = normal or holders
        noisy, sigma = _combined(used, attributes)
        merged_codes = [compression.codes[a] for a in attributes]
        if is_single:
            merged_codes = [np.arange(len(noisy))]
        counts, outside = _count_cells(numbering, tally, merged_codes, noisy.shape)
        differences = noisy - counts.reshape(noisy.shape) * weight
        distance = _distance(differences, attributes, gaps, merged_codes)
        outside_distance = outside * weight  # no row of the table is outside the cells
        bound = None
        if normal:
            bound = distance_bound(distance, sigma, noisy.size) + outside_distance
        mean_error = min(count_noise(holder.noise).mean_error for holder in used)
        marginal_bound = MarginalBound(
            attributes=tuple(marginals.domain.names[a] for a in attributes),
            distance=distance + outside_distance,
            bound=bound,
            noise=mean_error * sigma * noisy.size,
            deviation=sigma,
        )
        bounds.append(marginal_bound)
    return tuple(bounds)


def _missing_codes(marginals: Marginals, configuration: Configuration) -> dict[int, int]:
    """Return the code of a missing value by attribute, of those that count cells which are not as declared, too."""
    counted = configuration.with_undeclared(marginals.domain.with_undeclared)
    sizes = marginals.domain.sizes
    return {
        a: sizes[a] for a, attribute in enumerate(counted.attributes) if len(attribute.gaps) > 1
    }


def _distance(
    differences: Floats,
    attributes: Clique,
    gaps: Mapping[int, int],
    merged_codes: Sequence[NDArray[np.integer]],
) -> float:
    """Return the L1 distance of two tables by their differences, missing cells and those of the last code as one cell."""
    for axis, attribute in enumerate(attributes):
        if attribute in gaps:
            cells = np.moveaxis(differences, axis, 0)
            together = cells[:-1].copy()
            together[merged_codes[axis][gaps[attribute]]] += cells[-1]
            differences = np.moveaxis(together, 0, axis)
    return float(np.abs(differences).sum())


def dependent_pairs(marginals: Marginals) -> dict[Clique, bool]:
    """Return, for each pair of attributes inside a marginal, whether it depends more than chance and noise explain.

    The counts are those of all marginals that hold the pair, as drawn, because making counts consistent takes from rare values.
    DP: post-processing.
    """
    wider = marginals.measured[1]
    holders_of = Holders([marginal.attributes for marginal in wider])
    is_dependent: dict[Clique, bool] = {}
    pairs = [attributes for attributes in cell_deviations(wider) if len(attributes) == 2]
    for attributes in pairs:
        holders = [wider[i] for i in holders_of.of(attributes)]
        table, sigma = _combined(holders, attributes)
        rows, columns = np.indices(table.shape).reshape(2, -1)
        test = dependence(rows, columns, table.ravel(), sigma, signed=True)
        is_dependent[attributes] = test.p < pair_chance(len(pairs))
    return is_dependent


@dataclass(frozen=True, kw_only=True)
class _ReleasedSet:
    """The released combinations of a set of columns, and the number of its candidates; None where that is not public."""

    attributes: Clique
    rows: slice
    candidates: int | None


def combination_bounds(
    drawn: Aggregates, records: Records, configuration: Configuration
) -> tuple[MarginalBound, ...]:
    """Return a bound for the released combinations of every set of columns, of the counts with bounded contributions.

    Suppressed combinations are not known, and no part of either sum. Which cells were released depends on their noise, so the
    noise of all n candidates of the set of columns (or an upper bound of their number) is what `distance_bound` takes for that
    of the released ones. At length 1 the number of candidates of a private domain is not public: bound None. DP:
    post-processing.

    Args:
        drawn: counts as drawn, before they were made consistent.
        records: synthetic records over the domain of the counts.
        configuration: what is declared, bounds resolved.
    """
    weight = drawn.record_count / max(len(records), 1)
    sides = (Released(aggregates=drawn), records)
    bounds: list[MarginalBound] = []
    for level, noise in zip(drawn.levels, drawn.noise, strict=True):
        sigma = math.sqrt(noise.deviation**2 + 1 / 12)
        sets = list(_released_sets(drawn, level, configuration))
        numberings = [
            number_set(released.attributes, drawn.domain.sizes, sides) for released in sets
        ]
        tallies = records.each(numberings)
        for released, numbering, tally in zip(sets, numberings, tallies, strict=True):
            counts = level.counts[released.rows]
            keys = numbering.keys(level.values[released.rows].T)
            synthetic = tally.at(keys) * weight
            distance = float(np.abs(counts - synthetic).sum())
            bound = None
            if released.candidates is not None:
                bound = distance_bound(distance, sigma, released.candidates)
            suppressed = _suppressed_records(released, counts, drawn, noise, configuration)
            marginal_bound = MarginalBound(
                attributes=tuple(drawn.domain.names[a] for a in released.attributes),
                distance=distance,
                bound=bound,
                noise=expected_noise(sigma, len(counts)) + suppressed,
                deviation=sigma,
            )
            bounds.append(marginal_bound)
    return tuple(bounds)


def _suppressed_records(
    released: _ReleasedSet,
    counts: NDArray[np.integer],
    drawn: Aggregates,
    noise: LevelNoise,
    configuration: Configuration,
) -> float:
    """Return the number of records whose combination was suppressed, at most: those that the counts of a set lack."""
    names = [drawn.domain.names[a] for a in released.attributes]
    undeclared_counts = {cells.name: cells.count for cells in drawn.domain.undeclared if cells.kept}
    undeclared = max((undeclared_counts.get(name, 0) for name in names), default=0)
    lacking = max(0.0, drawn.record_count - float(counts.sum()) - undeclared)
    is_unbounded = noise.contribution_bound >= configuration.contribution_cap(noise.length)
    if released.candidates is None or not is_unbounded:
        return lacking
    # the other records lack a value: only thresholds suppress, and at most the threshold in each cell
    return min(lacking, (released.candidates - len(counts)) * float(noise.threshold))


def _combined(holders: Sequence[Observation], attributes: Clique) -> tuple[Floats, float]:
    """Return the inverse-variance mean of the counts of some attributes in several marginals, and its s."""
    tables: list[Integers] = []
    precisions: list[float] = []
    for holder in holders:
        table, summed_cells = project(holder, attributes)
        variance = holder.deviation**2 + 1 / 12
        tables.append(table)
        precisions.append(1 / (summed_cells * variance))
    weighted = [p * table for p, table in zip(precisions, tables, strict=True)]
    total = np.sum(weighted, axis=0)
    return total / sum(precisions), sum(precisions) ** -0.5


def _released_sets(
    drawn: Aggregates, level: Level, configuration: Configuration
) -> Iterator[_ReleasedSet]:
    """Yield each set of columns of a level."""
    sizes = drawn.domain.sizes
    if level.length == 1:
        for attributes, rows in level.by_columns():
            place = attributes[0]
            candidates = None if configuration.attributes[place].private else sizes[place]
            yield _ReleasedSet(attributes=attributes, rows=rows, candidates=candidates)
        return
    forbidden = combinations_of(forbidden_codes(configuration.forbidden, drawn.domain.labels))
    shorter = drawn.levels[level.length - 2]
    counts = CandidateSet.above(shorter, sizes, forbidden).counts
    for attributes, rows in level.by_columns():
        yield _ReleasedSet(attributes=attributes, rows=rows, candidates=counts[attributes])


def _count_cells(
    numbering: Numbering,
    tally: Tally,
    merged_codes: Sequence[NDArray[np.integer]],
    shape: Sequence[int],
) -> tuple[Integers, int]:
    """Return the records in each cell of some attributes, flat, and the number of records that are in no cell.

    Value v of attribute i is the value `merged_codes[i][v]`. Records that stay incomplete (`relax: false`) may lack a value
    that cannot be missing; they are in no cell.
    """
    columns = list(zip(merged_codes, numbering.codes(tally.keys), strict=True))
    has_cell = np.logical_and.reduce([codes < len(merged) for merged, codes in columns])
    cells = [merged[codes[has_cell]].astype(np.int64) for merged, codes in columns]
    counts = np.zeros(math.prod(shape), np.int64)
    np.add.at(counts, np.ravel_multi_index(cells, tuple(shape)), tally.counts[has_cell])
    return counts, int(tally.counts[~has_cell].sum())


def bounding_biases(
    configuration: Configuration, epsilons: Mapping[int, float], aggregates: Aggregates
) -> tuple[BoundingBias, ...]:
    """Return the bias of every released length, by the epsilon of the percentile that was bought for each.

    See `most_cut_records`. The bias is 0 where no record can hold more than Delta_k, its public cap, and for marginals, in
    which every record counts once. It is not known where rows or values were left out before the noisy counts: rows of a
    subject beyond its most, values of a cell beyond its cap, a table that was resized. DP: post-processing.
    """
    return tuple(_bias(configuration, epsilons, aggregates, noise) for noise in aggregates.noise)


def most_cut_records(
    configuration: Configuration,
    epsilon: float,
    aggregates: Aggregates,
    length: int,
) -> int:
    """Return a number of records: with probability `LEVEL`, no more hold more than Delta_k combinations; k = `length`.

    Each of them takes 1 at most from any one count. With q the percentile, F(c) the number of records that hold c at most, s
    the score and S its sensitivity in units of 1/b:

    1. The exponential mechanism chooses a score below its maximum by more than (2 S / epsilon) ln(cap/beta) with probability
       beta at most (McSherry, Talwar 2007, theorem 6).
    2. The maximum is 0, or q N lies below F(0); in both cases q N - F(Delta_k) <= (2 S / (b epsilon)) ln(cap/beta).
    3. N is at most n + 1/2 + z_beta sigma, from the noisy count n.
    4. Of the N records, no more than (1 - q) N + q N - F(Delta_k) are above Delta_k.

    beta is half of 1 - LEVEL in each. DP: post-processing of the record count; the rest is public.

    Raises:
        InputError: no percentile is bought.
    """
    if configuration.percentile is None:
        raise InputError("percentile must be bought to bound what it cuts")
    beta = (1 - LEVEL) / 2
    fraction = percentile_fraction(configuration.percentile)
    sensitivity = (
        score_sensitivity(configuration.percentile, configuration.stability) / fraction.denominator
    )
    missed = 2 * sensitivity / epsilon * math.log(configuration.contribution_cap(length) / beta)
    records = aggregates.record_count + 0.5 - float(ndtri(beta)) * aggregates.record_deviation
    return math.floor(float(1 - fraction) * records + missed)


def _bias(
    configuration: Configuration,
    epsilons: Mapping[int, float],
    aggregates: Aggregates,
    noise: LevelNoise,
) -> BoundingBias:
    """Return the bias of the counts of one length."""
    k = noise.length
    unknown = _rows_left_out(configuration)
    if unknown is not None:
        return BoundingBias(length=k, records=None, confidence=None, words=str(unknown))
    if (
        configuration.marginals is not None
        or noise.contribution_bound >= configuration.contribution_cap(k)
    ):
        return BoundingBias(
            length=k, records=0, confidence=1.0, words=str(report_sentence("bias.none"))
        )
    records = most_cut_records(configuration, epsilons[k], aggregates, k)
    sentence = report_sentence(
        "bias.at-most", records=records, level=LEVEL, most=noise.contribution_bound, length=k
    )
    return BoundingBias(length=k, records=records, confidence=LEVEL, words=str(sentence))


def _rows_left_out(configuration: Configuration) -> Sentence | None:
    """Return why the rows as counted are not the rows as prepared, or None."""
    subject = configuration.privacy.subject
    if configuration.resize is not None:
        return report_sentence("bias.sample")
    if subject is not None and not subject.join:
        return report_sentence("bias.rows")
    if configuration.cut_sets:
        return report_sentence("bias.values", column=next(iter(configuration.cut_sets)))
    return None
