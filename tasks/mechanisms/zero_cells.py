"""Noise of cells that are zero, without visiting them: the same distribution as `add_noise` on each, and a threshold.

Of N zeros, each passes with p = P(X >= T), independently of all others. So the number that pass is Binomial(N, p); given it,
every set of as many positions is equally likely; given the positions, the noise of each is that of X given X >= T (Cormode,
Procopiuc, Srivastava, Tran 2012). All three are drawn from integer tables: p is the noise table's own, and the binomial is
within 2^-100 (`binomial_table`), which a release adds to what `noise_table` states.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np

from marginweave.schemas.arrays import Integers
from marginweave.schemas.errors import InputError
from marginweave.tasks.mechanisms.binomial import binomial_table
from marginweave.tasks.mechanisms.noise_table import noise_table
from marginweave.tasks.mechanisms.randomness import NoiseBits
from marginweave.tasks.mechanisms.sampler import TailTable, draw_positions, draw_tail

# Positions are chosen block by block, in each of which about so many pass.
_PASSING = 1 << 20
_LONGEST = 1 << 62
# Streams of a draw: which zeros pass, by block, and their noise, by table.
_POSITIONS, _NOISE = 0, 1
# A number of passing cells that is exceeded with probability 2^-60.


def passing_probability(threshold: int, deviation: Fraction) -> Fraction:
    """P(X >= threshold), exactly as drawn: how likely a cell without records is told. DP: arithmetic on public numbers."""
    return noise_table(deviation).upper_tail(threshold)


def passing_zeros(cells: int, threshold: int, deviation: Fraction, bits: NoiseBits) -> Iterator[tuple[int, Integers]]:
    """Which of `cells` positions pass when each is a zero with noise: a first position, and offsets from it, ascending.

    Positions of cells that are no zeros, or no candidates at all, are for the caller to drop: whether a position passes is
    independent of all others, so that the rest are as if only zeros had been there.
    DP: with the noise of the cells that occur, and `passing_noise`, that of `add_noise` on all of them.

    Args:
        cells: how many positions, from 0.
        threshold: T, at least 1.
        deviation: standard deviation of the noise.
        bits: of the draw; each block of positions has a stream of its own.

    Raises:
        InputError: a threshold below 1, or a deviation that has no table.
    """
    _check(threshold)
    probability = passing_probability(threshold, deviation)
    if not probability:
        return
    block = min(_LONGEST, int(_PASSING / probability))
    for number, first in enumerate(range(0, cells, block)):
        size, stream = min(block, cells - first), bits.stream(_POSITIONS, number)
        passing = binomial_table(size, probability).draw(stream)
        yield first, draw_positions(passing, size, stream)


def passing_noise(count: int, threshold: int, deviation: Fraction, bits: NoiseBits, table: int = 0) -> Integers:
    """The noise of `count` zeros that passed, shape (count,), int64: independent, each X given X >= threshold.

    Each `table` has a stream of its own. DP and Raises: as `passing_zeros`; also where no noise reaches the threshold.
    """
    _check(threshold)
    if not count:
        return np.zeros(0, np.int64)
    return draw_tail(_tail(threshold, deviation), count, bits.stream(_NOISE, table))


def prepare_passing(cells: int, threshold: int, deviation: Fraction) -> None:
    """Build the tables of a draw ahead of it, so that little that can fail happens after its charge."""
    probability = passing_probability(threshold, deviation)
    if probability:
        block = min(_LONGEST, int(_PASSING / probability))
        for size in {min(block, cells), cells % block}:
            binomial_table(size, probability)
        _tail(threshold, deviation)


def _check(threshold: int) -> None:
    if threshold < 1:
        raise InputError(f"threshold ({threshold}) must be at least 1")


@lru_cache(maxsize=4)
def _tail(threshold: int, deviation: Fraction) -> TailTable:
    table = noise_table(deviation)
    if threshold > table.largest:
        raise InputError(f"threshold ({threshold}) must be at most the largest noise")
    return TailTable.of(table, threshold)
