"""Synthetic records from a fitted mixture of products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from marginweave.base.arrays import Flags, Integers, Records
from marginweave.domain.masks import Clique, StructuralZeros
from marginweave.domain.zeros import broken_records
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.rounding import apportion, round_shares
from marginweave.records.gum.synthesize import replace_dead


def sample_stratified(model: Mixture, records: int, generator: np.random.Generator) -> tuple[Records, Integers]:
    """Records, shape (records, attributes), component by component, and the component of each.

    A component gets its share of the records by systematic sampling, each of its cells the share of these by `round_shares`;
    within a component the cells of every block are in random order. DP: post-processing.
    """
    made = np.zeros((records, len(model.sizes)), np.int32, order="F")
    numbers = apportion(model.weights, records, generator)
    owners = np.repeat(np.arange(model.components), numbers)
    for block, shares in zip(model.blocks, model.shares, strict=True):
        counts = round_shares(shares, numbers, generator)
        cells = np.repeat(np.tile(np.arange(shares.shape[1]), len(counts)), counts.ravel())
        _shuffle(cells, numbers, generator)
        made[:, block.attributes] = block.cells[cells]
    return made, owners


@njit(cache=True, nogil=True)
def _shuffle(cells: Integers, numbers: Integers, generator: np.random.Generator) -> None:
    """Put so many cells after each other into random order, each number of them by itself (Fisher and Yates)."""
    first = 0
    for number in numbers:
        for i in range(first + number - 1, first, -1):
            j = first + int(generator.random() * (i + 1 - first))
            cells[i], cells[j] = cells[j], cells[i]
        first += number


# After a sweep with fewer exchanges a record no other is made: full shards have one sweep, small tables up to five. With one
# model of adult, twice as many tries a sweep brought triples closer by .0001 (L1, of .0686) for 1.7 CPU seconds more.
_ENOUGH = (0.1, 0.05, 0.02, 0.01, np.inf)
# Most cells of all tables whose counts are refined (32 MB a shard), and most that a sweep looks at: triples of large shards are
# left to chance, which is little there. Where even pairs have more cells, records are not refined.
_MOST_CELLS, _MOST_LOOKS = 2**23, 10**8


class _Tables(NamedTuple):
    """Tables of two or three attributes, flat, one after another; a pair has its first attribute twice, with the stride 0."""

    attributes: Integers
    strides: Integers
    starts: Integers


def swap_refine(records: Records, owners: Integers, model: Mixture, generator: np.random.Generator) -> None:
    """Swap values between records of a component, in place, where that brings pairs and triples closer to the model's counts.

    Own method; evidence: `_ENOUGH` and docs/accuracy.md. Within a component all blocks are independent, so which of its records
    holds which of its values is chance alone: any exchange leaves the components, and every single value's count, as they are.
    Accepted is what lowers sum |count - expected| over all cells of all pairs and, where there is room, triples of attributes,
    the smallest first: what chance added to the model's error goes, up to rounding. DP: post-processing.

    Args:
        records: codes, shape (records, attributes), component by component.
        owners: the component of each, ascending.
        model: what the records were sampled from.
        generator: public choices.
    """
    chosen = _refined(model.sizes, len(records))
    if len(records) < 2 or not chosen:
        return
    tables = _tables(chosen, model.sizes)
    rows = np.ascontiguousarray(records)
    scale = np.float32(len(records) / model.total)
    with threadpool_limits(1):  # many small products: threads would wait for each other
        residual = -scale * np.concatenate([*model.marginals(chosen)], dtype=np.float32)
    _count(rows, tables, residual)  # count - expected of every cell
    starts = np.flatnonzero(np.diff(owners, prepend=-1, append=model.components))
    beside = [_beside(chosen, block.attributes, len(model.sizes)) for block in model.blocks]
    near = np.concatenate([places for places, _ in beside])
    ends = np.cumsum([0, *(len(places) for places, _ in beside)])
    blocks = (ends, near, np.array([inside for _, inside in beside]))
    for enough in _ENOUGH:
        if _sweep(rows, starts, tables, blocks, residual, generator) <= enough * len(rows):
            break
    records[:] = rows


def _refined(sizes: Sequence[int], records: int) -> list[Clique]:
    """Which sets of attributes are refined: all pairs, then triples, those of few cells first."""
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    left = _MOST_CELLS - sum(math.prod(sizes[a] for a in pair) for pair in pairs)
    if left < 0:
        return []
    if records * len(sizes) * math.comb(len(sizes) - 1, 2) > _MOST_LOOKS:
        return list[Clique](pairs)
    triples = sorted((math.prod(sizes[a] for a in t), t) for t in itertools.combinations(range(len(sizes)), 3))
    cells = itertools.accumulate(number for number, _ in triples)
    return [*pairs, *sorted(t for (_, t), number in zip(triples, cells, strict=True) if number <= left)]


def _tables(chosen: Sequence[Clique], sizes: Sequence[int]) -> _Tables:
    strides = [[*(math.prod(sizes[a] for a in t[i + 1 :]) for i in range(len(t))), 0][:3] for t in chosen]
    cells = [math.prod(sizes[a] for a in t) for t in chosen]
    return _Tables(np.array([(*t, t[0])[:3] for t in chosen]), np.array(strides), np.cumsum([0, *cells[:-1]]))


def _beside(chosen: Sequence[Clique], block: Clique, attributes: int) -> tuple[Integers, Flags]:
    """The tables that an exchange of a block may change, and which attributes the block has."""
    places = [i for i, t in enumerate(chosen) if not {*block}.isdisjoint(t) and not {*t} <= {*block}]
    return np.array(places, np.int64), np.isin(np.arange(attributes), block)


@njit(cache=True, nogil=True)
def _count(records: Records, tables: _Tables, found: NDArray[np.float32]) -> None:
    """Add the cells of records to all tables."""
    for table in range(len(tables.starts)):
        (a, b, c), (x, y, z) = tables.attributes[table], tables.strides[table]
        for one in records:
            found[tables.starts[table] + one[a] * x + one[b] * y + one[c] * z] += 1


@njit(cache=True, nogil=True)
def _sweep(
    records: Records,
    starts: Integers,
    tables: _Tables,
    blocks: tuple[Integers, Integers, Flags],
    residual: NDArray[np.float32],
    generator: np.random.Generator,
) -> int:
    """Try half as many exchanges as there are records and blocks, of random partners; how many were made.

    Block b, which is exchanged as a whole, has the attributes `inside[b]` and may change the tables
    `near[ends[b] : ends[b + 1]]`, where `blocks` are ends, near and inside.
    """
    (ends, near, inside), made = blocks, 0
    for k in range(len(starts) - 1):
        first, number = starts[k], starts[k + 1] - starts[k]
        for _ in range(number * len(inside) // 2 if number > 1 else 0):
            one = records[first + int(generator.random() * number)]
            other = records[first + int(generator.random() * number)]
            b = int(generator.random() * len(inside))
            if _same(one, other, inside[b], True) or _same(one, other, inside[b], False):
                continue
            places = near[ends[b] : ends[b + 1]]
            if _gain(one, other, inside[b], places, tables, residual) < 0:
                _exchange(one, other, inside[b], places, tables, residual)
                made += 1
    return made


@njit(cache=True, nogil=True)
def _same(one: Records, other: Records, inside: Flags, where: bool) -> bool:
    for a in range(len(one)):  # noqa: SIM110 - compiled
        if inside[a] == where and one[a] != other[a]:
            return False
    return True


@njit(cache=True, nogil=True)
def _cells(one: Records, other: Records, inside: Flags, table: int, tables: _Tables) -> tuple[int, int, int, int]:
    """The cells of two records in a table, and those that they would have with each other's values `inside`."""
    i = j = after_i = after_j = tables.starts[table]
    for k in range(3):
        a = tables.attributes[table, k]
        u, v = one[a] * tables.strides[table, k], other[a] * tables.strides[table, k]
        i += u
        j += v
        after_i += v if inside[a] else u
        after_j += u if inside[a] else v
    return i, j, after_i, after_j


