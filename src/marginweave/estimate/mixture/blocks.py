"""Structural zeros of a mixture: attributes tied by few combinations are drawn together, others inside of boxes.

A box gives each attribute a set of codes, and every record inside is allowed. A product of shares that lie in one box keeps all
rules. So a mixture keeps them if each of its components has a box, without a joint table of the attributes.
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

# Most combinations of tied attributes that become one block. Beyond, structural zeros are only made improbable.
JOINED = 1 << 14
# Most combinations for which it is not worth looking for boxes.
_FEW = 256
# Most boxes, as each needs its own components; and most boxes for one mask. A mask that takes more than a few, as the order of
# two columns does, is better kept by a block if there is one.
MOST_BOXES = 48
_BOXES_OF_ONE = 8


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
        """Return the flat cell, in a table of some of the attributes, that each combination falls into, shape (cells,).

        An attribute in `coarser` has the coarser code of each of its codes, and `sizes` of these.
        """
        columns: list[Integers] = []
        for a in attributes:
            codes = self.cells[:, self.attributes.index(a)]
            columns.append(coarser[a][codes] if a in coarser else codes)
        shape = tuple(sizes[a] for a in attributes)
        return np.ravel_multi_index(tuple(columns), shape).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ties:
    """The parts of a mixture that keep structural zeros.

    These are `blocks`, by their first attribute, and `boxes` for what the blocks do not keep. The masks in `across` are kept by
    neither. `boxes` has shape (boxes, codes of all attributes); where there is nothing to keep, it is one box of all codes.
    """

    blocks: tuple[Block, ...]
    boxes: Flags
    across: tuple[StructuralZeros, ...]


def tie(sizes: Sequence[int], masks: Sequence[StructuralZeros]) -> Ties:
    """Return blocks and boxes that keep masks of several attributes; `NeverTogether` of any attributes remains in `across`.

    Attributes that they tie, directly or through others, become a block where few combinations are allowed. Else masks that one
    box or a few keep are kept by boxes, and the others by blocks as far as these are small enough. A determined attribute adds
    no combination to those of the attribute that determines it. DP: arithmetic on public masks.
    """
    listed = [mask for mask in masks if isinstance(mask, Mask)]
    unlisted = [mask for mask in masks if not isinstance(mask, Mask)]
    small: list[Mask] = []
    boxed: list[Mask] = []
    wide: list[Mask] = []
    for part in tied_parts(mask.attributes for mask in listed):
        part_masks = [mask for mask in listed if part.issuperset(mask.attributes)]
        _, too_large = _join(sizes, part_masks, _FEW)
        if not too_large:
            small += part_masks
            continue
        for mask in part_masks:
            if _is_boxed(mask, sizes):
                boxed.append(mask)
            else:
                wide.append(mask)
    boxes = allowed_boxes(sizes, boxed, MOST_BOXES)
    while boxes is None:
        wide.append(boxed.pop())
        boxes = allowed_boxes(sizes, boxed, MOST_BOXES)
    blocks, across = _join(sizes, [*small, *wide], JOINED)
    supports = block_supports(blocks, boxes, sizes)
    has_cells = [support.any(axis=1) for support in supports]  # by box, in each block
    possible = np.logical_and.reduce(has_cells)
    return Ties(
        blocks=blocks,
        boxes=boxes[possible],
        across=(*across, *unlisted),
    )


def _is_boxed(mask: Mask, sizes: Sequence[int]) -> bool:
    """Return whether boxes keep a mask better than a block does."""
    _, too_large = _join(sizes, [mask], JOINED)
    most = MOST_BOXES if too_large else _BOXES_OF_ONE
    return not _is_function(mask) and allowed_boxes(sizes, [mask], most) is not None


def block_supports(
    blocks: Sequence[Block],
    boxes: Flags,
    sizes: Sequence[int],
) -> list[Flags]:
    """Return which cells of each block lie in each box, shapes (boxes, cells)."""
    offsets = np.cumsum([0, *sizes])
    supports = []
    for block in blocks:
        allowed = []
        for a, codes in zip(block.attributes, block.cells.T, strict=True):
            allowed.append(boxes[:, offsets[a] + codes])
        supports.append(np.logical_and.reduce(allowed))
    return supports


def _join(
    sizes: Sequence[int],
    masks: Sequence[Mask],
    most: int,
) -> tuple[tuple[Block, ...], tuple[Mask, ...]]:
    """Return the attributes in blocks of at most `most` cells that keep masks, and the masks that they do not keep."""
    blocks = []
    for a, size in enumerate(sizes):
        cells = np.arange(size).reshape(-1, 1)
        blocks.append(Block(attributes=(a,), cells=cells))
    unkept: list[Mask] = []
    for mask in sorted(masks, key=_order_of_joining):
        attributes = set(mask.attributes)
        touched = [block for block in blocks if attributes.intersection(block.attributes)]
        joined = _joined(touched, mask, most)
        if joined is None:
            unkept.append(mask)
        else:
            blocks = [block for block in blocks if block not in touched]
            blocks.append(joined)
    blocks.sort(key=lambda block: block.attributes)
    return tuple(blocks), tuple(unkept)


def _order_of_joining(mask: Mask) -> tuple[bool, int, Clique]:
    """Return the sort key of masks: functions first, as they add no combinations, then masks of few attributes."""
    return not _is_function(mask), len(mask.attributes), mask.attributes


def _is_function(mask: Mask) -> bool:
    """Return whether one of two attributes follows from the other, as a level does.

    Both then have no more combinations than the attribute that determines the other.
    """
    if mask.allowed.ndim != 2:
        return False
    sizes = mask.allowed.shape
    first_kinds, second_kinds = mask.kinds or map(np.arange, sizes)
    first = np.bincount(first_kinds, minlength=sizes[0])  # number of codes of each kind
    second = np.bincount(second_kinds, minlength=sizes[1])
    first_determines = (mask.allowed @ second <= 1)[first > 0].all()
    second_determines = (first @ mask.allowed <= 1)[second > 0].all()
    return bool(first_determines or second_determines)


def _joined(
    blocks: Sequence[Block],
    mask: Mask,
    most: int,
) -> Block | None:
    """Return one block of the allowed combinations of all attributes of these blocks; None where they are too many."""
    # pairs of blocks are joined before the mask is applied: a product of this size is still small
    if math.prod(len(block.cells) for block in blocks) > most * 64:
        return None
    cells = blocks[0].cells
    for block in blocks[1:]:
        repeated = np.repeat(cells, len(block.cells), axis=0)
        tiled = np.tile(block.cells, (len(cells), 1))
        cells = np.hstack([repeated, tiled])
    attributes = [a for block in blocks for a in block.attributes]
    cells = cells[:, np.argsort(attributes)]
    attributes.sort()
    codes = [cells[:, attributes.index(a)] for a in mask.attributes]
    possible = mask.allowed[mask.kinds_of(codes)]
    if possible.sum() > most:
        return None
    return Block(attributes=tuple(attributes), cells=cells[possible])
