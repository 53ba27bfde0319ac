"""Passes over a tile of records, compiled; they release the interpreter's lock.

A tile has shape (slots, records): slot s holds one value of every record. A step is one choice of slots, one for each column of
a set of columns; in it a record holds one combination at most. The cells of all sets lie one after the other in one array; cell
c of a step is at `starts[step] + c`, C-ordered over the columns, each of `radix` values, the missing value included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers, Words

Tile = NDArray[np.unsignedinteger]
Contributions = NDArray[np.int32]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class Steps(NamedTuple):
    """The steps over sets of columns whose cells are held in one array."""

    slots: Integers
    """Shape (steps, length)."""
    radices: Integers
    """Values of the column of each slot, the missing one included; shape (steps, length)."""
    starts: Integers
    """Where the cells of a step's set of columns begin; shape (steps,)."""


class Choice(NamedTuple):
    """Where selection sampling stands, for records that hold more candidates than they may give."""

    left: Contributions
    """Candidates that were not looked at yet."""
    needed: Contributions
    """Candidates that are still to be kept."""
    seeds: Words
    """A record's own secret word."""


@njit(cache=True, nogil=True)
def add_contributions(tile: Tile, steps: Steps, valid: Flags, contributions: Contributions) -> None:
    """Add to `held` how many of the candidates, the cells that are `valid`, each record holds."""
    prefix = np.zeros(tile.shape[1], np.int32)
    for step in range(steps.slots.shape[0]):
        start, radix, values = _begin(tile, steps, step, prefix)
        for i in range(prefix.shape[0]):
            contributions[i] += valid[start + prefix[i] * radix + values[i]]


@njit(cache=True, nogil=True)
def add_counts(tile: Tile, steps: Steps, cells: Integers, contributions: Contributions) -> None:
    """The same, and count every record in its cells, without a bound.

    A cell is twice its count, and one more where it is a candidate: one look serves both.
    """
    prefix = np.zeros(tile.shape[1], np.int32)
    for step in range(steps.slots.shape[0]):
        start, radix, values = _begin(tile, steps, step, prefix)
        for i in range(prefix.shape[0]):
            place = start + prefix[i] * radix + values[i]
            cell = cells[place]
            contributions[i] += cell & 1
            cells[place] = cell + 2


@njit(cache=True, nogil=True)
def take_back(tile: Tile, steps: Steps, cells: Integers, choice: Choice) -> None:
    """Take the candidates that records over the bound do not keep out of the counts again; `choice` goes on."""
    prefix = np.zeros(tile.shape[1], np.int32)
    for step in range(steps.slots.shape[0]):
        start, radix, values = _begin(tile, steps, step, prefix)
        for i in range(prefix.shape[0]):
            place = start + prefix[i] * radix + values[i]
            if cells[place] & 1 and not _keeps(choice, i):
                cells[place] -= 2


@njit(cache=True, nogil=True)
def choose(valid: Flags, choice: Choice) -> Flags:
    """Which records keep their candidate of one step, of those that hold one; `choice` goes on."""
    kept = np.zeros(valid.shape[0], np.bool_)
    for i in range(valid.shape[0]):
        if valid[i]:
            kept[i] = _keeps(choice, i)
    return kept


@njit(cache=True, nogil=True)
def _begin(
    tile: Tile, steps: Steps, step: int, prefix: NDArray[np.int32]
) -> tuple[int, int, NDArray[np.unsignedinteger]]:
    """Where the cells of the step begin, and the radix and the values of its last column.

    `prefix` becomes the cell of every record over all other columns, unless it is that from the step before.
    """
    last = steps.slots.shape[1] - 1
    same = step > 0
    for j in range(last):
        same = same and steps.slots[step, j] == steps.slots[step - 1, j]
    if not same:
        prefix[:] = 0
        for j in range(last):
            values, radix = tile[steps.slots[step, j]], np.int32(steps.radices[step, j])
            for i in range(prefix.shape[0]):
                prefix[i] = prefix[i] * radix + values[i]
    return steps.starts[step], steps.radices[step, last], tile[steps.slots[step, last]]


@njit(cache=True, nogil=True)
def _keeps(choice: Choice, i: int) -> bool:
    """Selection sampling: keep a candidate with probability needed / left (Knuth, TAOCP 2, 3.4.2, Algorithm S)."""
    left, needed = np.uint64(choice.left[i]), np.uint64(choice.needed[i])
    kept = _below(_word(choice.seeds[i], left), left) < needed
    choice.left[i] -= 1
    choice.needed[i] -= kept
    return bool(kept)


@njit(cache=True, nogil=True)
def _word(seed: np.uint64, number: np.uint64) -> np.uint64:
    """Word `number` of the stream of a secret seed: SplitMix64 (Steele, Lea, Flood 2014), which is a counter and a mixer."""
    word = seed + number * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(cache=True, nogil=True)
def _below(word: np.uint64, limit: np.uint64) -> np.uint64:
    """floor(word limit / 2^64): uniform below `limit` < 2^32 but for a bias of limit / 2^64."""
    return ((word >> _HALF) * limit + (((word & _LOW) * limit) >> _HALF)) >> _HALF
