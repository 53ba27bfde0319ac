"""Expected distances of the records of a release from the table, by its own noisy counts. DP: post-processing.

The expected distance t of a measured set of columns follows from how far its records are from its counts as drawn, d. Of n
cells with noise of deviation s, records that took over the noise of p of them are sqrt(p) s from the truth and sqrt(n - p) s
from the counts (L2); where they follow neither, b farther: d^2 = b^2 + (n - p) s^2 and t^2 = b^2 + p s^2. Where d^2 is below n
s^2, as if b were 0, t^2 = n s^2 - d^2; where it is above, as if p were 0, t^2 = d^2 - n s^2 (Stein 1981; here with L1 norms,
that of the noise as expected). How far drawn records are from the fitted model, r, is known, on average over the sets of a
length: all of this is of the model, with d^2 - r^2 in place of d^2, and t^2 is r^2 more. The share p/n is much the same in all
sets of so many columns, and its median is better known than that of any: a set is judged by its own d^2 where this is beyond
what chance does to the norm of noise (`_CHANCE`). The more cells, the less of their noise records take over: in triples of
affairs it was about a sixth of the share of pairs. A pair that was not chosen, by scores or in rounds, is about as far as noise
would have been (`_UNCHOSEN`), or it had been, and as chance makes two draws of independent columns. Where scores chose no pair
at all, that is the noise of one that is measured alone. These numbers are those of benchmarks/accuracy/verdicts.py;
docs/verdict.md says how often grades are right.

Counts of k-tuples are noisier than records, which are smoothed by what triples share: there it is the larger of the noise of a
set and what its records are beyond it. The mean distance of triples was 1.6 to 2.1 times that of pairs (docs/accuracy.md), and
is taken as twice the mean of the three, where this is less.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression
from marginweave.observations.means import expected_noise
from marginweave.records.decode import label_counts
from marginweave.released.evaluation import MarginalBound
from marginweave.released.verdict import CARE

# The least noise that records take over: of a column as a part of the norm, of larger sets as a part of its square.
_OF_COLUMN = 0.7
_OF_SETS = 0.02
# The square of the L1 norm of the noise of n cells has the standard deviation 2 sqrt(pi/2 - 1) / sqrt(n), as a part of it. This
# is one and a half times that.
_CHANCE = 1.5 * 2 * math.sqrt(math.pi / 2 - 1)
# The distance of a pair that was not chosen, as a part of the noise of measuring it.
_UNCHOSEN = 0.55
# The part of the records with merged values that counts as misplaced.
_MISPLACED = 0.25

Names = tuple[str, ...]
"""The names of a set of columns."""
Sets = Mapping[Names, float | None]


def merged_shares(compression: Compression, names: Sequence[str]) -> dict[str, float]:
    """Return, for each attribute, the share of records whose value is merged with others in sets of several columns."""
    shares: dict[str, float] = {}
    for name, codes, counts in zip(names, compression.codes, compression.counts, strict=True):
        records = np.maximum(counts, 0.0)
        values_of_code = np.bincount(codes)
        is_merged = values_of_code[codes] > 1
        merged_records = records[is_merged].sum()
        all_records = max(records.sum(), 1.0)
        shares[name] = float(merged_records / all_records)
    return shares


def set_errors(
    bounds: Sequence[MarginalBound],
    records: float,
    merged: Mapping[str, float] | None = None,
    drawn: Mapping[int, float] | None = None,
    *,
    is_smoothed: bool = True,
) -> dict[Names, float]:
    """Return the expected distance of every set that has counts, by its sorted names.

    Args:
        bounds: Distances of the records from the counts as drawn, with their noise.
        records: The noisy number of records.
        merged: `merged_shares`. Where values are merged, nothing measured which of them belong to which values of the other
            columns: a quarter of such records count as misplaced.
        drawn: By the length of a set, the mean distance of the records from the model that they were drawn from.
        is_smoothed: False for k-tuples only.
    """
    merged = merged or {}
    drawn = drawn or {}
    twice_records = 2 * max(records, 1.0)
    norms = {length: twice_records * distance for length, distance in drawn.items()}
    modelled = _model_bounds(bounds, norms)
    shares = _taken_shares(modelled)
    errors: dict[Names, float] = {}
    for bound, model_bound in zip(bounds, modelled, strict=True):
        if bound.noise is None:
            continue
        if is_smoothed:
            by_chance = math.sqrt(bound.distance**2 - model_bound.distance**2)
            share = shares.get(len(bound.attributes), _OF_SETS)
            of_model = _smoothed(model_bound, bound.noise, share)
            norm = math.hypot(of_model, by_chance)
        else:
            norm = _beyond(bound, bound.noise)
        misplaced = 0.0
        if len(bound.attributes) > 1:
            merged_of_columns = [merged.get(name, 0.0) for name in bound.attributes]
            misplaced = _MISPLACED * sum(merged_of_columns)
        error = norm / twice_records + misplaced
        errors[sorted_names(bound.attributes)] = min(1.0, error)
    return errors


def _model_bounds(
    bounds: Iterable[MarginalBound], drawn: Mapping[int, float]
) -> list[MarginalBound]:
    """Return the sets with the distance of the model; `drawn` is that of the records from it, in records (L1), by length."""
    modelled: list[MarginalBound] = []
    for bound in bounds:
        by_chance = drawn.get(len(bound.attributes), 0.0)
        square = max(bound.distance**2 - by_chance**2, 0.0)
        of_model = bound.model_copy(update={"distance": math.sqrt(square)})
        modelled.append(of_model)
    return modelled


def _taken_shares(bounds: Iterable[MarginalBound]) -> dict[int, float]:
    """Return, by the length of larger sets, the median share of their noise that records took over, at least `_OF_SETS`.

    Each is as if the records of a set followed nothing but its counts.
    """
    shares: dict[int, list[float]] = {}
    for bound in bounds:
        length = len(bound.attributes)
        if length > 1 and bound.noise:
            ratio = bound.distance / bound.noise
            shares.setdefault(length, []).append(1 - ratio**2)
    return {length: max(_OF_SETS, statistics.median(those)) for length, those in shares.items()}


def _beyond(bound: MarginalBound, noise: float) -> float:
    """Return the larger of the noise and the distance of the records beyond it, in records (L1)."""
    square = max(0.0, bound.distance**2 - noise**2)
    return max(noise, math.sqrt(square))


def _smoothed(bound: MarginalBound, noise: float, share: float) -> float:
    """Return the distance of a model that took over a part of the noise, in records (L1)."""
    noise_square = noise**2
    square = abs(noise_square - bound.distance**2)
    if len(bound.attributes) == 1:
        return max(_OF_COLUMN * noise, math.sqrt(square))
    chance = _chance(bound, noise)
    taken = share * noise_square
    return math.sqrt(max(taken, square - chance))


def _chance(bound: MarginalBound, noise: float) -> float:
    """Return by how much chance moves the square of the distance of a set, in records (L1)."""
    cells = 1.0
    if bound.deviation:
        cells = max(1.0, noise / expected_noise(bound.deviation, 1))
    return _CHANCE * noise**2 / math.sqrt(cells)


def pairs_of_chance(bounds: Iterable[MarginalBound], records: float) -> int:
    """Return how many measured pairs have so much noise that chance alone makes them worse than with care."""
    limit = (2 * max(records, 1.0) * CARE) ** 2
    pairs = [bound for bound in bounds if len(bound.attributes) == 2 and bound.noise]
    return sum(_chance(pair, pair.noise or 0.0) > limit for pair in pairs)


def unchosen_errors(
    distances: Mapping[Names, float],
    counts: Aggregates,
    deviation: float,
    passed_over: float = 0.0,
) -> dict[Names, float]:
    """Return the expected distance of every pair, as if it had not been chosen, from the counts of its two columns.

    With the shares p_a and q_b of their values, N records and noise of standard deviation s, a cell is off by what noise would
    have been in it, or by what independent columns have there, where this is less:
    sum_ab min(sqrt(2/pi) s, N p_a q_b) / (2 N). Where rounds had no share left for pairs that are farther than that, it is
    `passed_over`, and at most 2 e where all records except a share e have one value of a column.
    The rows and the records are also each a draw of the same columns: with the variance v = N p_a q_b (1 - p_a)(1 - q_b)
    of a cell of independent ones, they are sum_ab min(sqrt(4 v/pi), 2 N p_a q_b) / (2 N) apart.

    Args:
        distances: Expected distances by sorted names; pairs with a column that has none are left out.
        counts: The counts as released.
        deviation: s, in records.
        passed_over: The distance of pairs that rounds passed over; 0 without such pairs.
    """
    records = max(1.0, float(counts.record_count))
    noise = expected_noise(deviation, 1) / records
    columns: list[tuple[str, float, Floats]] = []
    counts_of_columns = label_counts(counts)
    for name, counts_of_values in zip(counts.domain.names, counts_of_columns, strict=True):
        distance = distances.get((name,))
        if distance is not None:
            shares = _shares(counts_of_values, records)
            columns.append((name, distance, shares))

    errors: dict[Names, float] = {}
    for first_column, second_column in itertools.combinations(columns, 2):
        first, first_distance, p = first_column
        second, second_distance, q = second_column
        independent = np.outer(p, q)
        noise_in_cells = np.minimum(noise, independent)
        by_noise = _UNCHOSEN * float(noise_in_cells.sum()) / 2
        first_limit = 2 * (1 - p.max())
        second_limit = 2 * (1 - q.max())
        pair_distance = max(by_noise, min(passed_over, first_limit, second_limit))
        p_variances = p * (1 - p)
        q_variances = q * (1 - q)
        variances = np.outer(p_variances, q_variances) / records
        draw_distances = np.sqrt(4 / math.pi * variances)
        chance_in_cells = np.minimum(draw_distances, 2 * independent)
        chance = float(chance_in_cells.sum()) / 2
        error = math.hypot(pair_distance, chance, first_distance, second_distance)
        errors[sorted_names((first, second))] = min(1.0, error)
    return errors


def _shares(counts: Floats, records: float) -> Floats:
    """Return the shares of the values of a column, and last the share of the records without a value."""
    shares = np.clip(counts / records, 0.0, 1.0)
    without_value = 1.0 - float(shares.sum())
    return np.append(shares, max(0.0, without_value))


def sorted_names(names: Sequence[str]) -> Names:
    """Return the names of a set of columns in the order by which it is looked up."""
    return tuple(sorted(names))


def expected_errors(distances: Mapping[Names, float | None], names: Sequence[str]) -> Sets:
    """Return the expected distance of every column and pair, None for one of which nothing is known, and of measured triples.

    `distances` has that of sets by themselves, by their sorted names. Pairs say nothing of what three columns have in common
    beyond them, so that a triple is known only where it was measured; `worse_triples` has what is known of the others.
    """
    place = {name: i for i, name in enumerate(names)}
    errors: dict[Names, float | None] = {}
    for columns, distance in distances.items():
        ordered = sorted(columns, key=place.__getitem__)
        errors[tuple(ordered)] = distance
    for pair in itertools.combinations(names, 2):
        column_errors = [errors.get((name,)) for name in pair]
        errors[pair] = _at_least(errors.get(pair), column_errors)
    for triple, measured in [item for item in errors.items() if len(item[0]) == 3]:
        pair_errors = [errors.get(pair) for pair in itertools.combinations(triple, 2)]
        known_errors = [error for error in pair_errors if error is not None]
        if measured is not None and len(known_errors) == len(pair_errors):
            by_pairs = 2 * statistics.fmean(known_errors)
            errors[triple] = _at_least(min(measured, 1.0, by_pairs), known_errors)
    return errors


def worse_triples(errors: Sets, empty: AbstractSet[str] = frozenset()) -> int:
    """Return how many triples without a distance have a pair that is worse than with care: they are no better than it.

    Of n columns with the matrix A of pairs that have a property, the triples of which all pairs have it are sum (A A) * A / 6.

    Args:
        errors: Expected distances of columns, pairs and measured triples.
        empty: Columns of which nothing is released: all their sets are worse.
    """
    names = sorted(frozenset().union(*errors))
    place = {name: i for i, name in enumerate(names)}
    no_worse = 1.0 - np.eye(len(names))
    for columns, error in errors.items():
        if len(columns) == 2 and error is not None and error > CARE:
            places = [place[name] for name in columns]
            no_worse[places, places[::-1]] = 0
    for name in empty & place.keys():
        no_worse[place[name]] = no_worse[:, place[name]] = 0
    measured_worse = 0
    for columns, error in errors.items():
        if len(columns) == 3 and error is not None:
            places = [place[name] for name in columns]
            measured_worse += bool(no_worse[np.ix_(places, places)].sum() < 6)
    all_no_worse = round(float(((no_worse @ no_worse) * no_worse).sum()) / 6)
    return math.comb(len(names), 3) - all_no_worse - measured_worse


def _at_least(error: float | None, parts: Iterable[float | None]) -> float | None:
    """Return the error of a set, at least that of each of its parts: a distance only falls where cells are added up.

    The error of a set that was not measured is None, unless a part of it is worse than with care.
    """
    known_parts = [part for part in parts if part is not None]
    worst = max([error or 0.0, *known_parts])
    return None if error is None and worst <= CARE else worst
