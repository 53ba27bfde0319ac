"""Dense marginals: sets of attributes, their cells, and exact counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Integers
from marginweave.base.errors import InputError, StageError
from marginweave.base.parallel import LocalEngine
from marginweave.domain.masks import Clique

AnyCodes = NDArray[np.integer]
T = TypeVar("T")
# Number of rows at a time that remain in the processor's cache while all marginals are counted.
_CHUNK = 1 << 14
_CELLS_A_PASS = 1 << 23


def cells(clique: Clique, sizes: Sequence[int]) -> int:
    """Return the number of cells of a marginal: the product of the sizes of its attributes."""
    return math.prod(sizes[a] for a in clique)


def all_cliques(
    sizes: Sequence[int],
    length: int,
    cell_limit: int | None = None,
) -> tuple[Clique, ...]:
    """Return all sets of `length` attributes with at most `cell_limit` cells, in lexicographic order.

    DP: arithmetic on public sizes. Raises InputError unless 1 <= length <= number of attributes.
    """
    if not 1 <= length <= len(sizes):
        raise InputError(
            f"length ({length}) must be at least 1 and at most the number of attributes ({len(sizes)})"
        )
    cliques = itertools.combinations(range(len(sizes)), length)
    return tuple(
        clique for clique in cliques if cell_limit is None or cells(clique, sizes) <= cell_limit
    )


def count_marginals(
    blocks: Iterable[Sequence[AnyCodes]],
    sizes: Sequence[int],
    cliques: Sequence[Clique],
) -> list[Integers]:
    """Return exact counts of the combinations of each clique in all blocks of rows, by one pass on all cores; private.

    Rows are numbered by mixed radix, code = ((a_1 s_2 + a_2) s_3 + a_3) …, and counted. Raises StageError for a code
    outside its size.
    """
    attributes = sorted({attribute for clique in cliques for attribute in clique})
    place = {attribute: i for i, attribute in enumerate(attributes)}
    shapes: list[tuple[int, ...]] = []
    layouts: list[Integers] = []
    for clique in cliques:
        shapes.append(tuple(sizes[a] for a in clique))
        layout = np.array([[place[a], sizes[a]] for a in clique], np.int64)
        layouts.append(layout.reshape(-1, 2))
    counts = [np.zeros(math.prod(shape), np.int64) for shape in shapes]
    engine = LocalEngine()
    pairs = list(zip(layouts, counts, strict=True))
    groups = [pairs[first :: engine.cores] for first in range(min(engine.cores, len(pairs)))]
    for codes in blocks:
        for attribute in attributes:
            values = codes[attribute]
            if values.max(initial=0) >= sizes[attribute] or values.min(initial=0) < 0:
                raise StageError(f"codes of attribute {attribute} must be below its size")
        for _ in engine.map(
            partial(_add_block, [codes[a] for a in attributes], len(codes[0])), groups
        ):
            pass
    return [counted.reshape(shape) for counted, shape in zip(counts, shapes, strict=True)]


def _add_block(
    columns: Sequence[AnyCodes],
    rows: int,
    group: Sequence[tuple[Integers, Integers]],
) -> None:
    """Count a block of rows, some at a time, by each layout of a group, in the counts beside it."""
    from marginweave.counts.marginal_kernel import add_counts

    for start in range(0, rows, _CHUNK):
        end = min(start + _CHUNK, rows)
        part = np.empty((len(columns), end - start), np.int64)
        for row, codes in enumerate(columns):
            part[row] = codes[start:end]
        for layout, counted in group:
            add_counts(part, layout, counted)


def merged_table(table: Integers, codes: Sequence[Integers]) -> Integers:
    """Return a table over merged codes: a new cell is the sum of the cells that it joins. Private where the table is.

    `codes` has the new code of every code, for each attribute. A record is in one cell, as before.
    """
    merged = np.zeros([int(new.max()) + 1 for new in codes], np.int64)
    np.add.at(merged, np.ix_(*codes), table)
    return merged


def in_passes(cliques: Sequence[Clique], sizes: Sequence[int]) -> Iterator[list[Clique]]:
    """Yield the cliques in their order, as many at a time as fit, so that few cells are in memory at once.

    DP: arithmetic on public sizes.
    """
    return grouped(cliques, lambda clique: cells(clique, sizes), _CELLS_A_PASS)


def grouped(
    items: Iterable[T],
    weight: Callable[[T], int],
    most: int,
) -> Iterator[list[T]]:
    """Yield the items in their order, in groups that weigh at most `most`, apart from single items that weigh more."""
    group: list[T] = []
    group_weight = 0
    for item in items:
        item_weight = weight(item)
        if group and group_weight + item_weight > most:
            yield group
            group = []
            group_weight = 0
        group.append(item)
        group_weight += item_weight
    if group:
        yield group
