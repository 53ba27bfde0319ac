"""Finds categories that name ranges of a number, such as an income class beside the income. Private. DP: none."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.configuration.columns import NumberColumn
from marginweave.drafts.chance import needed_evidence
from marginweave.drafts.column_draft import MOST_VALUES, ColumnDraft, plain
from marginweave.drafts.declared_cells import DeclaredTable, declared_column
from marginweave.drafts.relations import Relation, SampledTable, quoted

_MOST_COMMON = 0.9
"""Largest share of the most frequent range: another column guesses that without any relation."""


@dataclass(frozen=True)
class _Range:
    """The least and the largest number that the rows with one value of the category have, in steps of its decimals."""

    label: str
    least: int
    largest: int
    rows: int


def find_brackets(
    tables: SampledTable,
    drafts: Mapping[str, ColumnDraft],
    computed: Collection[str],
    known: Sequence[Relation],
) -> list[Relation]:
    """Return the categories that are not `computed` and have ranges of a number, each by the first such number.

    No row may break it, and no rule that is `known` may be between the two. The number gets the ends of the ranges as edges of
    its bins, beside those that it has.
    """
    numbers = [name for name in tables.kinds("number") if name not in computed]
    categories = [
        name
        for name in tables.kinds("category")
        if name not in computed and tables.table.columns[name].public_cells
    ]
    least_evidence = needed_evidence(len(numbers) * len(categories))
    relations: list[Relation] = []
    changed = dict(drafts)
    for name in categories:
        for by in numbers:
            if any({name, by} == set(rule.columns) for rule in known):
                continue
            relation = _relation(tables, changed, by, name, least_evidence)
            if relation is not None:
                relations.append(relation)
                changed |= relation.changes
                break
    return relations


def _relation(
    tables: SampledTable,
    drafts: Mapping[str, ColumnDraft],
    by: str,
    name: str,
    least_evidence: float,
) -> Relation | None:
    """Return the rule that the values of a category are ranges of a number; None where they are not."""
    if not _ranges(tables.first, by, name):
        return None
    if _evidence(_ranges(tables.sample, by, name)) < least_evidence:
        return None
    ranges = _ranges(tables.table, by, name)
    ends = list(_ends(ranges))
    column = tables.table.columns[by]
    assert isinstance(column, NumberColumn)
    scale = 10 ** (column.decimals or 0)
    edges = [plain(end / scale) for end in ends]
    changed = with_edges(drafts[by], edges) if edges else None
    if changed is None:
        return None
    rows = sum(bracket.rows for bracket in ranges)
    return Relation(
        key="forbidden",
        entries=list(_entries(tables.table, by, name, ranges, edges)),
        columns=(name, by),
        words=f"{quoted(name)} says in which range {quoted(by)} lies",
        broken=0,
        rows=rows,
        changes={by: changed},
    )


def _ranges(table: DeclaredTable, by: str, name: str) -> list[_Range]:
    """Return the ranges in order; none where two overlap, or one has nearly all rows."""
    numbers = table.read(by)
    labels = table.read(name)
    both = numbers.filled & labels.filled
    values = numbers.values[both]
    places = labels.values[both]
    if not len(values):
        return []
    counts = np.bincount(places, minlength=len(labels.labels))
    if counts.max() > _MOST_COMMON * len(values) or int((counts > 0).sum()) > MOST_VALUES:
        return []
    least, largest = _extremes(values, places, len(counts))
    present = np.flatnonzero(counts)
    order = present[np.argsort(least[present], kind="stable")]
    if (largest[order[:-1]] >= least[order[1:]]).any():
        return []
    return [
        _Range(labels.labels[place], int(least[place]), int(largest[place]), int(counts[place]))
        for place in map(int, order)
    ]


def _extremes(values: Integers, places: Integers, count: int) -> tuple[Integers, Integers]:
    """Return the least and the largest value of each place, shape (count,)."""
    least = np.full(count, np.iinfo(np.int64).max)
    largest = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(least, places, values)
    np.maximum.at(largest, places, values)
    return least, largest


def _evidence(ranges: Sequence[_Range]) -> float:
    """Return -ln of the chance that shuffled labels lie in ranges: k! prod n_i! of n! orders of the rows do."""
    if len(ranges) < 2:
        return 0.0
    rows = sum(bracket.rows for bracket in ranges)
    in_ranges = math.lgamma(len(ranges) + 1) + sum(
        math.lgamma(bracket.rows + 1) for bracket in ranges
    )
    return math.lgamma(rows + 1) - in_ranges


def _ends(ranges: Sequence[_Range]) -> Iterator[int]:
    """Yield where one range ends and the next one begins: the roundest number between the two."""
    for low, high in pairwise(ranges):
        yield _roundest(low.largest, high.least)


def _roundest(above: int, last: int) -> int:
    """Return the multiple of the largest 10^k, or half of that, that is more than `above` and at most `last`."""
    step = 10 ** len(str(max(abs(above), abs(last))))
    while True:
        for width in (step, step // 2):
            multiple = last // width * width if width else last
            if multiple > above:
                return multiple
        step //= 10


def _entries(
    table: DeclaredTable, by: str, name: str, ranges: Sequence[_Range], edges: Sequence[float]
) -> Iterator[Mapping[str, Any]]:
    """Yield for each range that no other value of the category is in it; and the same where the number is missing."""
    for place, bracket in enumerate(ranges):
        limits: dict[str, float] = {}
        if place:
            limits["from"] = edges[place - 1]
        if place < len(edges):
            limits["below"] = edges[place]
        yield {by: limits, name: {"but": [bracket.label]}}
    missing = table.columns[by].missing
    cells = table.read(name)
    gaps = ~table.read(by).filled
    if missing and gaps.any():
        places = np.unique(cells.places[gaps])
        if len(places) == 1 and int(places[0]) < len(cells.labels):
            yield {by: [missing[0]], name: {"but": [cells.labels[int(places[0])]]}}


def with_edges(draft: ColumnDraft, edges: Sequence[float]) -> ColumnDraft | None:
    """Return the draft of a number with more edges of bins, or with these alone; None where a configuration has neither."""
    column = declared_column(draft)
    if not isinstance(column, NumberColumn):
        return None
    low, high = column.clamp
    decimals = column.decimals or 0
    own_edges = {round(edge, decimals) for edge in column.edges}
    for all_edges in ({*own_edges, *edges}, {*edges}):
        bins = sorted({low, high} | {edge for edge in all_edges if low < edge < high})
        facts = {**draft.facts, "bins": [plain(edge) for edge in bins]}
        changed = replace(draft, facts=facts)
        if isinstance(declared_column(changed), NumberColumn):
            return changed
    return None
