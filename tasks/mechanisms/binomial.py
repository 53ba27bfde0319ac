"""The binomial distribution to 128 bits, in integers alone: how many of many cells pass when each does by itself."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from marginweave.schemas.errors import InputError
from marginweave.tasks.mechanisms.noise_table import BITS
from marginweave.tasks.mechanisms.randomness import WordStream

# Fixed point, relative to the largest probability, and where a tail is cut: see `binomial_table`.
_FRACTION = 320
_CUT = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class BinomialTable:
    """`cumulative[i]` = 2^128 P(K <= first + i), the last one 2^128."""

    first: int
    cumulative: tuple[int, ...]

    def draw(self, stream: WordStream) -> int:
        """One draw, by inversion of a uniform 128-bit integer."""
        return self.first + bisect_right(self.cumulative, stream.integer(BITS))


@lru_cache(maxsize=16)
def binomial_table(trials: int, probability: Fraction) -> BinomialTable:
    """The table of K ~ Binomial(n, p), in total variation at most (entries + 4) 2^-128 from it: below 2^-100.

    From the mode m = floor((n + 1) p) outwards, P(k + 1) / P(k) = (n - k) p / ((k + 1)(1 - p)), p a fraction of integers:
    one product and one division in fixed point a step, each rounded down by less than 2^-320 of P(m). Probabilities fall
    away from m ever faster (they are log-concave), so where they are below 2^-200 P(m) after i steps, every further one is
    at most 2^{-200/i} times the one before, and all that is cut off is below i 2^-207 P(m), plus the rounding of the entries,
    one unit of 2^-128 each. The number of entries is about 33 standard deviations.
    DP: arithmetic on public or released numbers. Raises InputError unless n >= 0 and 0 <= p < 1.
    """
    if trials < 0 or not 0 <= probability < 1:
        raise InputError("trials must not be negative, and probability must lie in [0, 1)")
    with_, without = probability.numerator, probability.denominator - probability.numerator
    mode = int((trials + 1) * probability)
    above, k, weight = [1 << _FRACTION], mode, 1 << _FRACTION
    while weight >> (_FRACTION - _CUT) and k < trials:
        weight = weight * (trials - k) * with_ // ((k + 1) * without)
        above.append(weight)
        k += 1
    below, k, weight = list[int](), mode, 1 << _FRACTION
    while weight >> (_FRACTION - _CUT) and k > 0:
        weight = weight * k * without // ((trials - k + 1) * with_)
        below.append(weight)
        k -= 1
    weights = [*reversed(below), *above]
    whole, running, cumulative = sum(weights), 0, []
    for weight in weights:
        running += weight
        cumulative.append((running << BITS) // whole)
    return BinomialTable(first=k, cumulative=tuple(cumulative))
