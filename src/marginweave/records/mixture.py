"""Samples synthetic records from a fitted mixture of products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from marginweave.base.arrays import Flags, Floats, Integers, Records
from marginweave.base.compiled import kernel
from marginweave.domain.masks import Clique, StructuralZeros
from marginweave.domain.zeros import broken_records
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.rounding import apportion, round_shares
from marginweave.records.gum.synthesize import replace_dead


def sample_stratified(
    model: Mixture, records: int, generator: np.random.Generator
) -> tuple[Records, Integers]:
    """Return records, shape (records, attributes), component by component, and the component of each.

    A component gets its share of the records by systematic sampling, each of its cells the share of these by `round_shares`;
    within a component the cells of every block are in random order. DP: post-processing.
    """
    sampled = np.zeros((records, len(model.sizes)), np.int32, order="F")
    numbers = apportion(model.weights, records, generator)
    owners = np.repeat(np.arange(model.components), numbers)
    cells = fill_components(model.shares, numbers, generator)
    for block, cells_of_block in zip(model.blocks, cells.T, strict=True):
        sampled[:, block.attributes] = block.cells[cells_of_block]
    return sampled, owners


def fill_components(
    shares: Sequence[Floats], numbers: Integers, generator: np.random.Generator
) -> Records:
    """Return cells of each block for `numbers[k]` records of component k, one component after the other.

    Shape (records, blocks); `shares` as in `Mixture`. DP: post-processing.
    """
    filled = np.empty((int(numbers.sum()), len(shares)), np.int32, order="F")
    for place, of_block in enumerate(shares):
        counts = round_shares(of_block, numbers, generator)
        block_cells = np.tile(np.arange(of_block.shape[1]), len(counts))
        cells = np.repeat(block_cells, counts.ravel())
        _shuffle(cells, numbers, generator)
        filled[:, place] = cells
    return filled


@kernel
def _shuffle(cells: Integers, numbers: Integers, generator: np.random.Generator) -> None:
    """Put the first `numbers[0]` cells into random order, then the next `numbers[1]`, and so on (Fisher and Yates)."""
    first = 0
    for number in numbers:
        for i in range(first + number - 1, first, -1):
            j = first + int(generator.random() * (i + 1 - first))
            cells[i], cells[j] = cells[j], cells[i]
        first += number


# After a sweep with fewer exchanges per record there is no other: full shards have one sweep, small tables up to five. With one
# model of adult, twice as many tries a sweep brought triples closer by .0001 (L1, of .0686) for 1.7 CPU seconds more.
_ENOUGH = (0.1, 0.05, 0.02, 0.01, np.inf)
# Most cells of all tables whose counts are refined (32 MB a shard). Where even pairs have more cells, records are not refined.
_MOST_CELLS = 2**23
# Most cells that a sweep looks at: triples of large shards are left to chance, which has little effect there.
_MOST_LOOKS = 10**8
# Most cells that all sweeps look at where there are several: 40 CPU seconds, which 10,000 records of 300 columns take. Of 1,000
# columns one sweep looks at twice as many.
_MOST_LOOKS_OF_SWEEPS = 5 * 10**9


class _Tables(NamedTuple):
    """Tables of two or three attributes, flat, one after another; a pair has its first attribute twice, with the stride 0."""

    attributes: Integers
    strides: Integers
    starts: Integers


class _Blocks(NamedTuple):
    """The blocks of a model, each of which is exchanged as a unit.

    Block b has the attributes `inside[b]`, and may change the tables `tables[ends[b] : ends[b + 1]]`.
    """

    ends: Integers
    tables: Integers
    inside: Flags


def swap_refine(
    records: Records,
    owners: Integers,
    model: Mixture,
    generator: np.random.Generator,
) -> None:
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
    cliques = _cliques_to_refine(model.sizes, len(records))
    if len(records) < 2 or not cliques:
        return
    tables = _tables(cliques, model.sizes)
    blocks = _blocks(cliques, model)
    rows = np.ascontiguousarray(records)
    scale = np.float32(len(records) / model.total)
    with threadpool_limits(1):  # many small products: threads would wait for each other
        expected = np.concatenate([*model.marginals(cliques)], dtype=np.float32)
        residual = -scale * expected
    _count(rows, tables, residual)  # count - expected of every cell
    starts = np.flatnonzero(np.diff(owners, prepend=-1, append=model.components))
    looks = len(records) * len(blocks.inside) * (len(blocks.inside) - 1)
    sweeps = max(1, _MOST_LOOKS_OF_SWEEPS // max(1, looks))
    for enough in _ENOUGH[:sweeps]:
        if _sweep(rows, starts, tables, blocks, residual, generator) <= enough * len(rows):
            break
    records[:] = rows


def _cliques_to_refine(sizes: Sequence[int], records: int) -> list[Clique]:
    """Return the sets of attributes that are refined: all pairs, then triples, those of few cells first."""
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    cells_left = _MOST_CELLS - sum(_cells_of(pair, sizes) for pair in pairs)
    if cells_left < 0:
        return []
    looks = records * len(sizes) * math.comb(len(sizes) - 1, 2)
    if looks > _MOST_LOOKS:
        return list[Clique](pairs)
    triples = itertools.combinations(range(len(sizes)), 3)
    refined = []
    for triple in sorted(triples, key=lambda triple: _cells_of(triple, sizes)):
        cells_left -= _cells_of(triple, sizes)
        if cells_left < 0:
            break
        refined.append(triple)
    return [*pairs, *sorted(refined)]


def _cells_of(clique: Clique, sizes: Sequence[int]) -> int:
    """Return the number of cells of a table."""
    return math.prod(sizes[a] for a in clique)


def _tables(cliques: Sequence[Clique], sizes: Sequence[int]) -> _Tables:
    """Return the tables of these pairs and triples of attributes."""
    attributes = []
    strides = []
    for clique in cliques:
        steps = [_cells_of(clique[i + 1 :], sizes) for i in range(len(clique))]
        attributes.append((*clique, clique[0])[:3])
        strides.append((*steps, 0)[:3])
    cells = [_cells_of(clique, sizes) for clique in cliques]
    return _Tables(
        attributes=np.array(attributes),
        strides=np.array(strides),
        starts=np.cumsum([0, *cells[:-1]]),
    )


def _blocks(cliques: Sequence[Clique], model: Mixture) -> _Blocks:
    """Return the blocks of a model, and the tables that an exchange of each may change: some attributes are in the block."""
    attributes = np.arange(len(model.sizes))
    tables = []
    inside = []
    for block in model.blocks:
        in_block = {*block.attributes}
        places = [
            i
            for i, clique in enumerate(cliques)
            if not in_block.isdisjoint(clique) and not in_block.issuperset(clique)
        ]
        tables.append(np.array(places, np.int64))
        inside.append(np.isin(attributes, block.attributes))
    ends = np.cumsum([0, *map(len, tables)])
    return _Blocks(ends, np.concatenate(tables), np.array(inside))


@kernel
def _count(records: Records, tables: _Tables, counts: NDArray[np.float32]) -> None:
    """Add the cells of records to all tables."""
    for table in range(len(tables.starts)):
        a, b, c = tables.attributes[table]
        x, y, z = tables.strides[table]
        start = tables.starts[table]
        for record in records:
            cell = start + record[a] * x + record[b] * y + record[c] * z
            counts[cell] += 1


@kernel
def _sweep(
    records: Records,
    starts: Integers,
    tables: _Tables,
    blocks: _Blocks,
    residual: NDArray[np.float32],
    generator: np.random.Generator,
) -> int:
    """Try half as many exchanges as there are records and blocks, of random partners; return how many were made."""
    exchanges = 0
    number_of_blocks = len(blocks.inside)
    for k in range(len(starts) - 1):
        first = starts[k]
        number = starts[k + 1] - first
        for _ in range(number * number_of_blocks // 2 if number > 1 else 0):
            record = records[first + int(generator.random() * number)]
            partner = records[first + int(generator.random() * number)]
            b = int(generator.random() * number_of_blocks)
            inside = blocks.inside[b]
            if _agree_in_part(record, partner, inside):
                continue
            places = blocks.tables[blocks.ends[b] : blocks.ends[b + 1]]
            if _gain(record, partner, inside, places, tables, residual) < 0:
                _exchange(record, partner, inside, places, tables, residual)
                exchanges += 1
    return exchanges


@kernel
def _agree_in_part(record: Records, partner: Records, inside: Flags) -> bool:
    """Return whether two records agree in all attributes that are `inside`, or in all others."""
    agree_inside = True
    agree_outside = True
    for a in range(len(record)):
        if record[a] != partner[a]:
            if inside[a]:
                agree_inside = False
            else:
                agree_outside = False
    return agree_inside or agree_outside


@kernel
def _cells(
    record: Records,
    partner: Records,
    inside: Flags,
    table: int,
    tables: _Tables,
) -> tuple[int, int, int, int]:
    """Return the cells of two records in a table, and those that they would have with each other's values `inside`."""
    i = j = after_i = after_j = tables.starts[table]
    for k in range(3):
        a = tables.attributes[table, k]
        step_i = record[a] * tables.strides[table, k]
        step_j = partner[a] * tables.strides[table, k]
        i += step_i
        j += step_j
        after_i += step_j if inside[a] else step_i
        after_j += step_i if inside[a] else step_j
    return i, j, after_i, after_j


