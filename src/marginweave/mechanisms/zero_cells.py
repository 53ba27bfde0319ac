"""Draws the noise of cells that are zero, without visiting them: the same distribution as `add_noise` on each, and a threshold.

Of N zeros, each passes with p = P(X >= T), independently of all others. So the number that pass is Binomial(N, p); given it,
every set of as many positions is equally likely; given the positions, the noise of each is that of X given X >= T (Cormode,
Procopiuc, Srivastava, Tran 2012). All three are drawn from integer tables: p is the noise table's own, and the binomial is
within 2^-100 (`binomial_table`), which a release adds to what `noise_table` states.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.errors import InputError
from marginweave.mechanisms.noise_table import (
    BITS,
    CumulativeTable,
    draw_positions,
    draw_tail,
    noise_table,
)
from marginweave.mechanisms.randomness import DrawBits

# Fixed point, relative to the largest probability, and where a tail is cut: see `binomial_table`.
_FRACTION = 320
_CUT = 200


@lru_cache(maxsize=16)
def binomial_table(trials: int, probability: Fraction) -> CumulativeTable:
    """Return the table of K ~ Binomial(n, p), in total variation at most (entries + 4) 2^-128 from it: below 2^-100.

    From the mode m = floor((n + 1) p) outwards, P(k + 1) / P(k) = (n - k) p / ((k + 1)(1 - p)), p a fraction of integers:
    one product and one division in fixed point a step, each rounded down by less than 2^-320 of P(m). Probabilities fall
    away from m ever faster (they are log-concave), so where they are below 2^-200 P(m) after i steps, every further one is
    at most 2^{-200/i} times the one before, and all that is cut off is below i 2^-207 P(m), plus the rounding of the entries,
    one unit of 2^-128 each. The number of entries is about 33 standard deviations.
    DP: arithmetic on public or released numbers. Raises InputError unless n >= 0 and 0 <= p < 1.
    """
    if trials < 0 or not 0 <= probability < 1:
        raise InputError("trials must not be negative, and probability must lie in [0, 1)")
    # p / (1 - p) = successes / failures
    successes = probability.numerator
    failures = probability.denominator - probability.numerator
    mode = int((trials + 1) * probability)
    k = mode
    weight = 1 << _FRACTION
    above = [weight]
    while weight >> (_FRACTION - _CUT) and k < trials:
        weight = weight * (trials - k) * successes // ((k + 1) * failures)
        above.append(weight)
        k += 1
    k = mode
    weight = 1 << _FRACTION
    below: list[int] = []
    while weight >> (_FRACTION - _CUT) and k > 0:
        weight = weight * k * failures // ((trials - k + 1) * successes)
        below.append(weight)
        k -= 1
    weights = [*reversed(below), *above]
    total = sum(weights)
    cumulative = [(running << BITS) // total for running in accumulate(weights)]
    return CumulativeTable(first=k, cumulative=tuple(cumulative))


# Positions are chosen block by block, in each of which about this many pass.
_PASSING = 1 << 20
_LONGEST = 1 << 62
# Streams of a draw: which zeros pass, by block, and their noise, by table.
_POSITIONS = 0
_NOISE = 1


def passing_probability(threshold: int, sigma: Fraction) -> Fraction:
    """Return P(X >= threshold), exactly as drawn: how likely a cell without records is released.

    DP: arithmetic on public numbers.
    """
    return noise_table(sigma).upper_tail(threshold)


def passing_zeros(
    cells: int, threshold: int, sigma: Fraction, bits: DrawBits
) -> Iterator[tuple[int, Integers]]:
    """Yield which of `cells` positions pass when each is a zero with noise: a first position, and offsets from it, ascending.

    Positions of cells that are no zeros, or no candidates at all, are for the caller to drop: whether a position passes is
    independent of all others, so that the remaining ones are as if only zeros had been there.
    DP: with the noise of the cells that occur, and `passing_noise`, that of `add_noise` on all of them.

    Args:
        cells: how many positions, from 0.
        threshold: T, at least 1.
        sigma: standard deviation of the noise.
        bits: of the draw; each block of positions has a separate stream.

    Raises:
        InputError: a threshold below 1, or a sigma that has no table.
    """
    _check(threshold)
    probability = passing_probability(threshold, sigma)
    if not probability:
        return
    block = min(_LONGEST, int(_PASSING / probability))
    for number, first in enumerate(range(0, cells, block)):
        size = min(block, cells - first)
        stream = bits.stream(_POSITIONS, number)
        passing = binomial_table(size, probability).draw(stream)
        yield first, draw_positions(passing, size, stream)


def passing_noise(
    count: int, threshold: int, sigma: Fraction, bits: DrawBits, table: int = 0
) -> Integers:
    """Return the noise of `count` zeros that passed, shape (count,), int64: independent, each X given X >= threshold.

    Each `table` has a separate stream. DP and Raises: as `passing_zeros`; also where no noise reaches the threshold.
    """
    _check(threshold)
    if not count:
        return np.zeros(0, np.int64)
    return draw_tail(tail_table(threshold, sigma), count, bits.stream(_NOISE, table))


def prepare_passing(cells: int, threshold: int, sigma: Fraction) -> None:
    """Build the tables of a draw ahead of it, so that little that can fail happens after its charge."""
    probability = passing_probability(threshold, sigma)
    if probability:
        block = min(_LONGEST, int(_PASSING / probability))
        for size in {min(block, cells), cells % block}:
            binomial_table(size, probability)
        tail_table(threshold, sigma)


def _check(threshold: int) -> None:
    if threshold < 1:
        raise InputError(f"threshold ({threshold}) must be at least 1")


@lru_cache(maxsize=4)
def tail_table(threshold: int, sigma: Fraction) -> CumulativeTable:
    """Return the table of X given X >= threshold >= 1: entry i is 2^s (2^129 P(threshold <= X <= threshold + i)).

    s scales the last of them, before the sentinel 2^128, to at least 2^127: a uniform 128-bit integer below it selects with
    exactly the probabilities of the noise table, and one that is not is drawn again.
    """
    table = noise_table(sigma)
    if threshold > table.largest:
        raise InputError(f"threshold ({threshold}) must be at most the largest noise")
    below = table.cumulative[threshold - 1]
    scale = BITS - ((1 << BITS) - below).bit_length()
    entries = ((entry - below) << scale for entry in table.cumulative[threshold:])
    return CumulativeTable(first=threshold, cumulative=(*entries, 1 << BITS))
