"""Association of pairs of attributes, on each side: Cramér's V, mutual information, Spearman, distance from independence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.evaluate.association_noise import dependence, pair_chance
from marginweave.evaluate.cells import Cells, Comparison
from marginweave.evaluate.tallies import Attributes
from marginweave.released.evaluation import Association, Matrix, Measure

Values = tuple[float | None, float | None]
"""The value of the reference and that of the synthetic records."""


def association(
    comparison: Comparison,
    names: Sequence[str],
    ordered: Collection[int],
    pairs: Sequence[Attributes],
    *,
    sigmas: Mapping[Attributes, float],
    dependent: Mapping[Attributes, bool],
) -> Association:
    """Measure each pair on both sides.

    Against a table a missing value counts as a value, except for Spearman. Against released counts, cells with a missing value
    are left out. So are pairs with an attribute of one value: nothing in them could vary.

    Args:
        comparison: The two sides.
        names: Names of the attributes.
        ordered: Attributes whose codes are in the order of their values.
        pairs: The pairs that the reference knows.
        sigmas: Standard deviation of the noise of a count of each pair, where this decides whether the pair depends more than
            chance and noise explain (`dependence`). Where they explain the reference, it has no number; the synthetic side
            keeps its number.
        dependent: The same decision for each pair where it was made before (`dependent_pairs`).

    Returns:
        Matrices and mean differences. DP: as private as the two sides.
    """

    def measure_pair(cells: Cells) -> _PairAssociation | None:
        if not cells.one_cell_per_record:
            return None
        pair = cells.numbering.attributes
        return _pair_association(
            cells,
            is_exact=comparison.is_exact,
            is_ordered=all(j in ordered for j in pair),
            sigma=sigmas.get(pair),
            chance=pair_chance(len(pairs)),
            is_dependent=dependent.get(pair, True),
        )

    if not comparison.is_exact:
        varied = {j for j, size in enumerate(comparison.sizes) if size > 1}
        pairs = [pair for pair in pairs if varied.issuperset(pair)]
    results = zip(pairs, comparison.measure(pairs, measure_pair), strict=True)
    measured = {pair: measures for pair, measures in results if measures is not None}
    paired = set(itertools.chain.from_iterable(measured))
    places = [j for j in range(len(names)) if j in paired]
    ordered_places = [j for j in places if j in ordered]
    within_noise = sum(measures.is_within_noise for measures in measured.values())
    return Association(
        cramers_v=_matrices(names, places, {pair: m.cramers_v for pair, m in measured.items()}),
        mutual_information=_matrices(
            names, places, {pair: m.mutual_information for pair, m in measured.items()}
        ),
        spearman=_matrices(
            names, ordered_places, {pair: m.spearman for pair, m in measured.items()}
        ),
        from_independence=_matrices(
            names, places, {pair: m.from_independence for pair, m in measured.items()}
        ),
        within_noise=within_noise if sigmas or dependent else None,
    )


@dataclass(frozen=True, kw_only=True)
class _PairAssociation:
    """The measures of a pair, each of the reference and of the synthetic records; None where there is no value."""

    cramers_v: Values
    mutual_information: Values
    spearman: Values
    from_independence: Values
    is_within_noise: bool


def _pair_association(
    cells: Cells,
    *,
    is_exact: bool,
    is_ordered: bool,
    sigma: float | None,
    chance: float,
    is_dependent: bool,
) -> _PairAssociation:
    """Return the measures of a pair.

    Args:
        cells: The cells of the pair on both sides.
        is_exact: Whether a missing value counts as a value, except for Spearman.
        is_ordered: Whether the codes of both attributes are in the order of their values.
        sigma: Standard deviation of the noise of a count of the reference, where it decides about the dependence.
        chance: The probability with which independent columns pass for dependent, then.
        is_dependent: Whether the dependence is above the noise, where `sigma` is None.
    """
    codes = cells.numbering.codes(cells.keys)
    compared = np.ones(len(cells.keys), np.bool_) if is_exact else cells.complete
    reference_table = _occupied(codes, cells.reference, compared)
    synthetic_table = _occupied(codes, cells.synthetic, compared)
    v = cramers_v(*reference_table)
    information = normalized_mutual_information(*reference_table)
    apart = distance_from_independence(*reference_table)
    rank_correlation = synthetic_rank_correlation = None
    if is_ordered:
        rank_correlation = spearman(*_occupied(codes, cells.reference, cells.complete))
        synthetic_rank_correlation = spearman(*_occupied(codes, cells.synthetic, cells.complete))

    if sigma is not None:
        is_dependent = dependence(*reference_table, sigma).p < chance
    is_within_noise = not is_dependent and v is not None
    if is_within_noise:
        v = information = rank_correlation = apart = None
    return _PairAssociation(
        cramers_v=(v, cramers_v(*synthetic_table)),
        mutual_information=(information, normalized_mutual_information(*synthetic_table)),
        spearman=(rank_correlation, synthetic_rank_correlation),
        from_independence=(apart, distance_from_independence(*synthetic_table)),
        is_within_noise=is_within_noise,
    )


def cramers_v(rows: Integers, columns: Integers, counts: Floats) -> float | None:
    """Return sqrt(sum (p - e)^2 / e / (min(r, c) - 1)) with e = p_row p_column, in [0, 1]; 0 where an attribute is constant.

    H. Cramér, Mathematical Methods of Statistics (1946), without bias correction; r and c count the values that occur.

    Args:
        rows: First value of each occupied cell of a contingency table, shape (cells,).
        columns: Second value, likewise.
        counts: Its count, above 0.

    Returns:
        V; None for an empty table. DP: as private as the counts.
    """
    if not len(counts):
        return None
    p, row_shares, column_shares = _probabilities(rows, columns, counts)
    r = int((row_shares > 0).sum())
    c = int((column_shares > 0).sum())
    smaller = min(r, c)
    if smaller < 2:
        return 0.0
    expected = row_shares[rows] * column_shares[columns]
    # a cell that does not occur has p = 0, and adds its e to the sum
    empty_cells = 0.0 if len(p) == r * c else 1.0 - expected.sum()
    occupied_cells = ((p - expected) ** 2 / expected).sum()
    square = (occupied_cells + empty_cells) / (smaller - 1)
    return math.sqrt(max(0.0, square))


def normalized_mutual_information(
    rows: Integers, columns: Integers, counts: Floats
) -> float | None:
    """Return I(X; Y) / sqrt(H(X) H(Y)), in [0, 1]; 0 where an attribute is constant, None for an empty table.

    A. Strehl, J. Ghosh, Cluster Ensembles, JMLR 3 (2002). Arguments as for `cramers_v`. DP: as private as the counts.
    """
    if not len(counts):
        return None
    p, row_shares, column_shares = _probabilities(rows, columns, counts)
    independent = row_shares[rows] * column_shares[columns]
    # I(X; Y) = sum p log(p / (p_row p_column))
    information = float((p * np.log(p / independent)).sum())
    scale = math.sqrt(_entropy(row_shares) * _entropy(column_shares))
    return information / scale if scale > 0 else 0.0


def distance_from_independence(rows: Integers, columns: Integers, counts: Floats) -> float | None:
    """Return sum |p - p_row p_column| / 2, in [0, 1): the distance (TVD) of a pair from independent columns with its shares.

    Arguments as for `cramers_v`; None for an empty table. DP: as private as the counts.
    """
    if not len(counts):
        return None
    p, row_shares, column_shares = _probabilities(rows, columns, counts)
    independent = row_shares[rows] * column_shares[columns]
    # cells that do not occur add their whole share of independent columns
    empty_cells = max(0.0, 1.0 - float(independent.sum()))
    return (float(np.abs(p - independent).sum()) + empty_cells) / 2


def spearman(rows: Integers, columns: Integers, counts: Floats) -> float | None:
    """Return Pearson's correlation of average ranks, in [-1, 1], of attributes with ordered codes; None for a constant one.

    C. Spearman (1904), with ties at their mean rank: of value v it is #{x < v} + (#{x = v} + 1) / 2.
    Arguments as for `cramers_v`. DP: as private as the counts.
    """
    if not len(counts):
        return None
    x = _centered_ranks(rows, counts)
    y = _centered_ranks(columns, counts)
    x_square = float((counts * x * x).sum())
    y_square = float((counts * y * y).sum())
    spread = math.sqrt(x_square * y_square)
    return float((counts * x * y).sum()) / spread if spread > 0 else None


def _occupied(
    codes: Sequence[Integers], counts: Floats, compared: Flags
) -> tuple[Integers, Integers, Floats]:
    """Return the codes of both attributes, and the counts, of the compared cells that occur."""
    rows, columns = codes
    occupied = compared & (counts > 0)
    return rows[occupied], columns[occupied], counts[occupied]


def _probabilities(
    rows: Integers, columns: Integers, counts: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the shares of the cells, of the values of the rows, and of those of the columns."""
    p: Floats = counts / counts.sum()
    row_shares = np.bincount(rows, weights=p).astype(np.float64)
    column_shares = np.bincount(columns, weights=p).astype(np.float64)
    return p, row_shares, column_shares