@kernel
def _gain(
    record: Records,
    partner: Records,
    inside: Flags,
    places: Integers,
    tables: _Tables,
    residual: NDArray[np.float32],
) -> float:
    """Return the change of sum |count - expected| if two records exchanged the values of a block.

    Of each table they leave two cells and enter two others, or nothing changes: r = count - expected falls or rises by 1,
    and the sum by |r - 1| - |r| or |r + 1| - |r|.
    """
    change = 0.0
    for table in places:
        i, j, after_i, after_j = _cells(record, partner, inside, table, tables)
        if after_i != i != after_j:
            change += (
                abs(residual[i] - 1) - abs(residual[i]) + abs(residual[j] - 1) - abs(residual[j])
            )
            change += abs(residual[after_i] + 1) - abs(residual[after_i])
            change += abs(residual[after_j] + 1) - abs(residual[after_j])
    return change


@kernel
def _exchange(
    record: Records,
    partner: Records,
    inside: Flags,
    places: Integers,
    tables: _Tables,
    residual: NDArray[np.float32],
) -> None:
    """Exchange the values of a block between two records, and update the residuals of the tables."""
    for table in places:
        i, j, after_i, after_j = _cells(record, partner, inside, table, tables)
        residual[i] -= 1
        residual[j] -= 1
        residual[after_i] += 1
        residual[after_j] += 1
    for a in range(len(record)):
        if inside[a]:
            record[a], partner[a] = partner[a], record[a]


