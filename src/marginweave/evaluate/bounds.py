"""Bounds from releases alone: the L1 distance of marginals from the sensitive ones, and what bounding contributions cut off."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import combinations_of, forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.domain.masks import Clique
from marginweave.estimate.consistency import Holders
from marginweave.estimate.intervals import LEVEL, project
from marginweave.estimate.marginals import cell_deviations, compression_of
from marginweave.evaluate.association_noise import CHANCE, dependence
from marginweave.evaluate.cells import Records, Released, number_set
from marginweave.evaluate.tallies import Numbering, Tally
from marginweave.mechanisms.catalogue import count_noise
from marginweave.mechanisms.percentile import percentile_fraction, score_sensitivity
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.means import expected_noise
from marginweave.observations.tables import Marginals, Observation
from marginweave.released.evaluation import MarginalBound
from marginweave.released.statement import BoundingBias


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
    return distance + sigma * (math.sqrt(2 * math.log(2)) * cells + tail * math.sqrt(2 * cells))


def marginal_bounds(marginals: Marginals, records: Records, configuration: Configuration) -> tuple[MarginalBound, ...]:
    """A bound for every measured set of attributes and every pair inside one, missing as a value.

    All complete measurements with Gaussian noise that hold r are combined by inverse variance: M~_r = sum_i w_i M~_i,
    w_i proportional to 1/s_i^2, s_i^2 = g_i (sd_i^2 + 1/12) for a sum of g_i cells, and 1/s^2 = sum_i 1/s_i^2. Beyond single
    attributes counts are over values as they were measured together. The records are weighted to the noisy total. Laplace
    noise has heavier tails than the bound allows: None where there is no other. DP: post-processing.

    Args:
        marginals: as they were drawn; where they are pooled with those of earlier releases, all is of both together.
        records: synthetic records, of attributes that have one value a record.
        configuration: what is declared, bounds resolved.
    """
    compression = compression_of(marginals, configuration)[1]
    one_way, wider = marginals.measured
    total = max(0.0, sum(m.total for m in one_way) / len(one_way))
    weight = total / max(len(records), 1)
    found = []
    chosen = sorted(cell_deviations([*one_way, *wider]), key=lambda c: (len(c), c))
    larger = Holders([m.attributes for m in wider])
    numberings = [number_set(columns, marginals.domain.sizes, [records]) for columns in chosen]
    for columns, numbering, tally in zip(chosen, numberings, records.each(numberings), strict=True):
        alone = len(columns) == 1
        unmerged = all(compression.sizes[a] == len(compression.codes[a]) for a in columns)
        holders = [wider[i] for i in larger.of(columns)] if not alone or unmerged else []
        holders += [one_way[columns[0]]] if alone else []
        complete = [m for m in holders if m.complete and count_noise(m.noise).is_normal]
        noisy, sigma = _combined(complete or holders, columns)
        mean_error = min(count_noise(m.noise).mean_error for m in complete or holders)
        merged = [np.arange(n) if alone else compression.codes[a] for n, a in zip(noisy.shape, columns, strict=True)]
        made, others = _table(numbering, tally, merged, noisy.shape)
        distance = float(np.abs(noisy.ravel() - made * weight).sum())
        away = others * weight  # of the rows there are none outside the cells
        bound = distance_bound(distance, sigma, noisy.size) + away if complete else None
        names = tuple(marginals.domain.names[a] for a in columns)
        noise = mean_error * sigma * noisy.size
        found.append(
            MarginalBound(attributes=names, distance=distance + away, bound=bound, noise=noise, deviation=sigma)
        )
    return tuple(found)


def dependent_pairs(marginals: Marginals) -> dict[Clique, bool]:
    """Of each pair of attributes inside a marginal, whether it differs from independent ones by more than chance and noise.

    By the counts of all marginals that hold it, as they were drawn: what makes counts consistent takes from rare values. DP:
    post-processing.
    """
    wider, found = marginals.measured[1], dict[Clique, bool]()
    holders = Holders([m.attributes for m in wider])
    for pair in (columns for columns in cell_deviations(wider) if len(columns) == 2):
        table, sigma = _combined([wider[i] for i in holders.of(pair)], pair)
        rows, columns = np.indices(table.shape).reshape(2, -1)
        found[pair] = dependence(rows, columns, table.ravel(), sigma, signed=True).p < CHANCE
    return found


def combination_bounds(drawn: Aggregates, records: Records, configuration: Configuration) -> tuple[MarginalBound, ...]:
    """A bound for the released combinations of every set of columns, of the counts with bounded contributions.

    What was suppressed is not known, and no part of either sum. Which cells were released depends on their noise, so the noise
    of all n candidates of the set of columns (or what bounds their number from above) is what `distance_bound` takes for that
    of the released ones. At length 1 the number of candidates of a private domain is not public: bound None. DP:
    post-processing.

    Args:
        drawn: counts as drawn, before they were made consistent.
        records: synthetic records over the domain of the counts.
        configuration: what is declared, bounds resolved.
    """
    weight = drawn.record_count / max(len(records), 1)
    sides = Released(aggregates=drawn), records
    undeclared_counts = {cells.name: cells.count for cells in drawn.domain.undeclared if cells.kept}
    found = []
    for level, noise in zip(drawn.levels, drawn.noise, strict=True):
        sigma = math.sqrt(noise.deviation**2 + 1 / 12)
        sets = list(_released_sets(drawn, level, configuration))
        numberings = [number_set(columns, drawn.domain.sizes, sides) for columns, _, _ in sets]
        tallies = zip(numberings, records.each(numberings), strict=True)
        for (columns, rows, candidates), (numbering, tally) in zip(sets, tallies, strict=True):
            made = tally.at(numbering.keys(level.values[rows].T)) * weight
            distance = float(np.abs(level.counts[rows] - made).sum())
            bound = None if candidates is None else distance_bound(distance, sigma, candidates)
            names = tuple(drawn.domain.names[a] for a in columns)
            counts = level.counts[rows]
            undeclared = max((undeclared_counts.get(name, 0) for name in names), default=0)
            lost = max(0.0, drawn.record_count - float(counts.sum()) - undeclared)
            if candidates is not None and noise.contribution_bound >= configuration.contribution_cap(noise.length):
                # the rest of the records lack a value: thresholds alone suppress, and no more than they are in each cell
                lost = min(lost, (candidates - len(counts)) * float(noise.threshold))
            alone = expected_noise(sigma, len(counts)) + lost
            found.append(MarginalBound(attributes=names, distance=distance, bound=bound, noise=alone, deviation=sigma))
    return tuple(found)


def _combined(holders: Sequence[Observation], columns: Clique) -> tuple[NDArray[np.float64], float]:
    """The inverse-variance mean of what several marginals say of some attributes, and its s."""
    parts = [(project(m, columns), m.deviation**2 + 1 / 12) for m in holders]
    precisions = [1 / (summed * variance) for (_, summed), variance in parts]
    total = np.sum([p * counts for p, ((counts, _), _) in zip(precisions, parts, strict=True)], axis=0)
    return total / sum(precisions), sum(precisions) ** -0.5


def _released_sets(
    drawn: Aggregates, level: Level, configuration: Configuration
) -> Iterator[tuple[Clique, slice, int | None]]:
    """Each set of columns with its rows and how many candidates it had, or None where that is not public."""
    sizes = drawn.domain.sizes
    if level.length == 1:
        private = [attribute.private for attribute in configuration.attributes]
        yield from ((c, rows, None if private[c[0]] else sizes[c[0]]) for c, rows in level.by_columns())
        return
    forbidden = combinations_of(forbidden_codes(configuration.forbidden, drawn.domain.labels))
    candidates = CandidateSet.above(drawn.levels[level.length - 2], sizes, forbidden)
    yield from ((c, rows, candidates.counts[c]) for c, rows in level.by_columns())


def _table(
    numbering: Numbering, tally: Tally, merged: Sequence[NDArray[np.integer]], shape: Sequence[int]
) -> tuple[NDArray[np.int64], int]:
    """Records in each cell of some attributes, flat, where value v of attribute i is the value `merged[i][v]`.

    And how many are in no cell: records that stay incomplete (`relax: false`) may lack a value that cannot be missing.
    """
    codes = numbering.codes(tally.keys)
    inside = np.logical_and.reduce([c < len(m) for m, c in zip(merged, codes, strict=True)])
    cells = [m[c[inside]].astype(np.int64) for m, c in zip(merged, codes, strict=True)]
    counts = np.zeros(math.prod(shape), np.int64)
    np.add.at(counts, np.ravel_multi_index(cells, tuple(shape)), tally.counts[inside])
    return counts, int(tally.counts[~inside].sum())


def bounding_biases(
    configuration: Configuration, epsilons: Mapping[int, float], aggregates: Aggregates
) -> tuple[BoundingBias, ...]:
    """The bias of every released length, by the epsilon of the percentile that was bought for each; see `most_cut_records`.

    0 where no record can hold more than Delta_k, its public cap, and for marginals, in which every record counts once. Not
    known where rows or values were left out before the noisy counts: rows of a subject beyond its most, values of a cell
    beyond its cap, a table that was resized. DP: post-processing.
    """
    return tuple(_bias(configuration, epsilons, aggregates, noise) for noise in aggregates.noise)


def most_cut_records(configuration: Configuration, epsilon: float, aggregates: Aggregates, length: int) -> int:
    """With probability `LEVEL`, no more records than this hold more than Delta_k combinations; k = `length`.

    Each of them takes 1 at most from any one count. With q the percentile, F(c) the number of records that hold c at most, s
    the score and S its sensitivity in units of 1/b: the exponential mechanism chooses a score below its maximum by more than
    (2 S / epsilon) ln(cap/beta) with probability beta at most (McSherry, Talwar 2007, theorem 6). The maximum is 0, or q N
    lies below F(0); in both cases q N - F(Delta_k) <= (2 S / (b epsilon)) ln(cap/beta). Of the N records, at most
    n + 1/2 + z_beta sigma from the noisy count n, no more than (1 - q) N + q N - F(Delta_k) are above Delta_k. beta is half
    of 1 - LEVEL in each. DP: post-processing of the record count; the rest is public.

    Raises:
        InputError: no percentile is bought.
    """
    if configuration.percentile is None:
        raise InputError("percentile must be bought to bound what it cuts")
    beta = (1 - LEVEL) / 2
    fraction = percentile_fraction(configuration.percentile)
    sensitivity = score_sensitivity(configuration.percentile, configuration.stability) / fraction.denominator
    missed = 2 * sensitivity / epsilon * math.log(configuration.contribution_cap(length) / beta)
    records = aggregates.record_count + 0.5 - float(ndtri(beta)) * aggregates.record_deviation
    return math.floor(float(1 - fraction) * records + missed)


def _bias(
    configuration: Configuration, epsilons: Mapping[int, float], aggregates: Aggregates, noise: LevelNoise
) -> BoundingBias:
    k = noise.length
    if unknown := _left_out(configuration):
        return BoundingBias(length=k, records=None, confidence=None, words=f"not known: {unknown}")
    if configuration.marginals is not None or noise.contribution_bound >= configuration.contribution_cap(k):
        return BoundingBias(length=k, records=0, confidence=1.0, words="0: no record can hold more than was counted")
    records = most_cut_records(configuration, epsilons[k], aggregates, k)
    words = (
        f"at most {records:,}: with confidence {LEVEL:g} no more records than that hold more than "
        f"{noise.contribution_bound:,} combinations of length {k}, and each takes 1 at most from a count"
    )
    return BoundingBias(length=k, records=records, confidence=LEVEL, words=words)


def _left_out(configuration: Configuration) -> str | None:
    """Why the rows as counted are not the rows as prepared, or None."""
    subject = configuration.privacy.subject
    if configuration.resize is not None:
        return "the counted table is a sample"
    if subject is not None and not subject.join:
        return "rows of a subject beyond max_records were left out"
    if configuration.cut_sets:
        return f"values of a cell beyond max_values were left out (column {next(iter(configuration.cut_sets))!r})"
    return None
