"""The records that structural zeros allow, as boxes that do not overlap: each gives every attribute a set of codes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from marginweave.base.arrays import Flags, Integers
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.domain.masks import Clique, Mask, StructuralZeros, alike

Inside = Mapping[int, Integers]  # of each tied attribute the kinds of codes in a box
Table = tuple[Clique, Flags]


def allowed_boxes(sizes: Sequence[int], masks: Sequence[StructuralZeros], most: int) -> Flags | None:
    """The boxes that hold what all masks allow, shape (boxes, codes of all attributes); None for more than `most`.

    Codes that no mask tells apart stay together. A box that a mask cuts through is split by the attribute whose codes are
    treated in the fewest ways, and left out where nothing is allowed. No box for masks that contradict each other.
    DP: arithmetic on public masks.
    """
    tied = sorted({a for mask in masks for a in mask.attributes})
    kinds = {a: alike(a, sizes[a], masks) for a in tied}
    first = {a: np.unique(kinds[a], return_index=True)[1] for a in tied}
    waiting: list[Inside] = [{a: np.arange(len(first[a])) for a in tied}]
    tables: list[Table] = []
    for mask in masks:
        if isinstance(mask, Mask):
            tables.append((mask.attributes, mask.table([first[a] for a in mask.attributes])))
        else:
            never = {a: int(kinds[a][code]) for a, code in zip(mask.attributes, mask.codes, strict=True)}
            waiting = [part for box in waiting for part in _without(box, never)]
    found: list[Inside] = []
    while waiting:
        box = _shrunk(waiting.pop(), tables)
        cut = [] if box is None else [(c, t) for c, t in _inside(box, tables) if not t.all()]
        if box is not None and not cut:
            found.append(box)
        elif box is not None:
            waiting.extend(_split(box, cut))
        if len(found) + len(waiting) > most:
            return None
    offsets = np.cumsum([0, *sizes])
    flags = np.ones((len(found), offsets[-1]), np.bool_)
    for row, box in zip(flags, found, strict=True):
        for a, codes in kinds.items():
            row[offsets[a] : offsets[a + 1]] = np.isin(codes, box[a])
    return flags


def _without(box: Inside, never: Mapping[int, int]) -> Iterator[Inside]:
    """The box without the records that have these kinds of all attributes, in parts: by the first that has another kind."""
    rest = dict(box)
    for a, kind in never.items():
        others = rest[a][rest[a] != kind]
        if len(others):
            yield {**rest, a: others}
        if len(others) == len(rest[a]):
            return
        rest[a] = np.array([kind])


def _inside(box: Inside, tables: Sequence[Table]) -> list[Table]:
    return [(clique, table[np.ix_(*(box[a] for a in clique))]) for clique, table in tables]


def _shrunk(box: Inside, tables: Sequence[Table]) -> Inside | None:
    """The box without codes that a mask leaves nothing of; None where nothing is left."""
    kept = dict(box)
    while True:
        before = {a: len(codes) for a, codes in kept.items()}
        for clique, table in tables:
            for axis, a in enumerate(clique):
                cells = np.moveaxis(table[np.ix_(*(kept[b] for b in clique))], axis, 0)
                kept[a] = kept[a][cells.reshape(len(cells), -1).any(axis=1)]
                if not len(kept[a]):
                    return None
        if all(len(kept[a]) == number for a, number in before.items()):
            return kept


def _split(box: Inside, cut: Sequence[Table]) -> list[Inside]:
    """The box in parts, by an attribute of these masks: in each, its codes are treated alike."""
    ways: dict[int, Integers] = {}
    for a in sorted({a for clique, _ in cut for a in clique}):
        seen = [np.moveaxis(t, c.index(a), 0).reshape(len(box[a]), -1) for c, t in cut if a in c]
        ways[a] = np.unique(np.hstack(seen), axis=0, return_inverse=True)[1].reshape(-1)
    several = [a for a, way in ways.items() if way.max() > 0]
    best = min(several, key=lambda a: (ways[a].max(), -sum(a in clique for clique, _ in cut), a))
    return [{**box, best: box[best][ways[best] == way]} for way in range(int(ways[best].max()) + 1)]


# Where rules leave more boxes than that, or a pair has more cells, pairs are only ruled out by the rules themselves.
_MOST_BOXES, _MOST_CELLS = 256, 1 << 20


def implied_pairs(sizes: Sequence[int], masks: Sequence[StructuralZeros]) -> tuple[Mask, ...]:
    """Masks of pairs of attributes that follow from masks through others: what is in no box of what all of them allow.

    DP: arithmetic on public masks.
    """
    found = []
    offsets = np.cumsum([0, *sizes])
    for part in tied_parts(mask.attributes for mask in masks):
        mine = [mask for mask in masks if part.issuperset(mask.attributes)]
        boxes = allowed_boxes(sizes, mine, _MOST_BOXES) if len(part) > 2 else None
        if boxes is None or not len(boxes):
            continue
        inside = {a: boxes[:, offsets[a] : offsets[a + 1]].astype(np.float32) for a in part}
        known = {mask.attributes: mask for mask in mine}
        for pair in itertools.combinations(sorted(part), 2):
            if sizes[pair[0]] * sizes[pair[1]] > _MOST_CELLS:
                continue
            allowed = inside[pair[0]].T @ inside[pair[1]] > 0
            if not np.array_equal(allowed, known[pair].table() if pair in known else np.ones_like(allowed)):
                found.append(Mask(attributes=pair, allowed=allowed))
    return tuple(found)
