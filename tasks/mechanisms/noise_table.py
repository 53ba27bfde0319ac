"""The cumulative table of the rounded Gaussian, to 128 bits, in integers alone.

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
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from marginweave.schemas.arrays import Words
from marginweave.schemas.errors import InputError
from marginweave.tasks.mechanisms.randomness import REST_BITS, WordStream

BITS = 128
MAX_SIGMA = 2**17

# Fixed point: 2^-320 an operation leaves 2^-280 after the millions of operations of the largest table.
_FRACTION = 320
_ONE = 1 << _FRACTION
# Series are cut where what follows is below 2^-200, tails 15 standard deviations out, where 2^-167 is left.
_SERIES = 200
_TAIL = 15


@dataclass(frozen=True, kw_only=True, eq=False)
class CumulativeTable:
    """A distribution on `first`, `first` + 1, …: `cumulative[i]` = 2^128 P(K <= first + i), the last one 2^128."""

    cumulative: tuple[int, ...]
    first: int = 0

    @cached_property
    def high(self) -> Words:
        """The top 63 bits of each entry, shape (entries,): what a draw is compared with first."""
        return np.array([entry >> REST_BITS for entry in self.cumulative], np.uint64)

    def draw(self, stream: WordStream) -> int:
        """One draw, by inversion of a uniform 128-bit integer."""
        return self.first + self.reached(stream.integer(BITS))

    def reached(self, uniform: int) -> int:
        """How many entries are at most `uniform`."""
        return bisect_right(self.cumulative, uniform)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseTable(CumulativeTable):
    """Distribution of the |x| of one noise, 0 … J; the sign of X is a separate fair bit."""

    sigma: Fraction

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the sigma and of all entries, which fix what bits become."""
        numbers = (self.sigma.numerator, self.sigma.denominator, *self.cumulative)
        return hashlib.sha256(",".join(map(str, numbers)).encode()).hexdigest()

    @property
    def largest(self) -> int:
        """J, the largest |x| that can be drawn."""
        return len(self.cumulative) - 1

    def upper_tail(self, least: int) -> Fraction:
        """P(X >= least), exactly as drawn."""
        if least <= 0:
            return 1 - self.upper_tail(1 - least)
        within = self.cumulative[min(least - 1, self.largest)]
        return Fraction((1 << BITS) - within, 1 << (BITS + 1))


@lru_cache(maxsize=16)
def noise_table(sigma: Fraction) -> NoiseTable:
    """The table of the rounded Gaussian with standard deviation `sigma` (a count), kept for the next call.

    DP: arithmetic on public numbers. Raises InputError unless 0 < sigma <= 2^17.
    """
    if not 0 < sigma <= MAX_SIGMA:
        raise InputError(f"deviation ({float(sigma):g}) must be positive and at most {MAX_SIGMA}")
    # Cells narrower than 1 keep the series short for small deviations: an odd number of them makes up a unit cell.
    parts = 2 * math.ceil((1 / sigma - 1) / 2) + 1 if sigma < 1 else 1
    cells = _cells(sigma * parts)
    running, within = -cells[0], []
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
    """Integrals of exp(-t^2 / (2 sigma^2)) over [j - 1/2, j + 1/2] for j = 0 … 15 deviations, fixed point.

    With a = 1/(2 sigma^2) and z_i the coefficient of (2 h)^i in f(j + h) = f(j) sum_i y_i h^i, the equation
    f' = -2 a t f gives z_{i+1} = -a (j z_i + z_{i-1}/2) / (i + 1), and the integral is the sum of z_i/(i + 1) over even
    i. From one j to the next f falls by e^{-a (2j + 1)}.
    """
    a = Fraction(1, 2) / sigma**2
    rate = (a.numerator << _FRACTION) // a.denominator
    half_rate = rate >> 1
    terms = _series_length(sigma)
    ratio = exponential(a, _FRACTION)
    step = (ratio * ratio) >> _FRACTION
    density, cells = _ONE, []
    for j in range(math.ceil(_TAIL * sigma) + 2):
        older, newer, integral = 0, density, density
        slope = j * rate
        for i in range(1, terms):
            older, newer = newer, -((slope * newer + half_rate * older) >> _FRACTION) // i
            if not i & 1:
                integral += newer // (i + 1)
        cells.append(integral)
        density = (density * ratio) >> _FRACTION
        ratio = (ratio * step) >> _FRACTION
    return cells


def _series_length(sigma: Fraction) -> int:
    """Number of terms after which the series of a cell is exact to 2^-200.

    Cauchy's estimate on the circle of radius sigma sqrt(i), on which |f| <= e^{i/2}, gives
    |z_i| <= (e / (4 sigma^2 i))^{i/2}, for every j alike, and each even term at most 1/4 of the one before it.
    """
    square = sigma**2
    half = 2
    while 3**half * square.denominator**half << _SERIES + 1 > (8 * square.numerator * half) ** half:
        half += 1
    return 2 * half


def exponential(x: Fraction, bits: int) -> int:
    """2^bits e^{-x}, x >= 0, rounded down by less than 2 units, as long as x and bits are below 2^13.

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
