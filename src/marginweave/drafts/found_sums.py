"""Finds numbers that are the days between two dates, or the sum of other numbers, exact to the decimals. Private. DP: none."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.configuration.columns import DateColumn, NumberColumn
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.drafts.chance import are_exceptions, holds_where_cells_vary
from marginweave.drafts.column_draft import ColumnDraft, plain
from marginweave.drafts.declared_cells import DeclaredTable, declared_column
from marginweave.drafts.drafted_dates import month_of, whole_months
from marginweave.drafts.relations import Relation, SampledTable, quoted

_NEARLY = 0.95
_MOST_TERMS = 5
_MOST_SUBSETS = 100_000
_LEAST_ROWS = 40
_ROWS_A_ROUND = 16
_ROUNDS = 6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def find_differences(tables: SampledTable, drafts: Mapping[str, ColumnDraft]) -> list[Relation]:
    """Return the sums numbers that are the days between two dates, or the seconds between two moments."""
    relations: list[Relation] = []
    computed: set[str] = set()
    counted: set[str] = set()
    lengths = [name for name in tables.kinds("number") if not _decimals(drafts[name])]
    for kind in ("date", "datetime"):
        exact = [name for name in tables.kinds(kind) if _is_exact(tables, name)]
        for (since, of), length in product(permutations(exact, 2), lengths):
            is_free = (
                of not in computed | counted and since not in computed and length not in counted
            )
            if is_free and _is_sum(tables, of, [since, length]):
                relation = _difference(tables, drafts, since, of, length)
                if relation is not None:
                    relations.append(relation)
                    computed.add(of)
                    counted |= {since, length}
    return relations


def _is_exact(tables: SampledTable, name: str) -> bool:
    column = tables.table.columns[name]
    return isinstance(column, DateColumn) and column.exact


def _decimals(draft: ColumnDraft) -> int:
    return int(draft.facts.get("decimals", 0))


def _is_sum(tables: SampledTable, total: str, parts: Sequence[str]) -> bool:
    """Return whether a column is the sum of others in the sample, also where cells are unusual."""
    first = _Sum(tables.first, total, parts)
    if first.adding_up.sum() < _NEARLY * first.filled.sum():
        return False
    return _Sum(tables.sample, total, parts).holds


@dataclass(frozen=True)
class _Sum:
    """The rows of a table in which `total` and all `parts` have a value, and those in which they add up."""

    table: DeclaredTable
    total: str
    parts: Sequence[str]

    @property
    def filled(self) -> Flags:
        """Rows with all values."""
        names = [self.total, *self.parts]
        return np.logical_and.reduce([self.table.read(name).filled for name in names])

    @property
    def adding_up(self) -> Flags:
        """Rows with all values in which the parts add up to the total, all in steps of the finest decimals."""
        names = [self.total, *self.parts]
        scales = _scales(self.table, names)
        remainder = self.table.read(self.total).values * scales[0]
        for name, scale in zip(self.parts, scales[1:], strict=True):
            remainder = remainder - self.table.read(name).values * scale
        return self.filled & (remainder == 0)

    @property
    def holds(self) -> bool:
        """Return whether all but a few rows keep it, also those in which a column has an unusual value."""
        adding_up = self.adding_up
        filled = self.filled
        rows = int(filled.sum())
        cells = [self.table.read(name) for name in (self.total, *self.parts)]
        enough = rows >= _LEAST_ROWS and are_exceptions(rows - int(adding_up.sum()), rows)
        return enough and holds_where_cells_vary(adding_up, filled, *cells)


def _scales(table: DeclaredTable, names: Sequence[str]) -> list[int]:
    """Return by what to multiply each column, to have all in steps of the same decimals; 1 for dates."""
    decimals = [getattr(table.columns[name], "decimals", 0) or 0 for name in names]
    return [10 ** (max(decimals) - own_decimals) for own_decimals in decimals]


def _difference(
    tables: SampledTable, drafts: Mapping[str, ColumnDraft], since: str, of: str, length: str
) -> Relation | None:
    """Return the difference, with bounds of the later date that hold all; None where the table breaks it too often."""
    sums = _Sum(tables.table, of, [since, length])
    rows = int(sums.filled.sum())
    broken = rows - int(sums.adding_up.sum())
    changed = _wide_dates(tables, drafts[of], since, of, length)
    if changed is None or not are_exceptions(broken, rows):
        return None
    unit = "days" if tables.table.columns[of].type == "date" else "seconds"
    return Relation(
        key="difference",
        entries=({"column": length, "of": of, "since": since},),
        columns=(length, of, since),
        words=f"{quoted(length)} is the number of {unit} from {quoted(since)} to {quoted(of)}",
        broken=broken,
        rows=rows,
        changes={of: changed},
        computed=(of,),
    )


def _wide_dates(
    tables: SampledTable, draft: ColumnDraft, since: str, of: str, length: str
) -> ColumnDraft | None:
    """Return the draft of the later date with bounds around all that can be added up; None beyond the years 1 to 9999."""
    columns = tables.table.columns
    least, most = _span_of_sum(columns[since], columns[length])
    column = columns[of]
    assert isinstance(column, DateColumn)
    first, last = column.span
    try:
        first_month = month_of(int(min(first, least)) * column.seconds)
        last_month = month_of(int(max(last, most)) * column.seconds)
        return replace(
            draft, facts={**draft.facts, "bounds": whole_months(first_month, last_month)}
        )
    except (OverflowError, ValueError):
        return None


def _span_of_sum(*parts: Any) -> tuple[Fraction, Fraction]:
    """Return the least and the largest sum of values within the bounds of columns."""
    spans = []
    for column in parts:
        assert isinstance(column, BinnedColumn)
        spans.append(column.span)
    return sum((low for low, _ in spans), Fraction()), sum((high for _, high in spans), Fraction())


def find_sums(
    tables: SampledTable, drafts: Mapping[str, ColumnDraft], taken: Collection[str]
) -> list[Relation]:
    """Return the numbers that are the sum of two or more others, which are no sums themselves where that can be.

    Columns in `taken` are part of other rules that compute, and of no sum.
    """
    numbers = [name for name in tables.kinds("number") if name not in taken]
    candidates = [
        _Sum(tables.sample, total, parts) for total, parts in _candidates(tables, numbers)
    ]
    sums = [candidate for candidate in candidates if candidate.holds]
    totals = {candidate.total for candidate in sums}

    def order(candidate: _Sum) -> tuple[bool, int, int]:
        names_total = not totals.isdisjoint(candidate.parts)
        return (
            names_total,
            int(candidate.filled.sum() - candidate.adding_up.sum()),
            len(candidate.parts),
        )

    relations: list[Relation] = []
    computed: set[str] = set()
    counted: set[str] = set()
    for candidate in sorted(sums, key=order):
        if candidate.total in computed | counted or not computed.isdisjoint(candidate.parts):
            continue
        relation = _sum(tables, drafts, candidate.total, candidate.parts)
        if relation is not None:
            relations.append(relation)
            computed.add(candidate.total)
            counted |= set(candidate.parts)
    return relations


def _candidates(
    tables: SampledTable, numbers: Sequence[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield sums that some rows of the sample keep, by sums of random multiples of their cells, modulo 2^64."""
    names = [name for name in numbers if tables.sample.read(name).filled.mean() > 0.5]
    if len(names) < 3:
        return
    filled = np.logical_and.reduce([tables.sample.read(name).filled for name in names])
    places = np.flatnonzero(filled)[: _ROUNDS * _ROWS_A_ROUND]
    if len(places) < _LEAST_ROWS - _ROWS_A_ROUND:
        return
    scales = _scales(tables.sample, names)
    cells = [
        tables.sample.read(name).values[places] * scale
        for name, scale in zip(names, scales, strict=True)
    ]
    rows = np.stack(cells).astype(np.uint64)  # negative numbers wrap around, as their sums do
    seen: set[tuple[int, ...]] = set()
    for start in range(0, len(places), _ROWS_A_ROUND):
        multiples = (
            np.arange(start + 1, start + 1 + _ROWS_A_ROUND, dtype=np.uint64) * _GOLDEN
        ) | np.uint64(1)
        round_rows = rows[:, start : start + _ROWS_A_ROUND]
        keys = (round_rows * multiples[: round_rows.shape[1]]).sum(axis=1, dtype=np.uint64)
        for total, parts in _matches(keys):
            if (total, *parts) not in seen:
                seen.add((total, *parts))
                yield names[total], [names[part] for part in parts]


