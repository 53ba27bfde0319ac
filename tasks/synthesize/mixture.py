"""Synthetic records from a fitted mixture of products."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.arrays import Flags, Integers, Records
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.estimate.rounding import apportion, round_shares
from marginweave.tasks.synthesize.gum.start import Drawing
from marginweave.tasks.synthesize.shards import SHARD, ShardPlan, stream

Array = NDArray[np.float64]


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
        shuffled = generator.permutation(records)
        cells = cells[shuffled[np.argsort(owners[shuffled], kind="stable")]]
        made[:, block.attributes] = block.cells[cells]
    return made, owners


_SWEEPS = 3
"""Of the exchanges of eight (a simulation on adult, epsilon 1) the first made 77 %, the first three 91 %, the fourth 3 %."""

_MOST_CODES = 4096
"""Most codes of all attributes together for which pairs are counted (64 MB a shard); beyond, records are not refined."""


class _Blocks(NamedTuple):
    """Attributes that are exchanged together: block b has `attributes[starts[b] : starts[b + 1]]`."""

    starts: Integers
    attributes: Integers


def swap_refine(records: Records, owners: Integers, model: Mixture, generator: np.random.Generator) -> None:
    """Swap values between records of a component, in place, where that brings the counts of pairs closer to the model's.

    Own method; evidence: `_SWEEPS` and docs/accuracy.md. Within a component all blocks are independent, so which of its records
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
    blocks = _Blocks(
        starts=np.cumsum([0, *(len(block.attributes) for block in model.blocks)]),
        attributes=np.array([a for block in model.blocks for a in block.attributes], np.int64),
    )
    for _ in range(_SWEEPS):
        if not _sweep(records, starts, offsets, blocks, residual, generator):
            return


def _residual(records: Records, model: Mixture, offsets: Integers) -> NDArray[np.float32]:
    """Records with a pair of codes, less what the model expects: shape (codes, codes), symmetric; 0 inside an attribute."""
    residual = np.zeros((offsets[-1], offsets[-1]), np.float32)
    scale = len(records) / model.total
    for a, b in itertools.combinations(range(len(model.sizes)), 2):
        shape = (model.sizes[a], model.sizes[b])
        cells = np.ravel_multi_index((records[:, a], records[:, b]), shape)
        table = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape) - model.marginal((a, b)) * scale
        residual[offsets[a] : offsets[a + 1], offsets[b] : offsets[b + 1]] = table
        residual[offsets[b] : offsets[b + 1], offsets[a] : offsets[a + 1]] = table.T
    return residual


@njit(cache=True, nogil=True)
def _sweep(
    records: Records,
    starts: Integers,
    offsets: Integers,
    blocks: _Blocks,
    residual: NDArray[np.float32],
    generator: np.random.Generator,
) -> int:
    """Try as many exchanges as there are records and blocks, of random partners; how many were made."""
    made = 0
    for k in range(len(starts) - 1):
        first, number = starts[k], starts[k + 1] - starts[k]
        for _ in range(number * (len(blocks.starts) - 1) if number > 1 else 0):
            i = first + int(generator.random() * number)
            j = first + int(generator.random() * number)
            b = int(generator.random() * (len(blocks.starts) - 1))
            block = blocks.attributes[blocks.starts[b] : blocks.starts[b + 1]]
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
            _move(residual, int(u), int(v), int(p))
            _move(residual, int(v), int(u), int(q))
    for a in block:
        one[a], other[a] = other[a], one[a]


@njit(cache=True, nogil=True)
def _move(residual: NDArray[np.float32], source: int, target: int, beside: int) -> None:
    """One record with `beside` has `target` in place of `source`."""
    residual[source, beside] -= 1
    residual[beside, source] -= 1
    residual[target, beside] += 1
    residual[beside, target] += 1


_ROUNDS = 50


def repair_structural_zeros(
    records: Records, owners: NDArray[np.int64], model: Mixture, generator: np.random.Generator
) -> None:
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
    if not model.masks:
        return
    blocks = [block.attributes for block in model.blocks if _tied(block.attributes, model.masks)]
    for _ in range(_ROUNDS):
        bad = np.flatnonzero(~allowed_records(records, model.masks))
        if not len(bad):
            return
        block = list(blocks[generator.integers(len(blocks))])
        _swap(records, bad, _partners(bad, owners, generator), block, model.masks)
    drawing = Drawing(
        records=records,
        one_way=[model.marginal((a,)) for a in range(len(model.sizes))],
        masks=[*model.masks, *model.inside],
        generator=generator,
    )
    drawing.dead[:] = ~allowed_records(records, model.masks)
    drawing.revive()


def allowed_records(records: Records, masks: Sequence[Mask]) -> Flags:
    """Which records no mask forbids, shape (records,)."""
    allowed = np.ones(len(records), np.bool_)
    for mask in masks:
        allowed &= mask.allowed[tuple(records[:, a] for a in mask.attributes)]
    return allowed


def _tied(attributes: Clique, masks: Sequence[Mask]) -> bool:
    return any(set(attributes) & set(mask.attributes) for mask in masks)


def _partners(bad: NDArray[np.int64], owners: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """A random record of the component of each, which may be itself."""
    first, last = (np.searchsorted(owners, owners[bad], side) for side in ("left", "right"))
    return first + np.floor(generator.random(len(bad)) * (last - first)).astype(np.int64)


def _swap(
    records: Records, bad: NDArray[np.int64], partners: NDArray[np.int64], block: list[int], masks: Sequence[Mask]
) -> None:
    """Exchange the values of a block where both records are allowed then; nobody is asked twice, and no two of `bad`."""
    _, once = np.unique(partners, return_index=True)
    once = once[~np.isin(partners[once], bad)]
    one, other = bad[once], partners[once]
    left, right = records[one], records[other]
    left[:, block], right[:, block] = right[:, block], left[:, block]
    kept = allowed_records(left, masks) & allowed_records(right, masks)
    records[one[kept]], records[other[kept]] = left[kept], right[kept]


@dataclass(frozen=True, kw_only=True)
class MixtureSampler:
    """Records sampled from a mixture, which all shards share."""

    model: Mixture
    number: int
    seed: int
    plan: ShardPlan

    @classmethod
    def of(cls, model: Mixture, records: int, seed: int, *, most: int = SHARD) -> MixtureSampler:
        """Prepare `records` records from a fitted model, in shards of at most `most`; the same seed makes the same records.

        Raises:
            InputError: a negative number of records, or as `Mixture.conditioned`.
        """
        if records < 0:
            raise InputError(f"records ({records}) must not be negative")
        return cls(model=model.conditioned(), number=records, seed=seed, plan=ShardPlan.of(records, most=most))

    def records(self, shard: int) -> Records:
        """The records of a shard, shape (n, attributes), in random order; none is forbidden. DP: post-processing.

        Raises:
            InputError: the masks leave no record.
        """
        generator = stream(self.seed, shard)  # post-processing
        number = self.plan.records(self.number, shard)
        if number == 0:
            return np.zeros((0, len(self.model.sizes)), np.int32)
        records, owners = sample_stratified(self.model, number, generator)
        swap_refine(records, owners, self.model, generator)
        repair_structural_zeros(records, owners, self.model, generator)
        return records[generator.permutation(number)]
