"""Computes the cumulative table of the rounded Gaussian, to 128 bits, in integers alone, and draws exactly from such tables.

X = round(Z), Z normal with a rational standard deviation, so P(|X| <= j) is the mass of |t| < j + 1/2. Adding X to an
integer count is rounding count + Z: post-processing of a real Gaussian, with its mu-GDP and rho-zCDP exactly.

A draw from the table differs from X by at most (J + 3) 2^-128 in total variation, J the largest |x| in the table: one unit
of 2^-128 for rounding each entry down, and two for the tail that is cut off and for the arithmetic. N draws add at most
(1 + e^epsilon) N (J + 3) 2^-128 to delta: 5e-26 for 1e8 draws at J = 40000, epsilon 1.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from threading import Lock

import numpy as np
from cachetools import LRUCache, cached

from marginweave.base.arrays import Flags, Integers, Words
from marginweave.base.errors import InputError
from marginweave.mechanisms.randomness import REST_BITS, DrawBits, WordStream

BITS = 128
MAX_SIGMA = 2**17

# Fixed point: 2^-320 an operation leaves 2^-280 after the millions of operations of the largest table.
_FRACTION = 320
_ONE = 1 << _FRACTION
# Series are cut where the sum of further terms is below 2^-200, tails 15 standard deviations out, where 2^-167 remains.
_SERIES = 200
_TAIL = 15

# Version of how bits select noise, here, in `zero_cells` and in `exponential`: a part of the context of every draw, which
# changes whenever the same bits would select another noise.
SAMPLER_FORMAT = "marginweave/sampler/1"

_FIRST_BITS = BITS - REST_BITS
_GUIDE_BITS = 16
_GUIDED = 1 << 15


@dataclass(frozen=True, kw_only=True, eq=False)
class CumulativeTable:
    """A distribution on `first`, `first` + 1, …: `cumulative[i]` = 2^128 P(K <= first + i), the last one 2^128."""

    cumulative: tuple[int, ...]
    first: int = 0

    @cached_property
    def high(self) -> Words:
        """Top 63 bits of each entry, shape (entries,), with which a draw is compared first."""
        return np.array([entry >> REST_BITS for entry in self.cumulative], np.uint64)

    def draw(self, stream: WordStream) -> int:
        """Return one draw, by inversion of a uniform 128-bit integer."""
        return self.first + self.reached(stream.integer(BITS))

    def reached(self, uniform: int) -> int:
        """Return the number of entries that are at most `uniform`."""
        return bisect_right(self.cumulative, uniform)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseTable(CumulativeTable):
    """Distribution of the |x| of one noise, 0 … J; the sign of X is a separate fair bit."""

    sigma: Fraction

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the sigma and of all entries, which determine the noise that bits select."""
        numbers = (self.sigma.numerator, self.sigma.denominator, *self.cumulative)
        text = ",".join(map(str, numbers))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def largest(self) -> int:
        """J, the largest |x| that can be drawn."""
        return len(self.cumulative) - 1

    def upper_tail(self, least: int) -> Fraction:
        """Return P(X >= least), exactly as drawn."""
        if least <= 0:
            return 1 - self.upper_tail(1 - least)
        within = self.cumulative[min(least - 1, self.largest)]
        return Fraction((1 << BITS) - within, 1 << (BITS + 1))