@njit(cache=True, nogil=True)
def _gain(
    one: Records, other: Records, inside: Flags, places: Integers, tables: _Tables, residual: NDArray[np.float32]
) -> float:
    """Change of sum |count - expected| if two records exchanged the values of a block.

    Of each table they leave two cells and enter two others, or nothing changes: r = count - expected falls or rises by 1,
    and the sum by |r - 1| - |r| or |r + 1| - |r|.
    """
    change = 0.0
    for table in places:
        i, j, after_i, after_j = _cells(one, other, inside, table, tables)
        if after_i != i != after_j:
            change += abs(residual[i] - 1) - abs(residual[i]) + abs(residual[j] - 1) - abs(residual[j])
            change += abs(residual[after_i] + 1) - abs(residual[after_i])
            change += abs(residual[after_j] + 1) - abs(residual[after_j])
    return change


@njit(cache=True, nogil=True)
def _exchange(
    one: Records, other: Records, inside: Flags, places: Integers, tables: _Tables, residual: NDArray[np.float32]
) -> None:
    for table in places:
        i, j, after_i, after_j = _cells(one, other, inside, table, tables)
        residual[i] -= 1
        residual[j] -= 1
        residual[after_i] += 1
        residual[after_j] += 1
    for a in range(len(one)):
        if inside[a]:
            one[a], other[a] = other[a], one[a]


