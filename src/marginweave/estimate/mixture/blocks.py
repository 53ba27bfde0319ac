"""How a mixture keeps structural zeros: attributes that few combinations tie are drawn together, others inside of boxes.

A box gives each attribute a set of codes, and every record inside is allowed. A product of shares that lie in one box keeps all
rules, so a mixture keeps them whose components each have a box, without a table of the attributes together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from marginweave.base.arrays import Flags, Integers
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.domain.boxes import allowed_boxes
from marginweave.domain.masks import Clique, Mask, StructuralZeros

# Up to how many combinations tied attributes become one: beyond, structural zeros are only made improbable.
JOINED = 1 << 14
# Up to how many it is not worth while to look for boxes.
_FEW = 256
# So many boxes at most: each needs some components of its own. A mask that alone takes more than a few, as the order of two
# columns does, is better kept by a table if it has one.
MOST_BOXES, _BOXES_OF_ONE = 48, 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Attributes whose values are drawn together: `cells` are the allowed combinations, shape (cells, attributes)."""

    attributes: Clique
    cells: Integers

    def places(
        self,
        attributes: Sequence[int],
        sizes: Sequence[int] | Mapping[int, int],
        coarser: Mapping[int, Integers] = MappingProxyType({}),
    ) -> Integers:
        """The flat cell of a table of some of the attributes that each combination falls into, shape (cells,).

        An attribute in `coarser` has the coarser code of each of its codes, and `sizes` of these.
        """
        codes = ((a, self.cells[:, self.attributes.index(a)]) for a in attributes)
        columns = tuple(coarser[a][mine] if a in coarser else mine for a, mine in codes)
        return np.ravel_multi_index(columns, tuple(sizes[a] for a in attributes)).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ties:
    """How structural zeros are kept: `blocks` by their first attribute, boxes for what these do not keep, and the masks left.

    `boxes` has shape (boxes, codes of all attributes); where there is nothing to keep, it is one box of all codes.
    """

    blocks: tuple[Block, ...]
    boxes: Flags
    across: tuple[StructuralZeros, ...]


def tie(sizes: Sequence[int], masks: Sequence[StructuralZeros]) -> Ties:
    """How the masks of several attributes are kept; what is `NeverTogether` is left, of whatever attributes.

    Attributes that they tie, directly or through others, become a block where few combinations are allowed; else masks that one
    box or a few keep are kept by boxes, and the rest by blocks as far as these are small enough. A determined attribute adds no
    combination to those of the attribute that determines it. DP: arithmetic on public masks.
    """
    listed = [mask for mask in masks if isinstance(mask, Mask)]
    small: list[Mask] = []
    boxed: list[Mask] = []
    wide: list[Mask] = []
    for part in tied_parts(mask.attributes for mask in listed):
        mine = [mask for mask in listed if part.issuperset(mask.attributes)]
        if not _join(sizes, mine, _FEW)[1]:
            small += mine
            continue
        for mask in mine:
            most = MOST_BOXES if _join(sizes, [mask], JOINED)[1] else _BOXES_OF_ONE
            is_wide = _is_function(mask) or allowed_boxes(sizes, [mask], most) is None
            (wide if is_wide else boxed).append(mask)
    while (boxes := allowed_boxes(sizes, boxed, MOST_BOXES)) is None:
        wide.append(boxed.pop())
    blocks, across = _join(sizes, [*small, *wide], JOINED)
    supports = block_supports(blocks, boxes, sizes)
    possible = np.logical_and.reduce([support.any(axis=1) for support in supports])
    unlisted = [mask for mask in masks if not isinstance(mask, Mask)]
    return Ties(blocks=blocks, boxes=boxes[possible], across=(*across, *unlisted))


def block_supports(blocks: Sequence[Block], boxes: Flags, sizes: Sequence[int]) -> list[Flags]:
    """Which cells of each block lie in each box, shapes (boxes, cells)."""
    offsets = np.cumsum([0, *sizes])
    return [
        np.logical_and.reduce(
            [boxes[:, offsets[a] + codes] for a, codes in zip(block.attributes, block.cells.T, strict=True)]
        )
        for block in blocks
    ]


def _join(sizes: Sequence[int], masks: Sequence[Mask], most: int) -> tuple[tuple[Block, ...], tuple[Mask, ...]]:
    """The attributes in blocks of at most `most` cells such that masks lie inside; and the masks that do not."""
    parts = [Block(attributes=(a,), cells=np.arange(size).reshape(-1, 1)) for a, size in enumerate(sizes)]
    left: list[Mask] = []
    for mask in sorted(masks, key=lambda mask: (not _is_function(mask), len(mask.attributes), mask.attributes)):
        touched = [part for part in parts if set(part.attributes) & set(mask.attributes)]
        joined = _joined(touched, mask, most)
        if joined is None:
            left.append(mask)
        else:
            parts = [*(part for part in parts if part not in touched), joined]
    return tuple(sorted(parts, key=lambda part: part.attributes)), tuple(left)


def _is_function(mask: Mask) -> bool:
    """Whether one of two attributes follows from the other, as a level does: together they have no more cells than that one."""
    if mask.allowed.ndim != 2:
        return False
    sizes = mask.allowed.shape
    first, second = map(np.bincount, mask.kinds or map(np.arange, sizes), [None, None], sizes)  # codes of each kind
    return bool((mask.allowed @ second <= 1)[first > 0].all() or (first @ mask.allowed <= 1)[second > 0].all())


def _joined(parts: Sequence[Block], mask: Mask, most: int) -> Block | None:
    """The allowed combinations of all these attributes; None where they are too many."""
    # pairs of parts are joined before the mask is applied: a product of this size is still small
    if math.prod(len(part.cells) for part in parts) > most * 64:
        return None
    cells = parts[0].cells
    for part in parts[1:]:
        cells = np.hstack([np.repeat(cells, len(part.cells), axis=0), np.tile(part.cells, (len(cells), 1))])
    attributes = [a for part in parts for a in part.attributes]
    order = np.argsort(attributes)
    cells, attributes = cells[:, order], sorted(attributes)
    possible = mask.allowed[mask.kinds_of([cells[:, attributes.index(a)] for a in mask.attributes])]
    if possible.sum() > most:
        return None
    return Block(attributes=tuple(attributes), cells=cells[possible])
