"""Draws from cumulative tables of 128-bit integers, and uniform integers: exactly, and many at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Integers, Words
from marginweave.tasks.mechanisms.noise_table import BITS, NoiseTable
from marginweave.tasks.mechanisms.randomness import REST_BITS, DrawBits, WordStream

# Which noise bits select, here, in `zero_cells`, `binomial` and `exponential`: a part of the context of every draw, and another
# one whenever the same bits would select another noise.
SAMPLER_FORMAT = "marginweave/sampler/1"

_FIRST_BITS = BITS - REST_BITS
_GUIDE_BITS = 16


class Table(Protocol):
    """Ascending integers of at most 128 bits, the last one 2^128; `high` has the top 63 bits of each."""

    def __hash__(self) -> int:
        """By identity: tables are kept, not compared."""
        ...

    @property
    def high(self) -> Words:
        """Shape (entries,)."""
        ...

    def magnitude(self, uniform: int) -> int:
        """How many entries are at most `uniform`."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class TailTable:
    """X given X >= `least` >= 1, for X of a noise table: entry i is 2^s (2^129 P(least <= X <= least + i)).

    s scales the last of them, before the sentinel 2^128, to at least 2^127: a uniform 128-bit integer below it selects with
    exactly the probabilities of the noise table, and one that is not is drawn anew.
    """

    least: int
    entries: tuple[int, ...]
    high: Words

    @classmethod
    def of(cls, table: NoiseTable, least: int) -> TailTable:
        """The part of `table` from `least` on, which must not be beyond the largest noise."""
        below = table.cumulative[least - 1]
        scale = BITS - ((1 << BITS) - below).bit_length()
        entries = (*((entry - below) << scale for entry in table.cumulative[least:]), 1 << BITS)
        return cls(least=least, entries=entries, high=high_words(entries))

    def magnitude(self, uniform: int) -> int:
        """How many entries are at most `uniform`."""
        return bisect_right(self.entries, uniform)


def high_words(entries: tuple[int, ...]) -> Words:
    """The top 63 of 128 bits of each entry, shape (entries,); rounding down to the same word is for the sampler to tell."""
    return np.array([entry >> REST_BITS for entry in entries], np.uint64)


class Sampler:
    """Draws from a table: 64 bits a draw, one for the sign, 63 for the entry; the other 65 bits only where those tie.

    Comparing the top 63 bits of a uniform 128-bit integer first, and the rest when they equal those of an entry, gives
    the same entry as comparing all: the distribution is the table's, exactly. A guide narrows the search by the top 16 bits.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._guide, self._settled = _guide(table)

    def draw(self, bits: DrawBits, number: int, start: int, count: int) -> Integers:
        """Independent draws for cells `start` to `start + count - 1` of table `number`, shape (count,), int64."""
        words = bits.words(number, start, count)
        magnitude = self.entries(words >> np.uint64(1), lambda place: bits.rest(number, start + place))
        return np.where(words & np.uint64(1), -magnitude, magnitude)

    def entries(self, first: Words, rest: Callable[[int], int]) -> Integers:
        """How many entries of the table each uniform integer reaches; shape of `first`, which has its top 63 bits.

        `rest` has the low 65 bits of the one at a place, and is asked where these decide.
        """
        bucket = first >> np.uint64(_FIRST_BITS - _GUIDE_BITS)
        reached: Integers = self._guide[bucket]
        open_ = np.flatnonzero(~self._settled[bucket])
        if len(open_):
            wanted = first[open_]
            found = np.searchsorted(self._table.high, wanted, side="left")
            for tie in np.flatnonzero(self._table.high[found] == wanted).tolist():
                found[tie] = self._table.magnitude(int(wanted[tie]) << REST_BITS | rest(int(open_[tie])))
            reached[open_] = found
        return reached


def draw_tail(table: TailTable, count: int, stream: WordStream) -> Integers:
    """`count` independent draws of X given X >= `table.least`, shape (count,), int64."""
    sampler, last = Sampler(table), len(table.entries) - 1
    drawn = np.zeros(0, np.int64)
    while len(drawn) < count:
        words = stream.words(count - len(drawn)) >> np.uint64(1)
        reached = sampler.entries(words, lambda _: stream.integer(REST_BITS))
        drawn = np.concatenate([drawn, reached[reached < last]])
    return drawn + table.least


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
def _guide(table: Table) -> tuple[Integers, NDArray[np.bool_]]:
    """For the top 16 bits of a draw: how many entries are below all such draws, and whether none lies among them."""
    edges = np.arange((1 << _GUIDE_BITS) + 1, dtype=np.uint64) << np.uint64(_FIRST_BITS - _GUIDE_BITS)
    guide = np.searchsorted(table.high, edges, side="left").astype(np.int64)
    # a range of draws without an entry inside, its lower end included, needs no comparison at all
    settled = np.searchsorted(table.high, edges[1:] - np.uint64(1), side="right") == guide[:-1]
    return guide, settled
