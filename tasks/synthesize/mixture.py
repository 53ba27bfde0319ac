"""Synthetic records from a fitted mixture of products."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.arrays import Integers, Records
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Mask
from marginweave.tasks.estimate.mixture.draws import independent_records
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.estimate.rounding import apportion, round_shares
from marginweave.tasks.structure.zeros import broken_records
from marginweave.tasks.synthesize.gum.synthesize import replace_dead


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


# After each sweep, with fewer exchanges a record the next one would bring pairs closer by less than .0001 of total variation
# distance (adult, a model of 600 components, 2,000 to 250,000 records). Full shards have one sweep, small tables three.
_ENOUGH = (0.2, 0.03, np.inf)
# Most codes of all attributes together for which pairs are counted (64 MB a shard); beyond, records are not refined.
_MOST_CODES = 4096


def swap_refine(records: Records, owners: Integers, model: Mixture, generator: np.random.Generator) -> None:
    """Swap values between records of a component, in place, where that brings the counts of pairs closer to the model's.

    Own method; evidence: `_ENOUGH` and docs/accuracy.md. Within a component all blocks are independent, so which of its records
    holds which of its values is chance alone: any exchange leaves the components, and every single value's count, as they are.
    Accepted is what lowers sum |count - expected| over all pairs of attributes: what chance added to the model's error goes, up
    to rounding. DP: post-processing.

    Args:
        records: codes, shape (records, attributes), component by component.
        owners: the component of each, ascending.
        model: what the records were sampled from.
        generator: public choices.
    """
    offsets = np.cumsum([0, *model.sizes])
    if len(records) < 2 or offsets[-1] > _MOST_CODES:
        return
    residual = _residual(records, model, offsets)
    starts = np.flatnonzero(np.diff(owners, prepend=-1, append=model.components))
    ends = np.cumsum([0, *(len(block.attributes) for block in model.blocks)])
    blocks = (ends, np.array([a for block in model.blocks for a in block.attributes], np.int64))
    for enough in _ENOUGH:
        if _sweep(records, starts, offsets, blocks, residual, generator) <= enough * len(records):
            return


def _residual(records: Records, model: Mixture, offsets: Integers) -> NDArray[np.float32]:
    """Records with a pair of codes, less what the model expects: shape (codes, codes), symmetric; 0 inside an attribute."""
    residual = np.zeros((offsets[-1], offsets[-1]), np.float32)
    scale = len(records) / model.total
    for a, b in itertools.combinations(range(len(model.sizes)), 2):
        expected = model.marginal((a, b)) * scale
        counts = np.bincount(records[:, a] * model.sizes[b] + records[:, b], minlength=expected.size)
        table = counts.reshape(expected.shape) - expected
        residual[offsets[a] : offsets[a + 1], offsets[b] : offsets[b + 1]] = table
        residual[offsets[b] : offsets[b + 1], offsets[a] : offsets[a + 1]] = table.T
    return residual


@njit(cache=True, nogil=True)
def _sweep(
    records: Records,
    starts: Integers,
    offsets: Integers,
    blocks: tuple[Integers, Integers],
    residual: NDArray[np.float32],
    generator: np.random.Generator,
) -> int:
    """Try as many exchanges as there are records and blocks, of random partners; how many were made.

    Block b, which is exchanged as a whole, has `attributes[ends[b] : ends[b + 1]]`, where `blocks` are ends and attributes.
    """
    (ends, attributes), made = blocks, 0
    for k in range(len(starts) - 1):
        first, number = starts[k], starts[k + 1] - starts[k]
        for _ in range(number * (len(ends) - 1) if number > 1 else 0):
            i = first + int(generator.random() * number)
            j = first + int(generator.random() * number)
            b = int(generator.random() * (len(ends) - 1))
            block = attributes[ends[b] : ends[b + 1]]
            if _gain(records[i], records[j], block, offsets, residual) < 0:
                _exchange(records[i], records[j], block, offsets, residual)
                made += 1
    return made


@njit(cache=True, nogil=True)
def _gain(one: Records, other: Records, block: Integers, offsets: Integers, residual: NDArray[np.float32]) -> float:
    """Change of sum |count - expected| if two records exchanged the values of a block.

    Before, they hold (u, p) and (v, q) of a pair of attributes; after, (v, p) and (u, q). So r = count - expected falls by 1 at
    (u, p) and (v, q) and rises by 1 at (v, p) and (u, q), and each changes the sum by |r - 1| - |r| or |r + 1| - |r|. With
    u != v and p != q these are four different cells, so the changes add up; otherwise nothing changes.
    """
    change = 0.0
    for a in block:
        u, v = offsets[a] + one[a], offsets[a] + other[a]
        if u == v:
            continue
        for x in range(len(one)):
            p, q = offsets[x] + one[x], offsets[x] + other[x]
            if p == q or x in block:
                continue
            change += abs(residual[u, p] - 1) - abs(residual[u, p]) + abs(residual[v, p] + 1) - abs(residual[v, p])
            change += abs(residual[v, q] - 1) - abs(residual[v, q]) + abs(residual[u, q] + 1) - abs(residual[u, q])
    return float(change)


@njit(cache=True, nogil=True)
def _exchange(one: Records, other: Records, block: Integers, offsets: Integers, residual: NDArray[np.float32]) -> None:
    for a in block:
        u, v = offsets[a] + one[a], offsets[a] + other[a]
        for x in range(len(one)):
            p, q = offsets[x] + one[x], offsets[x] + other[x]
            if u == v or p == q or x in block:
                continue
            # a record with `beside` has `target` in place of `source`
            for source, target, beside in ((u, v, p), (v, u, q)):
                residual[source, beside] -= 1
                residual[beside, source] -= 1
                residual[target, beside] += 1
                residual[beside, target] += 1
    for a in block:
        one[a], other[a] = other[a], one[a]


_ROUNDS = 50


def repair_structural_zeros(records: Records, owners: Integers, model: Mixture, generator: np.random.Generator) -> None:
    """Remove the combinations that the masks of the model forbid, in place; those inside a block are not there anyway.

    A forbidden record swaps the values of a block with a random record of its component, where that leaves both allowed:
    components, and so the model, stay as they are. What is left after some rounds become copies of random other records. DP:
    post-processing.

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
    for _ in range(_ROUNDS):
        bad = np.flatnonzero(broken_records(tuple(records.T), model.masks))
        if not len(bad):
            return
        block = blocks[generator.integers(len(blocks))]
        first, last = (np.searchsorted(owners, owners[bad], side) for side in ("left", "right"))
        partners = first + np.floor(generator.random(len(bad)) * (last - first)).astype(np.int64)
        _swap(records, bad, partners, block, model.masks)
    one_way = [model.marginal((a,)) for a in range(len(model.sizes))]
    dead = broken_records(tuple(records.T), model.masks)
    replace_dead(records, dead, one_way, [*model.masks, *model.inside], generator)


def _swap(records: Records, bad: Integers, partners: Integers, block: list[int], masks: Sequence[Mask]) -> None:
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


def sample_independent(model: Mixture, number: int, generator: np.random.Generator) -> Records:
    """Independent draws of a conditioned model, shape (number, attributes); none is forbidden. DP: post-processing.

    They are farther from the model than those of `sample_mixture`, as far as an analysis of a sample assumes.

    Raises:
        InputError: the masks leave no record, or so few that none was found.
    """
    made = np.empty((0, len(model.sizes)), np.int32)
    for _ in range(_ROUNDS):
        more = independent_records(model, number, generator)
        made = np.concatenate((made, np.stack(more, axis=1).astype(np.int32)))[:number]
        if len(made) == number:
            return made[generator.permutation(number)]
    raise InputError("the rules between columns leave too few records of the model; make records without --sets")