# Tables of up to 2^21 entries together, which take some 100 MB: a draw has as many as it has sizes of marginals.
@cached(LRUCache(maxsize=1 << 21, getsizeof=lambda table: len(table.cumulative)), lock=Lock())
def noise_table(sigma: Fraction) -> NoiseTable:
    """Return the table of the rounded Gaussian with standard deviation `sigma` (a count), cached for later calls.

    DP: arithmetic on public numbers. Raises InputError unless 0 < sigma <= 2^17.
    """
    if not 0 < sigma <= MAX_SIGMA:
        raise InputError(f"sigma ({float(sigma):g}) must be positive and at most {MAX_SIGMA}")
    # Cells narrower than 1 keep the series short for small sigmas: an odd number of them makes up a unit cell.
    parts = 1
    if sigma < 1:
        parts = 2 * math.ceil((1 / sigma - 1) / 2) + 1
    cells = _cells(sigma * parts)
    # within[j] is the mass of |t| < j + 1/2: the middle cell once, every other cell twice.
    running = -cells[0]
    within = []
    for cell in cells:
        running += 2 * cell
        within.append(running)
    cumulative = []
    for inner in within[parts // 2 :: parts]:
        scaled = (inner << BITS) // running
        if scaled >= (1 << BITS) - 1:
            break
        cumulative.append(scaled)
    cumulative.append(1 << BITS)
    return NoiseTable(sigma=sigma, cumulative=tuple(cumulative))


def _cells(sigma: Fraction) -> list[int]:
    """Return the integrals of exp(-t^2 / (2 sigma^2)) over [j - 1/2, j + 1/2] for j = 0 … 15 sigmas, fixed point.

    With a = 1 / (2 sigma^2) and t = j + h, f(t) = f(j) e^{-2 a j h} e^{-a h^2}, of which the even part in h remains:
    f(j) sum_i (a j)^{2i} c_i with the c_i of `_even_terms`. From one j to the next f falls by e^{-a (2j + 1)}.
    """
    a = Fraction(1, 2) / sigma**2
    rate = (a.numerator << _FRACTION) // a.denominator
    terms = _even_terms(rate, _series_length(sigma))[::-1]
    ratio = exponential(a, _FRACTION)
    step = (ratio * ratio) >> _FRACTION
    density = _ONE
    cells = []
    for j in range(math.ceil(_TAIL * sigma) + 2):
        square = (j * rate) ** 2 >> _FRACTION
        series = 0
        for term in terms:
            series = (series * square >> _FRACTION) + term
        cells.append(density * series >> _FRACTION)
        density = (density * ratio) >> _FRACTION
        ratio = (ratio * step) >> _FRACTION
    return cells


def _even_terms(rate: int, length: int) -> list[int]:
    """Return the c_i, integrals of (2 h)^{2i} e^{-a h^2} over [-1/2, 1/2] by (2i)!.

    c_i = sum_k (-a/4)^k / (k! (2i + 2k + 1) (2i)!).
    """
    powers = [_ONE]
    while powers[-1]:
        product = -powers[-1] * rate >> _FRACTION + 2
        powers.append(product // len(powers))
    terms = []
    for i in range(length):
        integral = sum(power // (2 * (i + k) + 1) for k, power in enumerate(powers))
        terms.append(integral // math.factorial(2 * i))
    return terms


def _series_length(sigma: Fraction) -> int:
    """Return the number of terms after which the series of a cell is exact to 2^-200.

    With x = (a j)^2 and c_i < 1 / (2i + 1)!, term i has f(j) x^i c_i <= (i / (2 e sigma^2))^i / (2i + 1)!, its value at the j
    where it is largest, which is at most (e / (8 sigma^2 i))^i, and at most 1/4 of the one before it.
    """
    square = sigma**2
    half = 2
    # (3 / (8 sigma^2 i))^i <= 2^-201, 3 > e
    while 3**half * square.denominator**half << _SERIES + 1 > (8 * square.numerator * half) ** half:
        half += 1
    return half


def exponential(x: Fraction, bits: int) -> int:
    """Return 2^bits e^{-x}, x >= 0, rounded down by less than 2 units, as long as x and bits are below 2^13.

    e^{-x} = (e^{-y})^(2^s), y = x / 2^s <= 1/2. With H = bits + 64, rounding y down moves e^{-y} by less than a unit of 2^-H,
    and each of the fewer than H terms of its series loses at most 2; each squaring doubles an error and adds 2. Together that
    is less than 2^s 4 H < 2^32 units of 2^-H, which are taken off before the last 64 bits are.
    """
    inner = bits + 64
    squarings = int(2 * x).bit_length()
    y = int(x * (1 << inner) / (1 << squarings))
    total = term = 1 << inner
    i = 0
    while term:
        i += 1
        term = (term * y >> inner) // i
        total += -term if i & 1 else term
    for _ in range(squarings):
        total = total * total >> inner
    return max(0, total - (1 << 32)) >> 64


def draw_signed(
    table: CumulativeTable, bits: DrawBits, number: int, start: int, count: int
) -> Integers:
    """Return independent draws for cells `start` to `start + count - 1` of table `number` of the draw, shape (count,), int64.

    A draw takes 64 bits, one for the sign, 63 for the entry; the other 65 bits only where those tie.
    """
    words = bits.words(number, start, count)
    magnitude = reached_entries(
        table, words >> np.uint64(1), lambda place: bits.rest(number, start + place)
    )
    return np.where(words & np.uint64(1), -magnitude, magnitude)


def reached_entries(
    table: CumulativeTable, first: Words, low_bits: Callable[[int], int]
) -> Integers:
    """Return how many entries of the table each uniform 128-bit integer reaches; shape of `first`, which has its top 63 bits.

    Comparing these with the top bits of entries first, and the others when they are equal, gives the same entry as comparing
    all: the distribution is the table's, exactly. A guide narrows a long search by the top 16 bits. `low_bits` returns the low
    65 bits of the integer at a place, and is called only where these decide.
    """
    if len(first) < _GUIDED:  # the guide costs more than it saves
        reached = np.zeros(len(first), np.int64)
        unsettled = np.arange(len(first))
    else:
        guide, settled = _guide(table)
        bucket = first >> np.uint64(_FIRST_BITS - _GUIDE_BITS)
        reached = guide[bucket]
        unsettled = np.flatnonzero(~settled[bucket])
    if len(unsettled):
        top_bits = first[unsettled]
        entries = np.searchsorted(table.high, top_bits, side="left")
        for tie in np.flatnonzero(table.high[entries] == top_bits).tolist():
            low = low_bits(int(unsettled[tie]))
            entries[tie] = table.reached(int(top_bits[tie]) << REST_BITS | low)
        reached[unsettled] = entries
    return reached


def draw_tail(table: CumulativeTable, count: int, stream: WordStream) -> Integers:
    """Return `count` independent draws from `zero_cells.tail_table`, shape (count,), int64; its sentinel is no value."""
    last = len(table.cumulative) - 1
    drawn = np.zeros(0, np.int64)
    while len(drawn) < count:
        words = stream.words(count - len(drawn)) >> np.uint64(1)
        reached = reached_entries(table, words, lambda _: stream.integer(REST_BITS))
        drawn = np.concatenate([drawn, reached[reached < last]])
    return drawn + table.first


def draw_positions(count: int, size: int, stream: WordStream) -> Integers:
    """Return a uniformly chosen set of `count` of the numbers below `size`, ascending; shape (count,), int64.

    Numbers are drawn one after the other, and repetitions dropped, until there are `count`. As many are drawn at a time as are
    missing, all of which a loop of single draws would make as well.
    """
    positions = np.zeros(0, np.int64)
    while len(positions) < count:
        drawn = uniform_numbers(count - len(positions), size, stream)
        positions = np.sort(np.concatenate([positions, drawn]), kind="stable")
        # np.unique hashes, which is ten times slower.
        are_new = np.concatenate([[True], positions[1:] != positions[:-1]])
        positions = positions[are_new]
    return positions


def uniform_numbers(count: int, size: int, stream: WordStream) -> Integers:
    """Return `count` independent uniform numbers below `size` <= 2^62, shape (count,).

    They are the words, shortened to as many bits as `size` - 1 has, that are below `size`.
    """
    if size == 1:
        return np.zeros(count, np.int64)
    shift = np.uint64(64 - (size - 1).bit_length())
    portions = [np.zeros(0, np.int64)]
    missing = count
    while missing:
        words = stream.words(missing) >> shift
        numbers = words[words < np.uint64(size)].astype(np.int64)
        portions.append(numbers)
        missing -= len(numbers)
    return np.concatenate(portions)


@lru_cache(maxsize=16)
def _guide(table: CumulativeTable) -> tuple[Integers, Flags]:
    """Return for the top 16 bits of a draw how many entries are below all such draws, and whether none is among them."""
    edges = np.arange((1 << _GUIDE_BITS) + 1, dtype=np.uint64) << np.uint64(
        _FIRST_BITS - _GUIDE_BITS
    )
    guide = np.searchsorted(table.high, edges, side="left").astype(np.int64)
    # A range of draws without an entry inside, its lower end included, needs no comparison.
    below_or_inside = np.searchsorted(table.high, edges[1:] - np.uint64(1), side="right")
    return guide, below_or_inside == guide[:-1]
