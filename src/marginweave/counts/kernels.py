"""Passes over a tile of records, compiled; they release the interpreter's lock.

A tile has shape (slots, records): slot s has one value of every record. A step is one choice of slots, one for each column of
a set of columns; in it a record has at most one combination. The cells of all sets are consecutive in one array; cell
c of a step is at `starts[step] + c`, C-ordered over the columns, each of `radix` values, the missing value included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers, Words
from marginweave.base.compiled import kernel

Tile = NDArray[np.unsignedinteger]
Contributions = NDArray[np.int32]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class Steps(NamedTuple):
    """The steps over sets of columns whose cells are in one array."""

    slots: Integers
    """Shape (steps, length)."""
    radices: Integers
    """Values of the column of each slot, the missing one included; shape (steps, length)."""
    starts: Integers
    """Place of the first cell of a step's set of columns; shape (steps,)."""


class Choice(NamedTuple):
    """State of selection sampling, for records that have more candidates than they may keep."""

    remaining: Contributions
    """Candidates that were not examined yet."""
    needed: Contributions
    """Candidates that are still to be kept."""
    seeds: Words
    """A record's own secret word."""


@kernel
def add_contributions(
    tile: Tile,
    steps: Steps,
    valid: Flags,
    contributions: Contributions,
) -> None:
    """Add to `contributions` how many of the candidates, the cells that are `valid`, each record has."""
    prefix = np.zeros(tile.shape[1], np.int32)
    for step in range(steps.slots.shape[0]):
        start, radix, values = _begin(tile, steps, step, prefix)
        for i in range(prefix.shape[0]):
            contributions[i] += valid[start + prefix[i] * radix + values[i]]


@kernel
def add_counts(
    tile: Tile,
    steps: Steps,
    cells: Integers,
    contributions: Contributions,
) -> None:
    """Add to `contributions` the candidates of each record, and count every record in its cells, without a bound.

    A cell is twice its count, and one more if it is a candidate: one access serves both.
    """
    prefix = np.zeros(tile.shape[1], np.int32)
    for step in range(steps.slots.shape[0]):
        start, radix, values = _begin(tile, steps, step, prefix)
        for i in range(prefix.shape[0]):
            place = start + prefix[i] * radix + values[i]
            cell = cells[place]
            contributions[i] += cell & 1
            cells[place] = cell + 2


@kernel
def take_back(
    tile: Tile,
    steps: Steps,
    cells: Integers,
    choice: Choice,
) -> None:
    """Subtract the candidates that records over the bound drop from the counts; `choice` advances."""
    prefix = np.zeros(tile.shape[1], np.int32)
    for step in range(steps.slots.shape[0]):
        start, radix, values = _begin(tile, steps, step, prefix)
        for i in range(prefix.shape[0]):
            place = start + prefix[i] * radix + values[i]
            if cells[place] & 1 and not _keeps(choice, i):
                cells[place] -= 2


@kernel
def choose(valid: Flags, choice: Choice) -> Flags:
    """Return which records keep their candidate of one step, of those that have one; `choice` advances."""
    is_kept = np.zeros(valid.shape[0], np.bool_)
    for i in range(valid.shape[0]):
        if valid[i]:
            is_kept[i] = _keeps(choice, i)
    return is_kept


@kernel
def _begin(
    tile: Tile,
    steps: Steps,
    step: int,
    prefix: NDArray[np.int32],
) -> tuple[int, int, NDArray[np.unsignedinteger]]:
    """Return the place of the step's first cell, and the radix and the values of its last column.

    `prefix` becomes the cell of every record over all other columns, unless it is that of the step before.
    """
    last = steps.slots.shape[1] - 1
    same = step > 0
    for j in range(last):
        same = same and steps.slots[step, j] == steps.slots[step - 1, j]
    if not same:
        prefix[:] = 0
        for j in range(last):
            values = tile[steps.slots[step, j]]
            radix = np.int32(steps.radices[step, j])
            for i in range(prefix.shape[0]):
                prefix[i] = prefix[i] * radix + values[i]
    return steps.starts[step], steps.radices[step, last], tile[steps.slots[step, last]]


@kernel
def _keeps(choice: Choice, i: int) -> bool:
    """Keep a candidate with probability needed / remaining: selection sampling (Knuth, TAOCP 2, 3.4.2, Algorithm S)."""
    remaining = np.uint64(choice.remaining[i])
    needed = np.uint64(choice.needed[i])
    is_kept = _below(_word(choice.seeds[i], remaining), remaining) < needed
    choice.remaining[i] -= 1
    choice.needed[i] -= is_kept
    return bool(is_kept)


@kernel
def _word(seed: np.uint64, number: np.uint64) -> np.uint64:
    """Return word `number` of the stream of a secret seed: SplitMix64 (Steele, Lea, Flood 2014), a counter and a mixer."""
    word = seed + number * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@kernel
def _below(word: np.uint64, limit: np.uint64) -> np.uint64:
    """Return floor(word limit / 2^64): uniform below `limit` < 2^32 but for a bias of limit / 2^64."""
    return ((word >> _HALF) * limit + (((word & _LOW) * limit) >> _HALF)) >> _HALF