def _matches(keys: NDArray[np.uint64]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield which key is the sum of which others: of few, or of any number that are side by side."""
    place_of = {int(key): place for place, key in enumerate(keys)}
    for subsets in _subsets(len(keys)):
        sums = keys[subsets].sum(axis=1, dtype=np.uint64)
        for row in np.flatnonzero(np.isin(sums, keys)):
            parts = [int(part) for part in subsets[row]]
            total = place_of[int(sums[row])]
            if total not in parts:
                yield total, parts


def _subsets(count: int) -> Iterator[Integers]:
    """Yield the subsets of up to `_MOST_TERMS` places, those of one size in one array, and longer runs of places."""
    for size in range(2, min(_MOST_TERMS, count - 1) + 1):
        if math.comb(count, size) > _MOST_SUBSETS:
            break
        yield np.array(list(combinations(range(count), size)), np.int64)
    for size in range(3, count):
        starts = np.arange(count - size + 1, dtype=np.int64)
        yield starts[:, None] + np.arange(size)


def _sum(
    tables: SampledTable, drafts: Mapping[str, ColumnDraft], total: str, parts: Sequence[str]
) -> Relation | None:
    """Return the sum, with the same decimals in all columns and bounds of the total that hold all of it.

    None where the table breaks it too often, or a column cannot be declared so.
    """
    sums = _Sum(tables.table, total, parts)
    rows = int(sums.filled.sum())
    broken = rows - int(sums.adding_up.sum())
    changes = _summable(drafts, total, parts)
    if changes is None or not are_exceptions(broken, rows):
        return None
    return Relation(
        key="sum",
        entries=({"column": total, "of": list(parts)},),
        columns=(total, *parts),
        words=f"{quoted(total)} is {' + '.join(map(quoted, parts))}",
        broken=broken,
        rows=rows,
        changes=changes,
        computed=(total,),
    )


def _summable(
    drafts: Mapping[str, ColumnDraft], total: str, parts: Sequence[str]
) -> dict[str, ColumnDraft] | None:
    decimals = max(_decimals(drafts[name]) for name in (total, *parts))
    changes: dict[str, ColumnDraft] = {}
    for name in (total, *parts):
        if _decimals(drafts[name]) < decimals:
            facts = {**drafts[name].facts, "decimals": decimals}
            changes[name] = replace(drafts[name], facts=facts)
    columns = {name: declared_column(changes.get(name, drafts[name])) for name in (total, *parts)}
    if None in columns.values():
        return None
    least, most = _span_of_sum(*(columns[name] for name in parts))
    first, last = _span_of_sum(columns[total])
    if first <= least and most <= last:
        return changes
    draft = changes.get(total, drafts[total])
    bounds = [plain(float(min(first, least))), plain(float(max(last, most)))]
    for bins in (draft.facts["bins"], 10):
        changes[total] = replace(draft, facts={**draft.facts, "bounds": bounds, "bins": bins})
        if isinstance(declared_column(changes[total]), NumberColumn):
            return changes
    return None
