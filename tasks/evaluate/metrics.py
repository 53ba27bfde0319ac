"""How well synthetic records keep the counts of attribute combinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Aggregates, Domain, IntArray, Level
from marginweave.schemas.errors import InputError
from marginweave.tasks.normalize.keys import row_keys

Codes = NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class LengthMetrics:
    """Agreement at one length k; S are the reference counts, Y the synthetic ones, of combinations without missing values.

    What SDS calls by the same name is in its data evaluator; where it leaves combinations out, this counts all of them.
    None stands where there is nothing to average.
    """

    length: int
    combinations: int
    """|{S > 0}|, over all column sets."""
    preservation: float | None
    """Mean of min(Y / S, 1) over {S > 0}: 1 is best. (SDS: over {Y > 0} as well, a fabricated one being 0.)"""
    suppressed: float | None
    """100 |{S > 0, Y = 0}| / |{S > 0}|."""
    fabricated: float | None
    """100 |{Y > 0, S = 0}| / |{Y > 0}|. (SDS divides by |{S > 0}|.)"""
    mean_error: float | None
    """Mean of |S - Y| over {S > 0 or Y > 0}, in records. (SDS: over {S > 0 and Y > 0}, which hides what is lost.)"""
    tvd: float | None
    """Mean over column sets of 1/2 sum |S / N - Y / n| over {S > 0}, all that is left of N and of n being one more cell."""
    tvd_missing: float | None
    """Mean over column sets of 1/2 sum |p - q| with missing as a value of its own; None against released counts."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of lengths 1, 2, … and the two numbers of records that they compare."""

    records: int
    reference_records: int
    lengths: tuple[LengthMetrics, ...]


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Counts over one column set: both sides of every complete combination, and the distance with missing values."""

    reference: NDArray[np.float64]
    synthetic: NDArray[np.float64]
    distance: float | None


def evaluate_release(records: Codes, aggregates: Aggregates) -> Evaluation:
    """Compare synthetic records with the released counts they were made from.

    N is the protected record count, or the sum of a column set's released counts where noise makes that larger. What the
    released counts leave of N, missing or suppressed, is one cell.

    Args:
        records: Codes, shape (n, columns), the size of a column being its missing value.
        aggregates: Released counts of lengths 1..R.

    Returns:
        Metrics of lengths 1..R. DP: post-processing.

    Raises:
        InputError: if the records do not have the columns of the domain.
    """
    columns = _columns(records, aggregates.domain)
    lengths = tuple(
        _summarize(
            level.length, _released_cells(columns, aggregates.domain, level), aggregates.record_count, len(records)
        )
        for level in aggregates.levels
    )
    return Evaluation(records=len(records), reference_records=aggregates.record_count, lengths=lengths)


def evaluate_internal(sensitive: Codes, records: Codes, domain: Domain, max_length: int = 3) -> Evaluation:
    """Compare synthetic records with the sensitive table itself.

    Args:
        sensitive: Codes of the sensitive records, shape (N, columns).
        records: Codes of the synthetic records, shape (n, columns).
        domain: Domain of both.
        max_length: Longest combination that is compared.

    Returns:
        Metrics of lengths 1..max_length. DP: none. Exact functions of sensitive rows: for `internal/` only.

    Raises:
        InputError: if a table does not have the columns of the domain.
    """
    reference, synthetic = _columns(sensitive, domain), _columns(records, domain)
    lengths = tuple(
        _summarize(k, _table_cells(reference, synthetic, domain, k), len(sensitive), len(records))
        for k in range(1, min(max_length, len(domain.names)) + 1)
    )
    return Evaluation(records=len(records), reference_records=len(sensitive), lengths=lengths)


def _columns(records: Codes, domain: Domain) -> list[IntArray]:
    """Each column as a contiguous array, which halves the time of all that follows."""
    if records.ndim != 2 or records.shape[1] != len(domain.names):
        raise InputError(f"records must have {len(domain.names)} columns, as the domain has")
    return [np.ascontiguousarray(records[:, j], dtype=np.int64) for j in range(records.shape[1])]


def _released_cells(columns: list[IntArray], domain: Domain, level: Level) -> Iterator[_Cells]:
    released = dict(level.by_columns())
    for chosen in combinations(range(len(columns)), level.length):
        rows = released.get(chosen, slice(0, 0))
        complete = np.logical_and.reduce([columns[j] < domain.sizes[j] for j in chosen])
        sides = [np.concatenate([level.values[rows, i], columns[j][complete]]) for i, j in enumerate(chosen)]
        keys, bound = _cell_numbers(sides, [domain.sizes[j] for j in chosen])
        split = rows.stop - rows.start
        reference = np.bincount(keys[:split], weights=level.counts[rows], minlength=bound).astype(np.float64)
        synthetic = np.bincount(keys[split:], minlength=bound).astype(np.float64)
        yield _Cells(reference=reference, synthetic=synthetic, distance=None)


def _table_cells(reference: list[IntArray], synthetic: list[IntArray], domain: Domain, length: int) -> Iterator[_Cells]:
    split = len(reference[0])
    both = [np.concatenate(sides) for sides in zip(reference, synthetic, strict=True)]
    present = [column < size for column, size in zip(both, domain.sizes, strict=True)]
    for chosen in combinations(range(len(both)), length):
        keys, bound = _cell_numbers([both[j] for j in chosen], [domain.sizes[j] + 1 for j in chosen])
        left = np.bincount(keys[:split], minlength=bound).astype(np.float64)
        right = np.bincount(keys[split:], minlength=bound).astype(np.float64)
        complete = np.zeros(bound, np.bool_)
        complete[keys] = np.logical_and.reduce([present[j] for j in chosen])
        distance = 0.5 * np.abs(_shares(left, split) - _shares(right, len(keys) - split)).sum()
        yield _Cells(reference=left[complete], synthetic=right[complete], distance=float(distance))


def _cell_numbers(columns: Sequence[IntArray], sizes: Sequence[int]) -> tuple[IntArray, int]:
    """A number for the cell of each row, and a bound of the order of the rows: large products are ranked first."""
    keys, bound = row_keys(columns, sizes)
    if bound <= 65536 + 4 * len(keys):
        return keys, bound
    distinct, ranks = np.unique(keys, return_inverse=True)
    return ranks, len(distinct)


def _shares(counts: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    return counts / max(total, 1)


def _summarize(length: int, column_sets: Iterator[_Cells], reference_records: int, records: int) -> LengthMetrics:
    """Pool the cells of all column sets of one length."""
    kept = lost = invented = shown = 0
    preserved = error = 0.0
    distances, with_missing = [], []
    for cells in column_sets:
        real, made = cells.reference > 0, cells.synthetic > 0
        kept += int(real.sum())
        shown += int(made.sum())
        lost += int((real & ~made).sum())
        invented += int((made & ~real).sum())
        error += float(np.abs(cells.reference - cells.synthetic).sum())
        there, here = cells.reference[real], cells.synthetic[real]
        preserved += float(np.minimum(here / there, 1).sum())
        total = max(reference_records, there.sum())
        p, q = _shares(there, total), _shares(here, records)
        distances.append(0.5 * float(np.abs(p - q).sum() + abs(p.sum() - q.sum())))
        if cells.distance is not None:
            with_missing.append(cells.distance)
    return LengthMetrics(
        length=length,
        combinations=kept,
        preservation=_ratio(preserved, kept),
        suppressed=_ratio(100.0 * lost, kept),
        fabricated=_ratio(100.0 * invented, shown),
        mean_error=_ratio(error, kept + invented),
        tvd=_ratio(sum(distances), len(distances)),
        tvd_missing=_ratio(sum(with_missing), len(with_missing)),
    )


def _ratio(total: float, number: int) -> float | None:
    return total / number if number else None
