"""Updates records towards one marginal, compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers, Records
from marginweave.base.compiled import kernel
from marginweave.domain.masks import Mask, StructuralZeros

_BISECTIONS = 40


class Target(NamedTuple):
    """A marginal to move towards, in whole records."""

    attributes: Integers
    strides: Integers
    sizes: Integers
    counts: Integers  # wanted records in each cell, flat; they add up to the number of records
    margin: float  # how far a cell may be from its count without being moved, in records
    # attributes that a copied record takes along: those of the marginal's component
    columns: Integers


class Pace(NamedTuple):
    """The update rate of a round, and the share of its moves that are copies of complete records."""

    alpha: float
    share: float


class Zeros(NamedTuple):
    """All masks, one after the other: mask m has the attributes `attributes[starts[m] : starts[m + 1]]`."""

    starts: Integers
    attributes: Integers
    firsts: Integers  # where the codes of each of `attributes` begin in `steps`
    steps: Integers  # how far on each code's kind lies in its mask
    offsets: Integers  # where the cells of each mask begin in `allowed`
    allowed: Flags

    @classmethod
    def of(cls, masks: Sequence[StructuralZeros]) -> Self:
        """Return these masks as arrays."""
        steps = list[Integers]()
        tables = list[Flags]()
        attributes = list[int]()
        for mask in masks:
            attributes += mask.attributes
            kinds = [mask.kinds_along(a) for a in mask.attributes]
            if isinstance(mask, Mask):
                for axis_kinds, step in zip(kinds, strides(mask.allowed.shape), strict=True):
                    steps.append(axis_kinds * step)
                tables.append(mask.allowed.ravel())
            else:  # as many steps as the record has of its codes: all of them are forbidden
                steps += kinds
                tables.append(np.arange(len(kinds) + 1) < len(kinds))
        lengths = [len(mask.attributes) for mask in masks]
        return cls(
            starts=np.cumsum([0, *lengths]),
            attributes=np.array(attributes, np.int64),
            firsts=np.cumsum([0, *map(len, steps)])[:-1],
            steps=np.concatenate([np.zeros(0, np.int64), *steps]),
            offsets=np.cumsum([0, *map(len, tables)])[:-1],
            allowed=np.concatenate([np.zeros(0, np.bool_), *tables]),
        )


def strides(shape: Sequence[int]) -> Integers:
    """Return the step of each axis in the flat cell, the last one 1."""
    steps_from_last = np.cumprod([1, *reversed(shape[1:])], dtype=np.int64)
    return steps_from_last[::-1].copy()


@kernel
def count_cells(records: Records, target: Target, code: Integers) -> Integers:
    """Return the number of records in each cell of the marginal; write the cell of every record into `code`."""
    code[:] = 0
    for j in range(len(target.attributes)):
        code += records[:, target.attributes[j]] * target.strides[j]
    return np.bincount(code, minlength=len(target.counts))


@kernel
def residual(records: Records, target: Target, code: Integers) -> float:
    """Return the L1 distance of the marginal to its target, as far as it is beyond the margin, in records."""
    apart = np.abs(target.counts - count_cells(records, target, code))
    return float(np.maximum(0.0, apart - target.margin).sum())


@kernel
def update(
    records: Records,
    target: Target,
    zeros: Zeros,
    pace: Pace,
    code: Integers,
    generator: np.random.Generator,
) -> int:
    """Move records from over-full to under-full cells of one marginal, in place; return how many were moved.

    An under-full cell of n records takes at most alpha n, an empty one alpha times what it lacks; an over-full one gives
    at most beta n, beta such that as many leave as come (PrivSyn, section 5.2). `pace.share` of what comes to a cell that is
    not empty are copies of records there. What a mask forbids is not done.

    beta solves sum min(excess, beta n) = moved, whose left side grows with beta from 0 to the sum of all excess. An over-full
    cell gives at most its excess, and an under-full one takes at most what it lacks: no cell moves past its target, and each
    record that is moved takes 2 off the L1 distance.
    """
    counts = count_cells(records, target, code)
    lack = target.counts - counts - target.margin
    most = np.where(counts > 0, np.minimum(lack, pace.alpha * counts), pace.alpha * lack)
    wanted = np.maximum(0.0, most)
    excess = np.maximum(0.0, counts - target.counts - target.margin)
    possible = min(wanted.sum(), excess.sum())
    moved = math.floor(possible + generator.random()) if possible > 0 else 0
    if moved == 0:
        return 0
    _cap(excess, counts, moved)
    leave = _rounded(excess, moved, counts - target.counts, generator)
    come = _rounded(wanted, moved, target.counts - counts, generator)
    copies = np.floor(come * pace.share + generator.random(len(come))).astype(np.int64)
    copies = np.minimum(counts, copies)
    freed, sources = _choose(code, counts, leave, copies, generator)
    _shuffle(freed, generator)
    position = 0
    for source in sources:
        if position < len(freed):
            for j in target.columns:
                records[freed[position], j] = records[source, j]
            position += 1
    done = position
    for c in range(len(come)):
        for _ in range(come[c] - copies[c]):
            if position < len(freed):
                done += _overwrite(records[freed[position]], c, target, zeros)
                position += 1
    return done


@kernel
def _cap(excess: Floats, counts: Integers, moved: int) -> None:
    """Replace the excess e of a cell of n records by min(e, beta n), beta by bisection so that they add up to `moved`."""
    low = 0.0
    high = 1.0
    for _ in range(_BISECTIONS):
        beta = (low + high) / 2
        total = 0.0
        for c in range(len(excess)):
            total += min(excess[c], beta * counts[c])
        if total < moved:
            low = beta
        else:
            high = beta
    excess[:] = np.minimum(excess, high * counts)


@kernel
def _rounded(
    amounts: Floats,
    total: int,
    most: Integers,
    generator: np.random.Generator,
) -> Integers:
    """Return whole amounts of the same expectation (systematic sampling), scaled to sum to `total`, none above `most`."""
    steps = np.empty(len(amounts) + 1)
    steps[0] = generator.random()
    steps[1:] = amounts * (total / amounts.sum())
    rounded = np.diff(np.floor(np.cumsum(steps))).astype(np.int64)
    return np.maximum(0, np.minimum(rounded, most))


@kernel
def _choose(
    code: Integers,
    counts: Integers,
    leave: Integers,
    copies: Integers,
    generator: np.random.Generator,
) -> tuple[Integers, Integers]:
    """Return records that leave, and records to copy: uniform without replacement in each cell (Knuth 3.4.2, Algorithm S)."""
    freed = np.empty(leave.sum(), np.int64)
    sources = np.empty(copies.sum(), np.int64)
    taken = 0
    copied = 0
    unseen = counts.copy()
    needed = leave + copies  # a cell has one of them only: over-full or under-full
    for i in range(len(code)):
        c = code[i]
        if needed[c] > 0:
            if generator.random() * unseen[c] < needed[c]:
                needed[c] -= 1
                if leave[c] > 0:
                    freed[taken] = i
                    taken += 1
                else:
                    sources[copied] = i
                    copied += 1
            unseen[c] -= 1
    return freed, sources


@kernel
def _shuffle(items: Integers, generator: np.random.Generator) -> None:
    """Put items into random order, in place (Fisher and Yates)."""
    for i in range(len(items) - 1, 0, -1):
        j = int(generator.random() * (i + 1))
        items[i], items[j] = items[j], items[i]


@kernel
def _overwrite(record: Records, cell: int, target: Target, zeros: Zeros) -> int:
    """Give a record the values of a cell and return 1; or leave it as it was and return 0 if a mask forbids the result."""
    before = record[target.attributes]
    for j in range(len(before)):
        record[target.attributes[j]] = (cell // target.strides[j]) % target.sizes[j]
    for m in range(len(zeros.offsets)):
        mask_cell = zeros.offsets[m]
        for j in range(zeros.starts[m], zeros.starts[m + 1]):
            mask_cell += zeros.steps[zeros.firsts[j] + record[zeros.attributes[j]]]
        if not zeros.allowed[mask_cell]:
            record[target.attributes] = before
            return 0
    return 1