_ROUNDS = 50


def repair_structural_zeros(
    records: Records,
    owners: Integers,
    model: Mixture,
    generator: np.random.Generator,
) -> None:
    """Remove the combinations that the masks of the model forbid, in place; inside a block there are none.

    A forbidden record swaps the values of a block with a random record of its component, where they differ and that leaves
    both allowed: components, and so the model, stay as they are. After some rounds its partner is a random record of any
    component, so that only single attributes stay as they are. Records that are still forbidden then become copies of random
    other records. DP: post-processing.

    Args:
        records: codes, shape (records, attributes), component by component.
        owners: the component of each, ascending.
        model: what the records were sampled from.
        generator: public choices.

    Raises:
        InputError: the masks leave no record.
    """
    tied = {a for mask in model.masks for a in mask.attributes}
    every_mask = [*model.masks, *model.inside]
    blocks = [
        list(block.attributes) for block in model.blocks if not tied.isdisjoint(block.attributes)
    ]
    forbidden = np.arange(len(records))
    for turn in range(2 * _ROUNDS):
        # a swap breaks no other record
        forbidden = forbidden[broken_records(tuple(records[forbidden].T), model.masks)]
        if not len(forbidden):
            return
        groups = owners if turn < _ROUNDS else np.zeros_like(owners)
        first = np.searchsorted(groups, groups[forbidden], "left")
        last = np.searchsorted(groups, groups[forbidden], "right")
        points = generator.random(len(forbidden)) * (last - first)
        partners = first + np.floor(points).astype(np.int64)
        chosen = _differing(records[forbidden], records[partners], blocks, generator)
        for number, block in enumerate(blocks):
            has_block = chosen == number
            if has_block.any():
                _swap(records, forbidden[has_block], partners[has_block], block, every_mask)
    one_way = [model.marginal((a,)) for a in range(len(model.sizes))]
    dead = broken_records(tuple(records.T), model.masks)
    replace_dead(records, dead, one_way, every_mask, generator)


def _differing(
    records: Records,
    partners: Records,
    blocks: Sequence[list[int]],
    generator: np.random.Generator,
) -> Integers:
    """Return the number of a random block in which each record differs from its partner, or -1; shape (records,)."""
    columns = []
    for block in blocks:
        is_other = records[:, block] != partners[:, block]
        columns.append(is_other.any(axis=1))
    differs = np.stack(columns, axis=1)
    chosen = np.where(differs, generator.random(differs.shape), -1.0).argmax(axis=1)
    return np.where(differs.any(axis=1), chosen, -1)


def _swap(
    records: Records,
    forbidden: Integers,
    partners: Integers,
    block: list[int],
    masks: Sequence[StructuralZeros],
) -> None:
    """Exchange the values of a block between records and partners, where both are allowed then.

    Each partner is used at most once, and it is none of the `forbidden` records.
    """
    _, once = np.unique(partners, return_index=True)
    once = once[~np.isin(partners[once], forbidden)]
    first = forbidden[once]
    second = partners[once]
    first_after = records[first]
    second_after = records[second]
    first_after[:, block], second_after[:, block] = second_after[:, block], first_after[:, block]
    is_broken = broken_records(tuple(first_after.T), masks) | broken_records(
        tuple(second_after.T), masks
    )
    records[first[~is_broken]] = first_after[~is_broken]
    records[second[~is_broken]] = second_after[~is_broken]


def sample_mixture(model: Mixture, number: int, generator: np.random.Generator) -> Records:
    """Return records of a conditioned model, shape (number, attributes), in random order; none is forbidden.

    DP: post-processing.

    Raises:
        InputError: the masks leave no record.
    """
    records, owners = sample_stratified(model, number, generator)
    swap_refine(records, owners, model, generator)
    repair_structural_zeros(records, owners, model, generator)
    return records[generator.permutation(number)]