_ROUNDS = 50


def repair_structural_zeros(records: Records, owners: Integers, model: Mixture, generator: np.random.Generator) -> None:
    """Remove the combinations that the masks of the model forbid, in place; those inside a block are not there anyway.

    A forbidden record swaps the values of a block with a random record of its component, where they differ and that leaves
    both allowed: components, and so the model, stay as they are. After some rounds it is a random record of any component, so
    that only single attributes stay as they are. What is left then become copies of random other records. DP: post-processing.

    Args:
        records: codes, shape (records, attributes), component by component.
        owners: the component of each, ascending.
        model: what the records were sampled from.
        generator: public choices.

    Raises:
        InputError: the masks leave no record.
    """
    tied = {a for mask in model.masks for a in mask.attributes}
    blocks = [list(block.attributes) for block in model.blocks if not tied.isdisjoint(block.attributes)]
    bad = np.arange(len(records))
    for turn in range(2 * _ROUNDS):
        bad = bad[broken_records(tuple(records[bad].T), model.masks)]  # a swap breaks no other record
        if not len(bad):
            return
        owned = owners if turn < _ROUNDS else np.zeros_like(owners)
        first, last = (np.searchsorted(owned, owned[bad], side) for side in ("left", "right"))
        partners = first + np.floor(generator.random(len(bad)) * (last - first)).astype(np.int64)
        chosen = _differing(records[bad], records[partners], blocks, generator)
        for number, block in enumerate(blocks):
            mine = chosen == number
            if mine.any():
                _swap(records, bad[mine], partners[mine], block, model.masks)
    one_way = [model.marginal((a,)) for a in range(len(model.sizes))]
    dead = broken_records(tuple(records.T), model.masks)
    replace_dead(records, dead, one_way, [*model.masks, *model.inside], generator)


def _differing(
    records: Records, partners: Records, blocks: Sequence[list[int]], generator: np.random.Generator
) -> Integers:
    """The number of a random block in which each record differs from its partner, or -1; shape (records,)."""
    differs = np.stack([(records[:, block] != partners[:, block]).any(axis=1) for block in blocks], axis=1)
    chosen = np.where(differs, generator.random(differs.shape), -1.0).argmax(axis=1)
    return np.where(differs.any(axis=1), chosen, -1)


def _swap(
    records: Records, bad: Integers, partners: Integers, block: list[int], masks: Sequence[StructuralZeros]
) -> None:
    """Exchange the values of a block where both records are allowed then; nobody is asked twice, and no two of `bad`."""
    _, once = np.unique(partners, return_index=True)
    once = once[~np.isin(partners[once], bad)]
    one, other = bad[once], partners[once]
    left, right = records[one], records[other]
    left[:, block], right[:, block] = right[:, block], left[:, block]
    kept = ~(broken_records(tuple(left.T), masks) | broken_records(tuple(right.T), masks))
    records[one[kept]], records[other[kept]] = left[kept], right[kept]


def sample_mixture(model: Mixture, number: int, generator: np.random.Generator) -> Records:
    """Records of a conditioned model, shape (number, attributes), in random order; none is forbidden. DP: post-processing.

    Raises:
        InputError: the masks leave no record.
    """
    records, owners = sample_stratified(model, number, generator)
    swap_refine(records, owners, model, generator)
    repair_structural_zeros(records, owners, model, generator)
    return records[generator.permutation(number)]
