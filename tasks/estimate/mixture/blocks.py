"""Attributes that structural zeros tie together as one attribute, whose values are the combinations that are allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.measurements import Clique, Mask

JOINED = 1 << 14
"""Up to how many combinations tied attributes become one: beyond, structural zeros are only made improbable."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Attributes whose values are drawn together: `cells` are the allowed combinations, shape (cells, attributes)."""

    attributes: Clique
    cells: NDArray[np.int64]

    def places(self, attributes: Sequence[int], sizes: Sequence[int]) -> NDArray[np.int64]:
        """The flat cell of a table of some of the attributes that each combination falls into, shape (cells,)."""
        columns = tuple(self.cells[:, self.attributes.index(a)] for a in attributes)
        return np.ravel_multi_index(columns, tuple(sizes[a] for a in attributes)).astype(np.int64)


def join_attributes(sizes: Sequence[int], masks: Sequence[Mask]) -> tuple[tuple[Block, ...], tuple[Mask, ...]]:
    """The attributes in blocks, by their first one, such that masks lie inside; and the masks that do not, which are too large.

    A determined attribute adds no combination to those of the attribute that determines it. DP: arithmetic on public masks.
    """
    parts = [_single(a, size) for a, size in enumerate(sizes)]
    left: list[Mask] = []
    for mask in sorted(masks, key=lambda mask: (len(mask.attributes), mask.attributes)):
        touched = [part for part in parts if set(part.attributes) & set(mask.attributes)]
        joined = _joined(touched, mask)
        if joined is None:
            left.append(mask)
        else:
            parts = [*(part for part in parts if part not in touched), joined]
    return tuple(sorted(parts, key=lambda part: part.attributes)), tuple(left)


def _single(attribute: int, size: int) -> Block:
    return Block(attributes=(attribute,), cells=np.arange(size).reshape(-1, 1))


def _joined(parts: Sequence[Block], mask: Mask) -> Block | None:
    """The allowed combinations of all these attributes; None where they are too many."""
    # pairs of parts are joined before the mask is applied: a product of this size is still small
    if math.prod(len(part.cells) for part in parts) > JOINED * 64:
        return None
    cells = parts[0].cells
    for part in parts[1:]:
        cells = np.hstack([np.repeat(cells, len(part.cells), axis=0), np.tile(part.cells, (len(cells), 1))])
    attributes = [a for part in parts for a in part.attributes]
    order = np.argsort(attributes)
    cells, attributes = cells[:, order], sorted(attributes)
    held = mask.allowed[tuple(cells[:, attributes.index(a)] for a in mask.attributes)]
    if held.sum() > JOINED:
        return None
    return Block(attributes=tuple(attributes), cells=cells[held])
