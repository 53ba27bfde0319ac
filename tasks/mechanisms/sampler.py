"""Draws from cumulative tables of 128-bit integers, and uniform integers: exactly, and many at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Integers, Words
from marginweave.tasks.mechanisms.noise_table import BITS, CumulativeTable
from marginweave.tasks.mechanisms.randomness import REST_BITS, DrawBits, WordStream

# Which noise bits select, here, in `zero_cells`, `binomial` and `exponential`: a part of the context of every draw, and another
# one whenever the same bits would select another noise.
SAMPLER_FORMAT = "marginweave/sampler/1"

_FIRST_BITS = BITS - REST_BITS
_GUIDE_BITS = 16


def draw_signed(table: CumulativeTable, bits: DrawBits, number: int, start: int, count: int) -> Integers:
    """Independent draws for cells `start` to `start + count - 1` of table `number` of the draw, shape (count,), int64.

    64 bits a draw, one for the sign, 63 for the entry; the other 65 bits only where those tie.
    """
    words = bits.words(number, start, count)
    magnitude = reached_entries(table, words >> np.uint64(1), lambda place: bits.rest(number, start + place))
    return np.where(words & np.uint64(1), -magnitude, magnitude)


def reached_entries(table: CumulativeTable, first: Words, rest: Callable[[int], int]) -> Integers:
    """How many entries of the table each uniform 128-bit integer reaches; shape of `first`, which has its top 63 bits.

    Comparing these with the top bits of entries first, and the rest when they are equal, gives the same entry as comparing
    all: the distribution is the table's, exactly. A guide narrows the search by the top 16 bits. `rest` has the low 65 bits of
    the integer at a place, and is asked where these decide.
    """
    guide, settled = _guide(table)
    bucket = first >> np.uint64(_FIRST_BITS - _GUIDE_BITS)
    reached: Integers = guide[bucket]
    open_ = np.flatnonzero(~settled[bucket])
    if len(open_):
        wanted = first[open_]
        found = np.searchsorted(table.high, wanted, side="left")
        for tie in np.flatnonzero(table.high[found] == wanted).tolist():
            found[tie] = table.reached(int(wanted[tie]) << REST_BITS | rest(int(open_[tie])))
        reached[open_] = found
    return reached


def draw_tail(table: CumulativeTable, count: int, stream: WordStream) -> Integers:
    """`count` independent draws from `zero_cells.tail_table`, shape (count,), int64; its sentinel is no value."""
    last = len(table.cumulative) - 1
    drawn = np.zeros(0, np.int64)
    while len(drawn) < count:
        words = stream.words(count - len(drawn)) >> np.uint64(1)
        reached = reached_entries(table, words, lambda _: stream.integer(REST_BITS))
        drawn = np.concatenate([drawn, reached[reached < last]])
    return drawn + table.first


def draw_positions(count: int, size: int, stream: WordStream) -> Integers:
    """A uniformly chosen set of `count` of the numbers below `size`, ascending; shape (count,), int64.

    Numbers are drawn one after the other and those that were drawn before dropped, until there are `count`; as many at a time
    as are missing, all of which the loop of single draws would make as well.
    """
    found = np.zeros(0, np.int64)
    while len(found) < count:
        found = np.sort(np.concatenate([found, uniform_numbers(count - len(found), size, stream)]), kind="stable")
        found = found[np.concatenate([[True], found[1:] != found[:-1]])]  # np.unique hashes, which is ten times slower
    return found


def uniform_numbers(count: int, size: int, stream: WordStream) -> Integers:
    """`count` independent uniform numbers below `size` <= 2^62, shape (count,): of words of as many bits, those below it."""
    if size == 1:
        return np.zeros(count, np.int64)
    drawn, shift = [np.zeros(0, np.int64)], np.uint64(64 - (size - 1).bit_length())
    while missing := count - sum(map(len, drawn)):
        words = stream.words(missing) >> shift
        drawn.append(words[words < np.uint64(size)].astype(np.int64))
    return np.concatenate(drawn)


@lru_cache(maxsize=16)
def _guide(table: CumulativeTable) -> tuple[Integers, NDArray[np.bool_]]:
    """For the top 16 bits of a draw: how many entries are below all such draws, and whether none lies among them."""
    edges = np.arange((1 << _GUIDE_BITS) + 1, dtype=np.uint64) << np.uint64(_FIRST_BITS - _GUIDE_BITS)
    guide = np.searchsorted(table.high, edges, side="left").astype(np.int64)
    # a range of draws without an entry inside, its lower end included, needs no comparison at all
    settled = np.searchsorted(table.high, edges[1:] - np.uint64(1), side="right") == guide[:-1]
    return guide, settled
