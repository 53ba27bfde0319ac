"""Association of pairs of attributes, on each side: Cramér's V, mutual information, Spearman's rank correlation."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Integers
from marginweave.evaluate.association_noise import CHANCE, dependence
from marginweave.evaluate.cells import Cells, Comparison, FloatArray
from marginweave.evaluate.tallies import Attributes
from marginweave.released.evaluation import Association, Matrix, Measure

Values = tuple[float | None, float | None]


def association(
    comparison: Comparison,
    names: Sequence[str],
    ordered: Collection[int],
    pairs: Sequence[Attributes],
    above: Mapping[Attributes, float | bool],
) -> Association:
    """Measure each pair on both sides.

    Against a table missing is a value, but not for Spearman. Against released counts it is none, and an attribute of one value
    has no pair: there is nothing that could vary.

    Args:
        comparison: The two sides.
        names: Names of the attributes.
        ordered: Attributes whose codes are in the order of their values.
        pairs: The pairs that the reference knows.
        above: Of each pair with noise, whether it is above that (`dependent_pairs`), or the noise of its counts. Where
            chance and noise explain the reference it has no number (`dependence`); that of the records is a fact.

    Returns:
        Matrices and mean differences. DP: as private as the two sides.
    """

    def measured(cells: Cells) -> tuple[Values, Values, Values, bool] | None:
        if not cells.single:
            return None
        rows, columns = cells.numbering.codes(cells.keys)
        kept = np.ones(len(rows), np.bool_) if comparison.is_exact else cells.complete
        ranked = all(j in ordered for j in cells.numbering.attributes)
        sides = []
        for counts in (cells.reference, cells.synthetic):
            part = _occupied(rows, columns, counts, kept)
            rho = spearman(*_occupied(rows, columns, counts, cells.complete)) if ranked else None
            sides.append((cramers_v(*part), normalized_mutual_information(*part), rho))
        v, information, ranks = zip(*sides, strict=True)
        known = above.get(cells.numbering.attributes, True)
        if not isinstance(known, bool):
            known = dependence(*_occupied(rows, columns, cells.reference, kept), known).p < CHANCE
        if known or v[0] is None:
            return v, information, ranks, False
        return (None, v[1]), (None, information[1]), (None, ranks[1]), True

    if not comparison.is_exact:
        pairs = [pair for pair in pairs if all(comparison.sizes[j] > 1 for j in pair)]
    found = {p: m for p, m in zip(pairs, comparison.measure(pairs, measured), strict=True) if m is not None}
    single = [j for j in range(len(names)) if any(j in pair for pair in found)]
    with_order = [j for j in single if j in ordered]
    return Association(
        cramers_v=_measure(names, single, {p: m[0] for p, m in found.items()}),
        mutual_information=_measure(names, single, {p: m[1] for p, m in found.items()}),
        spearman=_measure(names, with_order, {p: m[2] for p, m in found.items()}),
        within_noise=sum(m[3] for m in found.values()) if above else None,
    )


def cramers_v(rows: Integers, columns: Integers, counts: FloatArray) -> float | None:
    """sqrt(sum (p - e)^2 / e / (min(r, c) - 1)) with e = p_row p_column, in [0, 1]; 0 where an attribute is constant.

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
    p, px, py = _probabilities(rows, columns, counts)
    r, c = int((px > 0).sum()), int((py > 0).sum())
    if min(r, c) < 2:
        return 0.0
    expected = px[rows] * py[columns]
    empty = 0.0 if len(p) == r * c else 1.0 - expected.sum()
    return math.sqrt(max(0.0, (((p - expected) ** 2 / expected).sum() + empty) / (min(r, c) - 1)))


def normalized_mutual_information(rows: Integers, columns: Integers, counts: FloatArray) -> float | None:
    """I(X; Y) / sqrt(H(X) H(Y)), in [0, 1]; 0 where an attribute is constant, None for an empty table.

    A. Strehl, J. Ghosh, Cluster Ensembles, JMLR 3 (2002). Arguments as for `cramers_v`. DP: as private as the counts.
    """
    if not len(counts):
        return None
    p, px, py = _probabilities(rows, columns, counts)
    information = float((p * np.log(p / (px[rows] * py[columns]))).sum())
    scale = math.sqrt(_entropy(px) * _entropy(py))
    return information / scale if scale > 0 else 0.0


def spearman(rows: Integers, columns: Integers, counts: FloatArray) -> float | None:
    """Pearson's correlation of average ranks, in [-1, 1], of attributes whose codes are in order; None for a constant one.

    C. Spearman (1904), with ties at their mean rank: of value v it is #{x < v} + (#{x = v} + 1) / 2.
    Arguments as for `cramers_v`. DP: as private as the counts.
    """
    if not len(counts):
        return None
    x, y = _centered_ranks(rows, counts), _centered_ranks(columns, counts)
    spread = math.sqrt(float((counts * x * x).sum()) * float((counts * y * y).sum()))
    return float((counts * x * y).sum()) / spread if spread > 0 else None


def _occupied(
    rows: Integers, columns: Integers, counts: FloatArray, kept: NDArray[np.bool_]
) -> tuple[Integers, Integers, FloatArray]:
    chosen = kept & (counts > 0)
    return rows[chosen], columns[chosen], counts[chosen]


def _probabilities(rows: Integers, columns: Integers, counts: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    p: FloatArray = counts / counts.sum()
    px, py = (np.bincount(codes, weights=p).astype(np.float64) for codes in (rows, columns))
    return p, px, py


def _entropy(p: FloatArray) -> float:
    p = p[p > 0]
    return max(0.0, -float((p * np.log(p)).sum()))


def _centered_ranks(codes: Integers, counts: FloatArray) -> FloatArray:
    """The mean rank of each cell's value, less the mean of all ranks, (n + 1) / 2."""
    numbers = np.bincount(codes, weights=counts)
    ranks: FloatArray = (np.cumsum(numbers) - numbers + (numbers + 1) / 2)[codes] - (numbers.sum() + 1) / 2
    return ranks


def _measure(names: Sequence[str], chosen: list[int], found: dict[Attributes, Values]) -> Measure:
    def matrix(side: int) -> Matrix:
        known: dict[Attributes, float | None] = {(j, j): 1.0 for j in chosen}
        known |= {pair: values[side] for pair, values in found.items()}
        return tuple(tuple(known.get((min(a, b), max(a, b))) for b in chosen) for a in chosen)

    gaps = [abs(one - other) for one, other in found.values() if one is not None and other is not None]
    return Measure(
        names=tuple(names[j] for j in chosen),
        reference=matrix(0),
        synthetic=matrix(1),
        mean_difference=math.fsum(gaps) / len(gaps) if gaps else None,
    )