def _entropy(p: Floats) -> float:
    positive = p[p > 0]
    return max(0.0, -float((positive * np.log(positive)).sum()))


def _centered_ranks(codes: Integers, counts: Floats) -> Floats:
    """Return the mean rank of each cell's value, less the mean of all ranks, (n + 1) / 2."""
    numbers = np.bincount(codes, weights=counts)
    mean_ranks = np.cumsum(numbers) - numbers + (numbers + 1) / 2
    mean_of_all = (numbers.sum() + 1) / 2
    ranks: Floats = mean_ranks[codes] - mean_of_all
    return ranks


def _matrices(names: Sequence[str], places: list[int], values: dict[Attributes, Values]) -> Measure:
    """Return the matrices of a measure over some attributes, and the mean difference of both sides."""
    gaps: list[float] = []
    for reference, synthetic in values.values():
        if reference is not None and synthetic is not None:
            gaps.append(abs(reference - synthetic))
    return Measure(
        names=tuple(names[j] for j in places),
        reference=_matrix(places, {pair: sides[0] for pair, sides in values.items()}),
        synthetic=_matrix(places, {pair: sides[1] for pair, sides in values.items()}),
        mean_difference=math.fsum(gaps) / len(gaps) if gaps else None,
    )


def _matrix(places: list[int], values: dict[Attributes, float | None]) -> Matrix:
    """Return the symmetric matrix of a side, 1 on its diagonal."""
    rows: list[tuple[float | None, ...]] = []
    for first in places:
        row: list[float | None] = []
        for second in places:
            pair = (min(first, second), max(first, second))
            row.append(1.0 if first == second else values.get(pair))
        rows.append(tuple(row))
    return tuple(rows)
