"""Boxes: the records that structural zeros allow, without overlap. Each box has a set of codes for every attribute."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.domain.masks import Clique, Mask, StructuralZeros, alike

Box = Mapping[int, Integers]
"""For each tied attribute, the kinds of codes in a box."""
Table = tuple[Clique, Flags]


def allowed_boxes(
    sizes: Sequence[int],
    masks: Sequence[StructuralZeros],
    most: int,
) -> Flags | None:
    """Return the boxes of all that the masks allow, shape (boxes, codes of all attributes); None for more than `most`.

    Codes that no mask tells apart remain in one box. A box of which a mask forbids a part is split by the attribute whose
    codes are treated in the fewest ways, and left out where nothing is allowed. No box for masks that contradict each other.
    DP: arithmetic on public masks.
    """
    tied: set[int] = set()
    for mask in masks:
        tied.update(mask.attributes)
    kinds: dict[int, Integers] = {}
    first: dict[int, Integers] = {}
    everything: dict[int, Integers] = {}
    for a in sorted(tied):
        kinds[a] = alike(a, sizes[a], masks)
        _, first[a] = np.unique(kinds[a], return_index=True)
        everything[a] = np.arange(len(first[a]))
    waiting: list[Box] = [everything]
    tables: list[Table] = []
    for mask in masks:
        if isinstance(mask, Mask):
            first_codes = [first[a] for a in mask.attributes]
            tables.append((mask.attributes, mask.table(first_codes)))
        else:
            codes = zip(mask.attributes, mask.codes, strict=True)
            never = {a: int(kinds[a][code]) for a, code in codes}
            parts = [_without(box, never) for box in waiting]
            waiting = list(itertools.chain(*parts))
    boxes: list[Box] = []
    while waiting:
        box = _shrunk(waiting.pop(), tables)
        if box is not None:
            tables_of_box = _tables_inside(box, tables)
            divided = [(clique, table) for clique, table in tables_of_box if not table.all()]
            if divided:
                waiting.extend(_split(box, divided))
            else:
                boxes.append(box)
        if len(boxes) + len(waiting) > most:
            return None
    return _flags(boxes, sizes, kinds)


def _flags(
    boxes: Sequence[Box],
    sizes: Sequence[int],
    kinds: Mapping[int, Integers],
) -> Flags:
    """Return which codes each box has, shape (boxes, codes of all attributes)."""
    offsets = np.cumsum([0, *sizes])
    flags = np.ones((len(boxes), offsets[-1]), np.bool_)
    for row, box in zip(flags, boxes, strict=True):
        for a, codes in kinds.items():
            start = offsets[a]
            stop = offsets[a + 1]
            row[start:stop] = np.isin(codes, box[a])
    return flags


def _without(box: Box, never: Mapping[int, int]) -> Iterator[Box]:
    """Yield the box without records of these kinds of all attributes, in parts: by the first that has another kind."""
    remaining = dict(box)
    for a, kind in never.items():
        kinds = remaining[a]
        allowed = kinds[kinds != kind]
        if len(allowed):
            yield {**remaining, a: allowed}
        if len(allowed) == len(kinds):
            return
        remaining[a] = np.array([kind])


def _tables_inside(box: Box, tables: Sequence[Table]) -> list[Table]:
    """Return what masks allow over the kinds of codes in a box."""
    return [(clique, _table_inside(box, clique, table)) for clique, table in tables]


def _table_inside(
    box: Box,
    clique: Clique,
    table: Flags,
) -> Flags:
    """Return what a mask allows over the kinds of codes in a box, one axis for each attribute of the clique."""
    kinds = [box[a] for a in clique]
    return table[np.ix_(*kinds)]


def _shrunk(box: Box, tables: Sequence[Table]) -> Box | None:
    """Return the box without codes that a mask forbids entirely; None if nothing remains."""
    shrunk = dict(box)
    while True:
        before = {a: len(codes) for a, codes in shrunk.items()}
        for clique, table in tables:
            for axis, a in enumerate(clique):
                inside = _table_inside(shrunk, clique, table)
                cells = np.moveaxis(inside, axis, 0)
                rows = cells.reshape(len(cells), -1)
                is_allowed = rows.any(axis=1)
                shrunk[a] = shrunk[a][is_allowed]
                if not len(shrunk[a]):
                    return None
        after = {a: len(codes) for a, codes in shrunk.items()}
        if after == before:
            return shrunk


def _split(box: Box, divided: Sequence[Table]) -> list[Box]:
    """Return the box in parts, by an attribute of the masks `divided`: in each part, they treat its codes alike."""
    attributes: set[int] = set()
    for clique, _ in divided:
        attributes.update(clique)
    ways: dict[int, Integers] = {}
    for a in sorted(attributes):
        rows = []
        for clique, table in divided:
            if a in clique:
                cells = np.moveaxis(table, clique.index(a), 0)
                rows.append(cells.reshape(len(box[a]), -1))
        _, way_of_code = np.unique(np.hstack(rows), axis=0, return_inverse=True)
        ways[a] = way_of_code.reshape(-1)
    several = [a for a, way in ways.items() if way.max() > 0]

    def preference(a: int) -> tuple[int, int, int]:
        masks = sum(a in clique for clique, _ in divided)
        return ways[a].max(), -masks, a

    best = min(several, key=preference)
    way_of_code = ways[best]
    last_way = int(way_of_code.max())
    parts = []
    for way in range(last_way + 1):
        is_in_part = way_of_code == way
        parts.append({**box, best: box[best][is_in_part]})
    return parts


# Where rules leave more boxes than _MOST_BOXES, or a pair has more cells, only the rules themselves exclude pairs.
_MOST_BOXES = 256
_MOST_CELLS = 1 << 20


def implied_pairs(sizes: Sequence[int], masks: Sequence[StructuralZeros]) -> tuple[Mask, ...]:
    """Return masks of pairs of attributes that follow from masks through others: cells that are in none of the boxes.

    DP: arithmetic on public masks.
    """
    implied = []
    offsets = np.cumsum([0, *sizes])
    for part in tied_parts(mask.attributes for mask in masks):
        masks_of_part = [mask for mask in masks if part.issuperset(mask.attributes)]
        boxes = allowed_boxes(sizes, masks_of_part, _MOST_BOXES) if len(part) > 2 else None
        if boxes is None or not len(boxes):
            continue
        inside: dict[int, NDArray[np.float32]] = {}
        for a in part:
            start = offsets[a]
            stop = offsets[a + 1]
            inside[a] = boxes[:, start:stop].astype(np.float32)
        mask_of_clique = {mask.attributes: mask for mask in masks_of_part}
        for pair in itertools.combinations(sorted(part), 2):
            first, second = pair
            if sizes[first] * sizes[second] > _MOST_CELLS:
                continue
            # number of boxes that have both codes
            boxes_of_cell = inside[first].T @ inside[second]
            allowed = boxes_of_cell > 0
            by_rules = np.ones_like(allowed)
            if pair in mask_of_clique:
                by_rules = mask_of_clique[pair].table()
            if not np.array_equal(allowed, by_rules):
                implied.append(Mask(attributes=pair, allowed=allowed))
    return tuple(implied)
